"""Sending prompts to a server and reading the answers as they stream, one or many at a time.

A user's turn goes to ``/generate`` as the tokens that the server's own chat template makes of it (``template.py``), because
SGLang's chat endpoint streams no figures of verifies; to the chat endpoint where the server does not give the tokens. What is
asked for the figures' sake alone and refused is left out and remembered; what the user asked for is never left out.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType

import httpx
from httpx_sse import EventSource, SSEError

from ..evidence.http_status import NO_ENDPOINT
from ..evidence.values import read_json
from .records import Chunk, CommitSource, RequestRecord
from .request import Endpoint, Extra, JsonValue, PromptRequest, request_body
from .stream import DONE, StreamReader, error_message, reader_for
from .template import TOKENIZE_TIMEOUT_S, ChatTemplate, NoTemplateTokens

OnChunk = Callable[[Chunk], None]
OnDone = Callable[[RequestRecord], None]

CONNECT_TIMEOUT_S = 5.0
SILENCE_TIMEOUT_S = 300.0
"""Longest wait for the next event. Long, because a deep prompt on a large model prefills for minutes without one."""
NOTICE_S = 5.0
"""After so much silence it is said that nothing has come."""


class Refused(Exception):
    """The server answered a prompt with an error status; the message is its reason."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class _Call:
    """One way of sending a prompt."""

    endpoint: Endpoint
    body: dict[str, JsonValue]
    reader: StreamReader
    without: frozenset[Extra] = frozenset()
    """What is not asked for in it, because the server refuses it."""


class PromptClient:
    """Fires prompts at one server. Use as an async context manager; leaving it closes every open request.

    Cancelling a :meth:`send` closes its connection, which frees the request's slot in the engine.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        model: str = "default",
        first_token_s: float = SILENCE_TIMEOUT_S,
        refused: set[Extra] | None = None,
    ) -> None:
        """
        Args:
            first_token_s: longest wait for the first token of each answer, in a queue of the server or while it prefills.
            refused: what this server is known to refuse; what it turns out to refuse is added.
        """
        self._first_token_s = first_token_s
        self._refused: set[Extra] = set() if refused is None else refused
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
        # Half at most, so that the other way to the tokens has its time too.
        self._template = ChatTemplate(self._http, min(TOKENIZE_TIMEOUT_S, first_token_s / 2))

    async def __aenter__(self) -> PromptClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        await self._template.close()
        await self._http.aclose()

    async def send(self, request: PromptRequest, on_chunk: OnChunk | None = None, *, number: int = 0) -> RequestRecord:
        """Send one prompt and read its answer to the end.

        ``on_chunk`` is called for each chunk as it arrives. Failures are the record's ``error``, never an exception; only
        cancellation passes through.
        """
        call = self._call(request, number)
        started = time.perf_counter()
        error = None
        try:
            async with asyncio.timeout(self._first_token_s) as limit:
                call = await self._with_tokens(request, call, number)
                while True:
                    # TTFT is the server's: it does not begin before the answer is asked for.
                    started = time.perf_counter()
                    try:
                        error = await self._stream(call, started, on_chunk, limit)
                    except Refused as refusal:
                        other = self._other(request, call, refusal, number)
                        if other is not None:
                            call = other
                            continue
                        error = _explain_refusal(call.endpoint, refusal)
                    else:
                        # Only now is it known that it was this, and not something else, that the server refused.
                        self._refused |= call.without
                    break
        except TimeoutError:
            error = (
                f"no token came within {self._first_token_s:g} s: the engine is frozen, reads a long prompt or has many waiting "
                "(ddtree-console status, logs); --first-token-timeout waits longer"
            )
        except (httpx.HTTPError, SSEError) as problem:
            error = self._explain(problem)
        record = call.reader.record(time.perf_counter() - started, error)
        return replace(record, endpoint=call.endpoint.value, note=_not_reported(request, call, record) if record.ok else "")

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

    def _call(self, request: PromptRequest, number: int, without: frozenset[Extra] = frozenset()) -> _Call:
        """The way to the request's own endpoint."""
        left_out = without | self._refused
        body = request_body(request, model=self._model, without=left_out)
        return _Call(request.endpoint, body, reader_for(request.endpoint, number), left_out)

    async def _with_tokens(self, request: PromptRequest, call: _Call, number: int) -> _Call:
        """The way by which a user's turn brings its figures; ``call`` where there is none."""
        if request.endpoint is not Endpoint.CHAT or request.openai or Extra.TOKENS in call.without:
            return call
        try:
            tokens = await self._template.tokens(request.messages)
        except NoTemplateTokens as problem:
            return self._call(request, number, frozenset({Extra.TOKENS})) if problem.lasting else call
        body = request_body(request, input_ids=tokens)
        return _Call(Endpoint.GENERATE, body, reader_for(Endpoint.GENERATE, number))

    def _other(self, request: PromptRequest, call: _Call, refusal: Refused, number: int) -> _Call | None:
        """Another way when the server refused something that only the console asked for; each thing is given up once."""
        if call.endpoint is not request.endpoint:
            # The tokens came, but there is no /generate to answer them: another kind of server.
            absent = refusal.status in NO_ENDPOINT
            return self._call(request, number, frozenset({Extra.TOKENS})) if absent else None
        if call.endpoint is Endpoint.CHAT and refusal.status in (httpx.codes.BAD_REQUEST, httpx.codes.UNPROCESSABLE_ENTITY):
            for extra in (Extra.USAGE_OF_CHUNKS, Extra.USAGE):
                if extra not in call.without and extra.value in str(refusal):
                    return self._call(request, number, call.without | {extra})
        return None

    async def _stream(self, call: _Call, started: float, on_chunk: OnChunk | None, limit: asyncio.Timeout) -> str | None:
        """Read the answer; one sentence when it did not come whole.

        Raises:
            Refused: the server answered with an error status.
        """
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        async with self._http.stream("POST", call.endpoint.value, json=call.body, headers=headers) as response:
            if response.status_code != httpx.codes.OK:
                raise Refused(response.status_code, _reason(await response.aread()))
            # Events are UTF-8, whatever the header says, and may begin with a byte order mark, which is none of the first line.
            response.encoding = "utf-8-sig"
            async for event in EventSource(response).aiter_sse():
                if event.data.strip() == DONE:
                    return None
                chunk = call.reader.feed(event.data, time.perf_counter() - started)
                if chunk is None:
                    continue
                limit.reschedule(None)
                if on_chunk is not None:
                    on_chunk(chunk)
        so_far = call.reader.record(0.0)
        if so_far.error is not None or so_far.finish_reason is not None:
            # The server said why, or all of the answer is there and only the last word of the stream is not.
            return so_far.error
        return "the answer broke off: the server closed the stream before its end. Its log says why: ddtree-console logs"

    def _explain(self, problem: httpx.HTTPError | SSEError) -> str:
        if isinstance(problem, httpx.ConnectError | httpx.ConnectTimeout):
            return f"no server answers at {self._base_url}: it is not running, or still loading (ddtree-console status)"
        if isinstance(problem, httpx.TimeoutException):
            return f"the server sent nothing for {max(SILENCE_TIMEOUT_S, self._first_token_s):.0f} s"
        if isinstance(problem, SSEError):
            return "the server did not answer with a stream of events: it may not be an SGLang server"
        return f"the connection broke off ({type(problem).__name__}): the server may have stopped (ddtree-console logs)"


def _reason(body: bytes) -> str:
    """What an error's body says, in one line."""
    text = body.decode("utf-8", "replace")
    try:
        message = error_message(read_json(text)) or text
    except ValueError:
        message = text
    return " ".join(message.split()) or "no reason given"


def _explain_refusal(endpoint: Endpoint, refusal: Refused) -> str:
    status, message = refusal.status, str(refusal)[:400]
    if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        return f"the server refused the API key ({status}): it must be the one of the engine's --api-key"
    if status in NO_ENDPOINT:
        return f"the server has no {endpoint.value} ({status}): it may not be an SGLang server"
    if "chat_template" in message or "chat template" in message:
        return "the model has no chat template, so the server cannot take a chat turn: send the text as it stands (--raw)"
    return f"the server refused the request ({status}): {message}"


def _not_reported(request: PromptRequest, call: _Call, record: RequestRecord) -> str:
    """What an answer from the chat endpoint lacks, and why; empty for one that has everything."""
    if call.endpoint is not Endpoint.CHAT:
        return ""
    parts = []
    if record.commit_source is CommitSource.NONE:
        why = "" if request.openai else f", and this server did not give the prompt's tokens ({Extra.TOKENS.value}) for /generate"
        parts.append(f"commit length is not reported: {Endpoint.CHAT.value} streams no figures of verifies{why}")
    for extra, lacking in ((Extra.USAGE, "token counts are"), (Extra.USAGE_OF_CHUNKS, "the tokens of each chunk are")):
        if extra in call.without:
            parts.append(f"{lacking} not reported: this server refuses {extra.value}")
            break
    return "; ".join(parts)
