"""A connection that is opened when it is first needed and comes back by itself when it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import replace

from ..tasks import end_task
from .ssh_config import BadSshConfig
from .ssh_connect import Connection, open_connection
from .ssh_destination import Destination
from .ssh_errors import AuthenticationFailed, HostKeyChanged, HostKeyRefused, HostKeyUnknown, LinkDown
from .transport import HostError, HostUnreachable, Link, LinkStatus

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
_FINAL = (AuthenticationFailed, HostKeyChanged, HostKeyUnknown, HostKeyRefused, BadSshConfig)
"""Trying again by itself would mend nothing, and a host bans those who try too often."""


class SshLink:
    """One host's connection. Everything that wants to talk asks :meth:`connection` for it."""

    def __init__(self, destination: Destination, name: str) -> None:
        self._destination = destination
        self._name = name
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._attempt: asyncio.Future[Connection] | None = None
        self._error: HostError | None = None
        self._link = Link(LinkStatus.NEW, time.monotonic())

    @property
    def state(self) -> Link:
        return self._link

    async def connection(self) -> Connection:
        """The open connection; the first call opens it.

        Raises:
            HostUnreachable: it cannot be opened, or was lost and is not up again; the message says why and when it is tried.
            BadSshConfig: the user's SSH configuration cannot be used.
        """
        async with self._lock:
            if self._link.status is LinkStatus.NEW:
                self._up(await self._open())
        attempt = self._attempt
        if attempt is not None:
            # Just being tried: the answer comes within the connect timeout.
            with contextlib.suppress(HostError):
                await asyncio.shield(attempt)
        if self._connection is not None and self._link.status is LinkStatus.UP:
            return self._connection
        if self._link.status is LinkStatus.REFUSED and self._error is not None:
            raise self._error
        raise LinkDown(self._down_words())

    async def retry(self) -> None:
        """Connect now, without waiting for the next try; also after a refusal. Raises: as :meth:`connection`."""
        if self._link.status in (LinkStatus.LOST, LinkStatus.REFUSED):
            await self._stop_keeper()
            self._link = Link(LinkStatus.NEW, time.monotonic())
        await self.connection()

    async def close(self) -> None:
        self._link = Link(LinkStatus.CLOSED, time.monotonic())
        await self._stop_keeper()
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _stop_keeper(self) -> None:
        keeper, self._keeper = self._keeper, None
        await end_task(keeper)

    async def _open(self) -> Connection:
        """One attempt, which others that need the connection can wait for."""
        attempt = asyncio.ensure_future(open_connection(self._destination))
        self._attempt = attempt
        try:
            return await attempt
        finally:
            self._attempt = None

    def _up(self, connection: Connection) -> None:
        self._connection, self._error = connection, None
        self._link = Link(LinkStatus.UP, time.monotonic(), notices=connection.ignored)
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name=f"link to {self._name}")

    async def _keep(self) -> None:
        """Wait for the end of the connection, then for a new one, for as long as the link is wanted."""
        while self._connection is not None:
            await self._connection.ssh.wait_closed()
            lost, self._connection = self._connection, None
            reason = lost.lost_because or "the host closed the connection"
            self._link = Link(LinkStatus.LOST, time.monotonic(), reason, notices=lost.ignored)
            await lost.close()
            delay = FIRST_DELAY_S
            while True:
                # Many consoles that lost one host must not all come back at once.
                pause = delay * random.uniform(0.75, 1.25)
                self._link = replace(self._link, next_try=time.monotonic() + pause)
                await asyncio.sleep(pause)
                self._link = replace(self._link, next_try=None)
                delay = min(delay * 2, LONGEST_DELAY_S)
                try:
                    self._up(await self._open())
                    break
                except _FINAL as error:
                    self._error, self._keeper = error, None
                    self._link = Link(LinkStatus.REFUSED, time.monotonic(), str(error), notices=lost.ignored)
                    return
                except HostUnreachable as error:
                    self._link = replace(self._link, reason=str(error))

    def _down_words(self) -> str:
        link, now = self._link, time.monotonic()
        if link.status is LinkStatus.CLOSED:
            return f"the connection to {self._name} is closed"
        words = f"the connection to {self._name} was lost {now - link.since:.0f} s ago: {link.reason}"
        return words if link.next_try is None else f"{words}; next try in {max(0.0, link.next_try - now):.0f} s"
