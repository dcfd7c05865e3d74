"""One request inside the engine: its caches, its answer so far, and when it is finished."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine_launch.embedded.api import (
    Algorithm,
    FinishReason,
    GenerateRequest,
    OnEvent,
    RequestStats,
    RoundRecord,
    Settings,
    TokenEvent,
)
from engine_launch.embedded.draft_kv import ContextStore, DraftKV
from engine_launch.embedded.sampling import Sampler
from engine_launch.embedded.target_kv import TargetKV
from engine_launch.embedded.tokenizer import Detokenizer


@dataclass(frozen=True)
class Mode:
    """How one request drafts in one round."""

    algorithm: Algorithm
    budget: int
    """Drafts of a tree; 0 in a tree that is sized automatically."""
    topk: int

    @property
    def automatic(self) -> bool:
        """Whether the tree grows as long as that pays."""
        return self.algorithm is Algorithm.DDTREE and self.budget == 0


@dataclass
class SpecCounts:
    """What verifies brought, for one request or for all."""

    verifies: int = 0
    correct: int = 0
    proposed: int = 0
    histogram: list[int] = field(default_factory=list)
    """Index = accepted drafts of a verify."""

    def add(self, proposed: int, accepted: int) -> None:
        """Count one verify."""
        self.verifies += 1
        self.correct += accepted
        self.proposed += proposed
        while len(self.histogram) <= accepted:
            self.histogram.append(0)
        self.histogram[accepted] += 1


class RequestState:
    """A request from its arrival to its last event. Only the engine's thread touches it once it has been admitted."""

    def __init__(
        self,
        request: GenerateRequest,
        on_event: OnEvent,
        *,
        sampler: Sampler,
        stop_ids: frozenset[int],
        detokenizer: Detokenizer | None,
    ) -> None:
        self.request = request
        self.sampler = sampler
        self.kv: TargetKV | None = None
        self.draft: DraftKV | None = None
        self.prefilled = 0
        """Prompt tokens whose keys and values are in the cache."""
        self.cached_tokens = 0
        """Of those, how many another request had computed."""
        self.begun = False
        """Whether prefill has begun; before that, a beginning that another request has may be taken over."""
        self.prompt_stores: tuple[ContextStore, ...] = ()
        """The drafter's stores as they stood at the end of the prompt."""
        self.output_ids: list[int] = []
        self.spec = SpecCounts()
        self.finish: FinishReason | None = None
        self.abort_requested = False
        self._on_event = on_event
        self._stop_ids = stop_ids
        self._detokenizer = detokenizer
        self._tail = ""
        self._arrived = time.monotonic()
        self._admitted: float | None = None
        self._first_token: float | None = None

    @property
    def rid(self) -> str:
        return self.request.rid

    @property
    def prompt_left(self) -> int:
        """Prompt tokens still to be prefilled."""
        return len(self.request.input_ids) - self.prefilled

    @property
    def last_token(self) -> int:
        """The newest emitted token: the next round's anchor."""
        return self.output_ids[-1]

    @property
    def tokens_left(self) -> int:
        """Tokens that may still be emitted."""
        return self.request.sampling.max_new_tokens - len(self.output_ids)

    def admitted(self) -> None:
        """Note the moment of admission."""
        self._admitted = time.monotonic()

    def reused(self, tokens: int) -> None:
        """So many prompt tokens were copied from another request."""
        self.prefilled = self.cached_tokens = tokens

    def mode(self, settings: Settings) -> Mode:
        """How this request drafts under ``settings`` and its own overrides."""
        own = self.request.overrides
        speculate = settings.speculation if own.speculative is None else own.speculative
        if settings.algorithm is Algorithm.PLAIN or not speculate or self.draft is None:
            return Mode(Algorithm.PLAIN, 0, 0)
        return Mode(
            settings.algorithm,
            settings.tree_budget if own.ddtree_budget is None else own.ddtree_budget,
            settings.tree_topk if own.ddtree_topk is None else own.ddtree_topk,
        )

    def emit(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Take new tokens into the answer, up to the first that ends it; returns those that count.

        The token that ends the answer is kept, as in SGLang (``output_ids`` hold it, the text does not).
        """
        if self._first_token is None:
            self._first_token = time.monotonic()
        kept: list[int] = []
        for token in tokens:
            kept.append(token)
            self.output_ids.append(token)
            self.finish = self._reason_to_finish(token)
            if self.finish is not None:
                break
        return tuple(kept)

    def _reason_to_finish(self, token: int) -> FinishReason | None:
        if token in self._stop_ids:
            return FinishReason("stop", matched=token)
        matched = self._matched_stop_string(token)
        if matched is not None:
            return FinishReason("stop", matched=matched)
        if self.tokens_left <= 0:
            return FinishReason("length")
        return None

    def _matched_stop_string(self, token: int) -> str | None:
        stops = self.request.sampling.stop
        if not stops or self._detokenizer is None:
            return None
        self._tail += self._detokenizer.push([token])
        found = [stop for stop in stops if stop in self._tail]
        if found:
            return min(found, key=self._tail.find)
        self._tail = self._tail[-max(len(stop) for stop in stops) :]
        return None

    def send(self, tokens: tuple[int, ...], record: RoundRecord | None = None) -> None:
        """Give an event to whoever asked. A listener that fails is taken for gone: its request is aborted, the loop goes on."""
        try:
            self._on_event(TokenEvent(self.rid, tokens, self.finish, self.stats(), record))
        except Exception:
            self.abort_requested = True

    def stats(self) -> RequestStats:
        """The figures so far."""
        now = time.monotonic()
        admitted = now if self._admitted is None else self._admitted
        first = now if self._first_token is None else self._first_token
        return RequestStats(
            prompt_tokens=len(self.request.input_ids),
            completion_tokens=len(self.output_ids),
            cached_tokens=self.cached_tokens,
            spec_verify_ct=self.spec.verifies,
            spec_num_correct_drafts=self.spec.correct,
            spec_num_proposed_drafts=self.spec.proposed,
            spec_correct_drafts_histogram=tuple(self.spec.histogram),
            queue_time=admitted - self._arrived,
            prefill_seconds=max(0.0, first - admitted),
            decode_seconds=max(0.0, now - first),
        )
