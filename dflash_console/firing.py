"""Prompts to a session's engine: sent, measured, and their figures (never their text) noted in history."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .history import RequestRow
from .hosts.service import ENDED, RunState
from .hosts.stranger import find_stranger, own_address
from .hosts.transport import HostError
from .load.client import SILENCE_TIMEOUT_S, OnChunk, OnDone, PromptClient
from .load.records import RequestRecord
from .load.request import PromptRequest
from .session import HostSession

if TYPE_CHECKING:
    from .hosts.http import EngineHttp


async def own_engine(session: HostSession) -> EngineHttp:
    """The engine of this session's unit. To be asked for before prompts: what another program on its port answers, and how fast,
    would be taken for the unit's.

    Raises:
        HostError: nothing of the unit runs, another program listens on its port, or its address is not known.
    """
    state, config = await session.service.state(), await session.service.configuration()
    stranger = await find_stranger(session.transport, config, state)
    if stranger is not None:
        what = stranger.sentence if stranger.beside else f"{session.unit} is {state.state.value}, and {stranger.sentence}"
        raise HostError(
            f"{what}; it was not asked, since its answers would not be this unit's: end it, or give {session.unit} another port "
            "(flag:--port)"
        )
    if state.state in ENDED and state.main_pid is None and own_address(config.command) is not None:
        next_step = "its log says why, and a start begins anew" if state.state is RunState.FAILED else "start it first"
        raise HostError(f"{session.unit} is {state.state.value}, so there is no engine to ask; {next_step}")
    return await session.engine()


async def fire(
    session: HostSession,
    requests: Sequence[PromptRequest],
    on_chunk: OnChunk | None = None,
    on_done: OnDone | None = None,
    *,
    first_token_s: float = SILENCE_TIMEOUT_S,
    engine: EngineHttp | None = None,
) -> tuple[RequestRecord, ...]:
    """Send all prompts at once and read the answers to their ends; cancelling closes them, which frees their slots.
    One whose first token has not come after ``first_token_s`` seconds fails.

    Args:
        engine: from :func:`own_engine`, where the caller has asked for it already.

    Raises:
        HostError: as :func:`own_engine`. Nothing was sent.
    """
    if engine is None:
        engine = await own_engine(session)

    def ended(record: RequestRecord) -> None:
        session.history.add_request(session.key, request_row(record, time.time()))
        if on_done is not None:
            on_done(record)

    async with PromptClient(
        engine.base_url, api_key=engine.api_key, first_token_s=first_token_s, refused=session.refused
    ) as client:
        return await client.send_many(requests, on_chunk, ended)


def request_row(record: RequestRecord, at: float) -> RequestRow:
    """What history keeps of a request that ended at ``at``."""
    return RequestRow(
        at,
        ttft_s=record.ttft_s,
        decode_tok_s=record.decode_tok_s,
        commit_length=record.commit_length,
        completion_tokens=record.completion_tokens,
        prompt_tokens=record.prompt_tokens,
        error=record.error or "",
    )
