"""The embedded engine's HTTP API: SGLang 0.5.17's endpoints, and one of ours for the tree view.

Starlette only routes; what a body means is in ``openai`` and ``server_native``, what the server says of itself in
``server_report``. Every endpoint is a method of :class:`Server`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from weakref import WeakSet

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from engine_launch.embedded.api import Engine, EngineError, EngineUnavailable, GenerateRequest, SamplingParams
from engine_launch.embedded.hot_settings import HOT_FIELDS
from engine_launch.embedded.logs import LOGGER_NAME
from engine_launch.embedded.metrics import ServerMetrics
from engine_launch.embedded.openai import Dialect, OpenAICall, StreamWriter, parse_openai, parse_tokenize, whole_answer
from engine_launch.embedded.server_answers import AnswerSet, Step
from engine_launch.embedded.server_body import BodyError, BodyLimits
from engine_launch.embedded.server_http import (
    CLIENT_GONE,
    AccessMiddleware,
    Endpoint,
    EventStream,
    JsonResponse,
    openai_error,
    to_json,
    unless_gone,
)
from engine_launch.embedded.server_native import NativeCall, generate_json, parse_generate, rounds_json
from engine_launch.embedded.server_options import ServerOptions
from engine_launch.embedded.server_params import BadRequest, Fields, parse_body
from engine_launch.embedded.server_report import ServerReport
from engine_launch.embedded.tokenizer import Tokenizer

HEALTH_TIMEOUT = 20.0
"""Seconds in which ``/health_generate`` must see a token."""
MAX_ROUNDS = 1000
MAX_DIGITS = 20
MODEL_PATH = "/v1/models/{model:path}"

logger = logging.getLogger(LOGGER_NAME)


class Server:
    """Endpoints over one engine."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        options: ServerOptions,
        startup_seconds: Mapping[str, float] | None = None,
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._options = options
        self._metrics = ServerMetrics(engine, options.served_model_name, startup_seconds)
        self._report = ServerReport(engine, options, startup_seconds or {})
        self._hot_change = asyncio.Lock()
        self._live: WeakSet[AnswerSet] = WeakSet()

    def app(self) -> Starlette:
        """The ASGI application."""
        table: list[tuple[str, Endpoint, tuple[str, ...]]] = [
            ("/health", self.health, ("GET",)),
            ("/health_generate", self.health_generate, ("GET",)),
            ("/generate", self.generate, ("POST", "PUT")),
            ("/v1/chat/completions", self.chat_completions, ("POST",)),
            ("/v1/completions", self.completions, ("POST",)),
            ("/v1/tokenize", self.tokenize, ("POST",)),
            ("/tokenize", self.tokenize, ("POST",)),
            ("/v1/models", self.models, ("GET",)),
            (MODEL_PATH, self.model, ("GET",)),
            ("/server_info", self.server_info, ("GET",)),
            ("/get_server_info", self.get_server_info, ("GET",)),
            ("/model_info", self.model_info, ("GET",)),
            ("/get_model_info", self.get_model_info, ("GET",)),
            ("/v1/loads", self.loads, ("GET",)),
            ("/get_load", self.get_load, ("GET",)),
            ("/set_internal_state", self.set_internal_state, ("POST", "PUT")),
            ("/flush_cache", self.flush_cache, ("GET", "POST")),
            ("/abort_request", self.abort_request, ("POST",)),
            ("/ddtree/rounds", self.rounds, ("GET",)),
        ]
        if self._options.enable_metrics:
            table.append(("/metrics", self.metrics, ("GET",)))
        access = Middleware(
            AccessMiddleware,
            metrics=self._metrics,
            endpoints=frozenset(path for path, _, _ in table),
            api_key=self._options.api_key,
            admin_api_key=self._options.admin_api_key,
        )
        return Starlette(
            routes=[Route(path, endpoint, methods=list(methods)) for path, endpoint, methods in table],
            middleware=[access, Middleware(BodyLimits)],
            exception_handlers={
                404: _not_found,
                405: _not_allowed,
                BadRequest: _bad_request,
                BodyError: _bad_body,
                EngineError: _refused,
                EngineUnavailable: _unavailable,
                ClientDisconnect: _gone,
            },
        )

    def abort_all(self) -> None:
        """Ask the engine to end everything; clients get what there is, with finish reason ``abort``."""
        for answers in list(self._live):
            answers.ask_abort()

    # Health and reports

    async def health(self, request: Request) -> Response:
        """200 while the decode loop runs; whether it also gets anywhere is what ``/health_generate`` tells."""
        return Response(status_code=200 if self._engine.alive else 503)

    async def health_generate(self, request: Request) -> Response:
        """200 when a token comes out of the engine in time, be it the probe's or, under load, another request's."""
        probe = GenerateRequest(
            rid=f"HEALTH_CHECK_{uuid.uuid4().hex}",
            input_ids=(self._tokenizer.eos_token_id,),
            sampling=SamplingParams(max_new_tokens=1, temperature=0.0, ignore_eos=True),
        )
        answers = AnswerSet(self._engine, self._tokenizer, None, (probe,), streaming=False)
        before = self._engine.stats()
        try:
            answers.submit()
            async with asyncio.timeout(HEALTH_TIMEOUT):
                (last,) = await answers.last_steps()
            healthy = bool(last.stats.completion_tokens)
        except TimeoutError:
            # The probe may still wait for a slot: then those who hold them must have come on.
            healthy = self._engine.stats().realtime_decode_tokens_total > before.realtime_decode_tokens_total
        except EngineError:
            healthy = False
        finally:
            answers.abort()
        return Response(status_code=200 if healthy else 503)

    async def models(self, request: Request) -> Response:
        return JsonResponse(self._report.models())

    async def model(self, request: Request) -> Response:
        name = request.path_params["model"]
        if name != self._options.served_model_name:
            return openai_error(f"The model {name!r} is not served here.", status=404, kind="NotFoundError", param="model")
        return JsonResponse(self._report.model_card())

    async def server_info(self, request: Request) -> Response:
        return JsonResponse(self._report.server_info())

    async def get_server_info(self, request: Request) -> Response:
        _deprecated("/get_server_info", "/server_info")
        return await self.server_info(request)

    async def model_info(self, request: Request) -> Response:
        return JsonResponse(self._report.model_info())

    async def get_model_info(self, request: Request) -> Response:
        _deprecated("/get_model_info", "/model_info")
        return await self.model_info(request)

    async def loads(self, request: Request) -> Response:
        return JsonResponse(self._report.loads())

    async def get_load(self, request: Request) -> Response:
        _deprecated("/get_load", "/v1/loads")
        return JsonResponse(self._report.load_counts())

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def rounds(self, request: Request) -> Response:
        """The newest draft-and-verify rounds of requests that asked for them, oldest first."""
        text = request.query_params.get("limit", "50")
        # Python refuses to read a number of thousands of digits with an exception of its own.
        if not text.isdecimal() or len(text) > MAX_DIGITS or not 1 <= int(text) <= MAX_ROUNDS:
            raise BadRequest(f"limit must be a number from 1 to {MAX_ROUNDS}.", "limit")
        return JsonResponse({"rounds": rounds_json(self._engine.recent_rounds(int(text)), self._tokenizer)})

    # Changes of the running engine

    async def set_internal_state(self, request: Request) -> Response:
        """Take hot settings: all of them or none. Answers ``[true]`` or ``[false]`` with 200, as SGLang does per rank."""
        body = parse_body(await request.body())
        body.only(("server_args",), {}, ("rid",))
        values = Fields.of(body.raw("server_args"), "server_args")
        wanted = {name: values.number(name, math.nan, -math.inf) for name in values.names() if name in values}
        if not wanted:
            raise BadRequest("server_args must name at least one setting and its number.", "server_args")
        unknown = [name for name in wanted if name not in HOT_FIELDS]
        if unknown:
            logger.warning(
                "Hot change refused. %s cannot be changed while the engine runs; these can: %s",
                ", ".join(unknown),
                ", ".join(HOT_FIELDS),
            )
            return JsonResponse([False])
        async with self._hot_change:
            return JsonResponse([await asyncio.to_thread(self._change_all, wanted)])

    def _change_all(self, wanted: Mapping[str, float]) -> bool:
        before = self._engine.settings
        done: list[str] = []
        for name, value in wanted.items():
            if self._engine.change(name, value):
                done.append(name)
                continue
            for earlier in reversed(done):
                self._engine.change(earlier, float(getattr(before, HOT_FIELDS[earlier])))
            return False
        return True

    async def flush_cache(self, request: Request) -> Response:
        if self._engine.flush_cache():
            return PlainTextResponse("Cache flushed.\n")
        return PlainTextResponse("Cache not flushed: requests are running or waiting.\n", 400)

    async def abort_request(self, request: Request) -> Response:
        body = parse_body(await request.body())
        body.only(("rid", "abort_all"), {}, ("finished_reason", "abort_message"))
        rid = body.text("rid")
        if body.flag("abort_all"):
            self.abort_all()
        elif rid:
            for answers in list(self._live):
                answers.ask_abort(rid)
        else:
            raise BadRequest("rid must name the request to abort.", "rid")
        return Response(status_code=200)

    # Answers

    async def generate(self, request: Request) -> Response:
        body = await request.body()
        try:
            call = await asyncio.to_thread(lambda: parse_generate(parse_body(body), self._tokenizer))
            answers = self._answers(call.requests, streaming=call.stream)
            answers.submit()
        except (BadRequest, EngineError) as error:
            # Worded in a form of its own.
            status = 503 if isinstance(error, EngineUnavailable) else 400
            return JsonResponse({"error": {"message": str(error)}}, status)
        if call.stream:
            return EventStream(self._generate_events(call, answers))
        last = await self._wait(request, answers)
        if last is None:
            return Response(status_code=CLIENT_GONE)
        bodies = [generate_json(answer, step, index=None, sent=True) for answer, step in zip(answers.answers, last, strict=True)]
        return JsonResponse(bodies[0] if call.single else bodies)

    async def _generate_events(self, call: NativeCall, answers: AnswerSet) -> AsyncGenerator[str]:
        try:
            async with aclosing(answers.steps()) as steps:
                async for answer, step in steps:
                    sent = step.first or step.finish is not None
                    index = None if call.single else answer.index
                    yield to_json(generate_json(answer, step, index=index, sent=sent))
            yield "[DONE]"
        finally:
            answers.abort()

    async def chat_completions(self, request: Request) -> Response:
        return await self._openai(Dialect.CHAT, request)

    async def completions(self, request: Request) -> Response:
        return await self._openai(Dialect.COMPLETION, request)

    async def tokenize(self, request: Request) -> Response:
        """The tokens of a conversation as the chat endpoint would have the model read it, or of texts."""
        body = await request.body()
        tokens = await asyncio.to_thread(lambda: parse_tokenize(parse_body(body), self._tokenizer))
        count = [len(one) for one in tokens if isinstance(one, list)] or len(tokens)
        return JsonResponse({"tokens": tokens, "count": count, "max_model_len": self._engine.context_length})

    async def _openai(self, dialect: Dialect, request: Request) -> Response:
        body = await request.body()
        # Turning a long prompt into tokens takes seconds, in which other clients must not wait.
        call = await asyncio.to_thread(
            lambda: parse_openai(
                dialect,
                parse_body(body),
                self._tokenizer,
                model=self._options.served_model_name,
                context_length=self._engine.context_length,
                default_usage=self._options.stream_usage,
            )
        )
        answers = self._answers(call.requests, streaming=call.stream)
        answers.submit()
        if call.stream:
            return EventStream(self._openai_events(call, answers))
        last = await self._wait(request, answers)
        if last is None:
            return Response(status_code=CLIENT_GONE)
        return JsonResponse(whole_answer(call, answers.answers, last))

    async def _openai_events(self, call: OpenAICall, answers: AnswerSet) -> AsyncGenerator[str]:
        writer = StreamWriter(call)
        try:
            async with aclosing(answers.steps()) as steps:
                async for answer, step in steps:
                    for chunk in writer.chunks(answer, step):
                        yield to_json(chunk)
            if call.include_usage:
                yield to_json(writer.usage())
            yield "[DONE]"
        finally:
            answers.abort()

    def _answers(self, requests: Sequence[GenerateRequest], *, streaming: bool) -> AnswerSet:
        answers = AnswerSet(self._engine, self._tokenizer, self._metrics, requests, streaming=streaming)
        self._live.add(answers)
        return answers

    async def _wait(self, request: Request, answers: AnswerSet) -> list[Step] | None:
        """The last steps of all answers; ``None`` when the client left first (the engine is freed then)."""
        try:
            return await unless_gone(request.receive, answers.last_steps())
        finally:
            answers.abort()


def _deprecated(old: str, new: str) -> None:
    logger.warning("Endpoint '%s' is deprecated and will be removed in a future version. Please use '%s' instead.", old, new)


async def _bad_request(request: Request, error: Exception) -> Response:
    return openai_error(str(error), param=error.param if isinstance(error, BadRequest) else None)


async def _refused(request: Request, error: Exception) -> Response:
    return openai_error(str(error))


async def _unavailable(request: Request, error: Exception) -> Response:
    return openai_error(str(error), status=503, kind="ServiceUnavailable")


async def _bad_body(request: Request, error: Exception) -> Response:
    assert isinstance(error, BodyError)
    return openai_error(str(error), status=error.status)


async def _gone(request: Request, error: Exception) -> Response:
    # Left while its body was on its way: nobody reads the answer, but it must not look like an error of the server's.
    return Response(status_code=CLIENT_GONE)


async def _not_found(request: Request, error: Exception) -> Response:
    return JsonResponse({"detail": "Not Found"}, 404)


async def _not_allowed(request: Request, error: Exception) -> Response:
    return JsonResponse({"detail": "Method Not Allowed"}, 405)
