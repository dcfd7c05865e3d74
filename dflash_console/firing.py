"""Prompts to a session's engine: sent, measured, and their figures (never their text) noted in history."""

from __future__ import annotations

import time
from collections.abc import Sequence

from .history import RequestRow
from .load.client import SILENCE_TIMEOUT_S, OnChunk, OnDone, PromptClient
from .load.records import RequestRecord
from .load.request import PromptRequest
from .session import HostSession


async def fire(
    session: HostSession,
    requests: Sequence[PromptRequest],
    on_chunk: OnChunk | None = None,
    on_done: OnDone | None = None,
    *,
    first_token_s: float = SILENCE_TIMEOUT_S,
) -> tuple[RequestRecord, ...]:
    """Send all prompts at once and read the answers to their ends; cancelling closes them, which frees their slots.
    One whose first token has not come after ``first_token_s`` seconds fails.

    Raises:
        HostError: the engine's address is not known.
    """
    engine = await session.engine()

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
