"""Requests that run at the same time and begin alike: the first computes the beginning, the others wait for it and take it over.

What a running request has computed can be copied like what an answered one has left. A request whose beginning is just being
computed by an earlier one waits until that one is there; the other's chunk then ends exactly where the two part, because the
drafter's rings can be taken over only while they stand there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine_launch.embedded.prefix_cache import PrefixCache, PrefixEntry, shared_length
from engine_launch.embedded.request import RequestState

WORTH_WAITING = 64
"""Shared tokens for which a request waits: more than a chat template puts before every prompt, which all requests share."""


@dataclass(frozen=True)
class _Awaited:
    """What a request waits for."""

    leader: RequestState
    length: int
    """Tokens that both begin with: the leader's next chunk must not go beyond."""


def begin_prompts(running: Sequence[RequestState], prefixes: PrefixCache) -> dict[str, int]:
    """Let requests take over beginnings that others have, or wait for those that others are about to have.

    Args:
        running: all admitted requests, in the order of admission.
        prefixes: what answered requests left.

    Returns:
        Where the chunk of a request that others wait for has to end, in tokens of its prompt, by request id.
    """
    ends: dict[str, int] = {}
    for index, state in enumerate(running):
        if state.begun or state.kv is None:
            continue
        if not prefixes.enabled:
            state.begun = True
            continue
        prompt = state.request.input_ids
        answering = [_entry_of(other) for other in running if not other.prompt_left]
        match = prefixes.find(prompt, state.draft, answering)
        wait = _awaited(state, running[:index], match.length if match else 0)
        if wait is not None:
            rid = wait.leader.rid
            ends[rid] = min(ends.get(rid, wait.length), wait.length)
            continue
        begun = [_entry_of(other) for other in running if other.prefilled]
        match = prefixes.find(prompt, state.draft, begun)
        state.begun = True
        if match is not None:
            match.copy_to(state.kv, state.draft)
            state.reused(match.length)
    return ends


def _entry_of(state: RequestState) -> PrefixEntry:
    """What a running request has computed so far; to be copied from at once, since the request goes on.

    Raises:
        RuntimeError: it has not been admitted.
    """
    if state.kv is None:
        raise RuntimeError(f"request {state.rid} has no cache")
    tokens = (*state.request.input_ids, *state.output_ids)[: state.kv.length]
    drafts = () if state.draft is None else (tuple(state.draft.stores),)
    if state.prompt_stores:
        drafts = (state.prompt_stores, *drafts)
    return PrefixEntry(tokens, state.kv, drafts, 0)


def _awaited(state: RequestState, earlier: Sequence[RequestState], cached: int) -> _Awaited | None:
    """Which of ``earlier`` a request had better wait for that could take over ``cached`` tokens from elsewhere."""
    best: _Awaited | None = None
    prompt = state.request.input_ids
    for leader in earlier:
        length = min(shared_length(prompt, leader.request.input_ids), len(prompt) - 1)
        least = cached + WORTH_WAITING if best is None else best.length + 1
        if leader.prompt_left and length > leader.prefilled and length >= least:
            best = _Awaited(leader, length)
    return best
