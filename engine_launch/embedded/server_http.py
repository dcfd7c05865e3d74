"""The HTTP plumbing under the endpoints: who may ask, what is counted, how streams end, how errors look."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TypeVar

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine_launch.embedded.metrics import ServerMetrics

T = TypeVar("T")

OPEN_PATHS = ("/health", "/metrics")
"""Answered without a key, as SGLang does: probes and scrapers carry none."""
ADMIN_PATHS = frozenset({"/set_internal_state", "/flush_cache", "/abort_request"})
"""What changes the running engine: needs the admin key where one is set."""
CLIENT_GONE = 499
"""nginx's status for a client that left; nobody reads it, but access counts do."""


class JsonResponse(Response):
    """Compact JSON that never contains ``NaN`` (which is none)."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return to_json(content).encode()


def to_json(content: object) -> str:
    """Compact JSON, not escaped to ASCII.

    Raises:
        ValueError: a number is infinite or none (JSON has no word for it).
    """
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def openai_error(message: str, *, status: int = 400, kind: str = "BadRequest", param: str | None = None) -> Response:
    """An error as SGLang's OpenAI endpoints word it."""
    body = {"object": "error", "message": message, "type": kind, "param": param, "code": status}
    return JsonResponse(body, status)


class EventStream(Response):
    """Server-sent events from an async generator, which is closed as soon as the client is gone or all is said."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str]) -> None:
        super().__init__()
        self._events = events
        self.headers["cache-control"] = "no-cache"
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def produce() -> None:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for event in self._events:
                await send({"type": "http.response.body", "body": f"data: {event}\n\n".encode(), "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        try:
            await unless_gone(receive, produce())
        finally:
            # The generator's own clean-up (freeing the engine) must run although this task was cancelled.
            with anyio.CancelScope(shield=True):
                await self._events.aclose()


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T | None:
    """Await ``work``; when the client disconnects first, cancel it and return ``None``.

    The request's body must have been read: what is received here can only be the disconnect.
    """
    result: T | None = None

    async def run(scope: anyio.CancelScope) -> None:
        nonlocal result
        result = await work
        scope.cancel()

    async def watch(scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch, group.cancel_scope)
        group.start_soon(run, group.cancel_scope)
    return result


class AccessMiddleware:
    """Checks the key and counts the request, before any endpoint sees it."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: ServerMetrics,
        endpoints: frozenset[str],
        api_key: str | None,
        admin_api_key: str | None,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._endpoints = endpoints
        self._api_key = api_key
        self._admin_api_key = admin_api_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, method = str(scope["path"]), str(scope["method"])
        # Unknown paths share one label: a scanner must not be able to grow the metrics without bound.
        endpoint = path if path in self._endpoints else "other"
        status = CLIENT_GONE

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._metrics.http_begins(endpoint, method)
        try:
            if self._allowed(path, method, Request(scope).headers):
                await self._app(scope, receive, counted)
            else:
                await JsonResponse({"error": {"message": "Unauthorized"}}, 401)(scope, receive, counted)
        finally:
            self._metrics.http_ends(endpoint, method, status)

    def _allowed(self, path: str, method: str, headers: Mapping[str, str]) -> bool:
        if method == "OPTIONS" or path.startswith(OPEN_PATHS):
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        keys = [self._admin_api_key]
        if path not in ADMIN_PATHS or self._admin_api_key is None:
            keys.append(self._api_key)
            if self._api_key is None:
                return True
        given_bytes = given.strip().encode() if scheme.lower() == "bearer" else b""
        # Every key is compared, in constant time: how long an answer takes tells nothing.
        matches = [hmac.compare_digest(given_bytes, key.encode()) for key in keys if key is not None]
        return any(matches)


Endpoint = Callable[[Request], Awaitable[Response]]
