"""Bounds on a request's body: how large it may be, and how long it may take to arrive.

Without them one client could fill the memory with a body that never ends, or hold an endpoint with one that never comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 1 << 20
"""A prompt that fills a context of 8192 tokens is about 40 kB of text."""
BODY_SECONDS = 8.0
"""From the request's head to the last byte of its body. Less than the orderly end may take, which would else have to cancel
whoever still waits for one."""


class BodyError(Exception):
    """A body that is not taken; the message is one sentence for the client."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status that says so."""


class BodyLimits:
    """ASGI middleware: whoever reads the body of a request that breaks a bound gets a :class:`BodyError`."""

    def __init__(self, app: ASGIApp, *, max_bytes: int = MAX_BODY_BYTES, seconds: float = BODY_SECONDS) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = next(_content_lengths(scope), 0)
        deadline = asyncio.get_running_loop().time() + self._seconds
        size = 0
        complete = False

        async def bounded() -> Message:
            nonlocal size, complete
            if complete:  # what comes now is the client leaving, and may take as long as the answer
                return await receive()
            if declared > self._max_bytes:
                raise self._too_large()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                raise BodyError(f"The request body did not arrive within {self._seconds:g} seconds.", 408) from None
            size += len(message.get("body", b""))
            if size > self._max_bytes:
                raise self._too_large()
            complete = not message.get("more_body", False)
            return message

        await self._app(scope, bounded, send)

    def _too_large(self) -> BodyError:
        return BodyError(f"The request body is larger than {self._max_bytes} bytes; send a shorter prompt.", 413)


def _content_lengths(scope: Scope) -> Iterator[int]:
    return (int(value) for name, value in scope["headers"] if name == b"content-length" and value.isdigit())
