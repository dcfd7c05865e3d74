"""What an operation does while the link to its host is down: wait, within its time, and ask again.

The host goes on working meanwhile, so a lost link is no failure of the change. A link that stays dead leaves the operation open:
its journal is what the next console goes on from.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..hosts.http import EngineHttpError
from ..hosts.transport import HostUnreachable, LinkStatus, Transport
from .records import StageFailed, Verdict

T = TypeVar("T")
PAUSE_S = 0.3
"""Between two questions; the connection is tried again at its own pace."""


class LinkLost(StageFailed):
    """The link stayed dead: what was asked for may have happened, and nobody can look."""

    def __init__(self, transport: Transport, reason: str, since: float) -> None:
        began = time.strftime("%H:%M:%S", time.localtime(time.time() - (time.monotonic() - since)))
        super().__init__(
            Verdict.LINK_DOWN,
            f"unknown: the link to {transport.name} is down since {began} ({reason}); the host goes on by itself, and the next "
            "start of the console looks at what became of it (headless: apply --resume, or rollback)",
        )


def lost_link(transport: Transport, error: StageFailed) -> LinkLost | None:
    """The failure of a step that is not asked again, when it failed because the link is down; else ``None``."""
    link = transport.link
    if isinstance(error, LinkLost):
        return error
    if link.status in (LinkStatus.LOST, LinkStatus.REFUSED) or isinstance(error.__cause__, HostUnreachable):
        return LinkLost(transport, link.reason or error.reason, link.since)
    return None


class Patience:
    """Asks again what a cut link left without an answer."""

    def __init__(self, transport: Transport, limit: float, tell: Callable[[str], None] | None = None) -> None:
        """
        Args:
            limit: longest wait for the link, in seconds, where a question has no time limit of its own.
            tell: is called with what is being waited for, in words.
        """
        self._transport = transport
        self.limit = limit
        self._tell = tell

    async def ask(self, question: Callable[[], Awaitable[T]], *, until: float | None = None) -> T:
        """The answer. Only for what may be asked twice.

        Args:
            until: when to give up, by ``time.monotonic``.

        Raises:
            LinkLost: the link was down to the end of the time, or will not come back by itself.
        """
        begun = time.monotonic()
        end = begun + self.limit if until is None else until
        while True:
            try:
                return await question()
            except HostUnreachable as error:
                await self.wait(str(error), begun, end)

    async def ask_engine(self, question: Callable[[], Awaitable[T]], *, until: float | None = None) -> T:
        """As :meth:`ask`, for a request over HTTP, which a cut link ends as any broken connection.

        Raises:
            LinkLost, EngineHttpError
        """
        begun = time.monotonic()
        end = begun + self.limit if until is None else until
        while True:
            asked = time.monotonic()
            try:
                return await question()
            except HostUnreachable as error:
                await self.wait(str(error), begun, end)
            except EngineHttpError as error:
                link = self._transport.link
                if link.status is LinkStatus.UP and link.since < asked:
                    raise
                await self.wait(str(error), begun, end)

    async def wait(self, error: str, begun: float, end: float) -> None:
        """A pause before the next question. Raises: LinkLost."""
        link = self._transport.link
        down = link.status in (LinkStatus.LOST, LinkStatus.REFUSED, LinkStatus.CLOSED)
        reason = link.reason if down and link.reason else error
        since = link.since if down else begun
        if link.status in (LinkStatus.REFUSED, LinkStatus.CLOSED) or time.monotonic() >= end:
            raise LinkLost(self._transport, reason, since)
        if self._tell is not None:
            self._tell(f"the link is down since {time.monotonic() - since:.0f} s: {reason}")
        await asyncio.sleep(min(PAUSE_S, max(0.0, end - time.monotonic())))
