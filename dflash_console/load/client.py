"""Sending prompts to a server and reading the answers as they stream, one or many at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from types import TracebackType

import httpx
from httpx_sse import EventSource, SSEError

from ..evidence.values import read_json
from .records import Chunk, RequestRecord
from .request import Endpoint, PromptRequest, request_body
from .stream import DONE, StreamReader, error_message, reader_for

OnChunk = Callable[[Chunk], None]
OnDone = Callable[[RequestRecord], None]

CONNECT_TIMEOUT_S = 5.0
SILENCE_TIMEOUT_S = 300.0
"""Longest wait for the next event. Long, because a deep prompt on a large model prefills for minutes without one."""
NOTICE_S = 5.0
"""After so much silence it is said that nothing has come."""


class PromptClient:
    """Fires prompts at one server. Use as an async context manager; leaving it closes every open request.

    Cancelling a :meth:`send` closes its connection, which frees the request's slot in the engine.
    """

    def __init__(
        self, base_url: str, *, api_key: str | None = None, model: str = "default", first_token_s: float = SILENCE_TIMEOUT_S
    ) -> None:
        """``first_token_s``: longest wait for the first token of each answer, in a queue of the server or while it prefills."""
        self._first_token_s = first_token_s
        self._base_url = base_url.rstrip("/")
        self._model = model
        self._http = httpx.AsyncClient(
            base_url=self._base_url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(max(SILENCE_TIMEOUT_S, first_token_s), connect=CONNECT_TIMEOUT_S),
            # Parallel requests must all be under way at once, or the load would be less than it says.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
            trust_env=False,
        )

    async def __aenter__(self) -> PromptClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, request: PromptRequest, on_chunk: OnChunk | None = None, *, number: int = 0) -> RequestRecord:
        """Send one prompt and read its answer to the end.

        ``on_chunk`` is called for each chunk as it arrives. Failures are the record's ``error``, never an exception; only
        cancellation passes through.
        """
        reader = reader_for(request.endpoint, number)
        started = time.perf_counter()
        error = None
        try:
            async with asyncio.timeout(self._first_token_s) as limit:
                error = await self._stream(request, reader, started, on_chunk, limit)
        except TimeoutError:
            error = (
                f"no token came within {self._first_token_s:g} s: the engine is frozen, reads a long prompt or has many waiting "
                "(ddtree-console status, logs); --first-token-timeout waits longer"
            )
        except (httpx.HTTPError, SSEError) as problem:
            error = self._explain(problem)
        return reader.record(time.perf_counter() - started, error)

    async def send_many(
        self, requests: Sequence[PromptRequest], on_chunk: OnChunk | None = None, on_done: OnDone | None = None
    ) -> tuple[RequestRecord, ...]:
        """Send all prompts at once; records in the order of ``requests``, ``on_done`` in the order of their ends."""

        async def one(number: int, request: PromptRequest) -> RequestRecord:
            record = await self.send(request, on_chunk, number=number)
            if on_done is not None:
                on_done(record)
            return record

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(number, request)) for number, request in enumerate(requests)]
        return tuple(task.result() for task in tasks)

    async def _stream(
        self,
        request: PromptRequest,
        reader: StreamReader,
        started: float,
        on_chunk: OnChunk | None,
        limit: asyncio.Timeout,
    ) -> str | None:
        """Read the answer; one sentence when it did not come whole."""
        body = request_body(request, model=self._model)
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        async with self._http.stream("POST", request.endpoint.value, json=body, headers=headers) as response:
            if response.status_code != httpx.codes.OK:
                return self._refusal(request.endpoint, response.status_code, await response.aread())
            async for event in EventSource(response).aiter_sse():
                if event.data.strip() == DONE:
                    return None
                chunk = reader.feed(event.data, time.perf_counter() - started)
                if chunk is None:
                    continue
                limit.reschedule(None)
                if on_chunk is not None:
                    on_chunk(chunk)
        return "the answer broke off: the server closed the stream before its end. Its log says why: ddtree-console logs"

    def _refusal(self, endpoint: Endpoint, status: int, body: bytes) -> str:
        text = body.decode("utf-8", "replace")
        try:
            message = error_message(read_json(text)) or text
        except ValueError:
            message = text
        message = " ".join(message.split())[:400] or "no reason given"
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            return f"the server refused the API key ({status}): it must be the one of the engine's --api-key"
        if status == httpx.codes.NOT_FOUND:
            return f"the server has no {endpoint.value} ({status}): it may not be an SGLang server"
        if "chat_template" in message or "chat template" in message:
            return "the model has no chat template, so the server cannot take a chat turn: send the text as it stands (--raw)"
        return f"the server refused the request ({status}): {message}"

    def _explain(self, problem: httpx.HTTPError | SSEError) -> str:
        if isinstance(problem, httpx.ConnectError | httpx.ConnectTimeout):
            return f"no server answers at {self._base_url}: it is not running, or still loading (ddtree-console status)"
        if isinstance(problem, httpx.TimeoutException):
            return f"the server sent nothing for {max(SILENCE_TIMEOUT_S, self._first_token_s):.0f} s"
        if isinstance(problem, SSEError):
            return "the server did not answer with a stream of events: it may not be an SGLang server"
        return f"the connection broke off ({type(problem).__name__}): the server may have stopped (ddtree-console logs)"
