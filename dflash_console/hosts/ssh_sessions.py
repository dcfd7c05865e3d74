"""Sessions of one connection: how many at once, and one command's life in one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import asyncssh
from asyncssh.connection import SSHConnection

from .ssh_command import KILL_AFTER_S, Answer
from .transport import HostError, HostUnreachable

SESSIONS = 8
"""At once over one connection; sshd allows 10 by default (MaxSessions), and frees one a moment after its end."""
STREAMS = 5
"""Of these, for output that is followed: what is left is for commands."""
FOLLOWED_WAIT_S = 5.0
"""For a session while outputs that are followed hold all that may be had: they may go on for ever."""
END_WAIT_S = KILL_AFTER_S + 1.5
CLOSE_WAIT_S = 0.5
"""For the host to close a session whose answer is there: until then it counts as open there."""


@dataclass(eq=False)
class Slot:
    """The right to one session."""

    stream: bool
    """For output that is followed, which may go on for ever."""
    open: bool = False
    """The host has opened it."""


class Slots:
    """Counts sessions, and learns when a host allows fewer than is usual."""

    def __init__(self) -> None:
        self._limit = SESSIONS
        self._taken: set[Slot] = set()
        self._freed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def take(self, *, stream: bool = False) -> AsyncIterator[Slot]:
        """Wait for a slot and hold it. Raises: HostError: outputs that are followed hold all that may be had."""
        slot = Slot(stream)
        async with self._freed:
            try:
                # Commands end, and have time limits of their own.
                async with asyncio.timeout(FOLLOWED_WAIT_S if stream or self.all_followed else None):
                    await self._freed.wait_for(lambda: self._free(stream))
            except TimeoutError:
                raise self.too_few() from None
            self._taken.add(slot)
        try:
            yield slot
        finally:
            self._taken.discard(slot)
            async with self._freed:
                self._freed.notify_all()

    def _free(self, stream: bool) -> bool:
        streams = sum(slot.stream for slot in self._taken)
        return len(self._taken) < self._limit and not (stream and streams >= max(1, min(STREAMS, self._limit - 1)))

    @property
    def all_followed(self) -> bool:
        """Whether every session that the host allows is held by output that is followed."""
        return sum(slot.stream and slot.open for slot in self._taken) >= self._limit

    def too_few(self) -> HostError:
        """Why no session comes free."""
        return HostError(
            f"too many outputs are followed at once over one connection, of which {self._limit} sessions can be had: "
            "raise MaxSessions in the host's sshd_config"
        )

    def refused(self) -> bool:
        """The host refused a session: no more than are open now may be had. False = none is open, so waiting helps nobody."""
        others = sum(slot.open for slot in self._taken)
        if others < 1:
            return False
        self._limit = min(self._limit, others)
        return True


async def open_session(
    connection: asyncssh.SSHClientConnection, session: Session, line: str, name: str
) -> asyncssh.SSHClientChannel[bytes]:
    """Start ``line`` in the login shell.

    Raises:
        asyncssh.ChannelOpenError: the host opens no further session just now.
        HostUnreachable: the connection broke meanwhile.
    """
    try:
        channel, _ = await connection.create_session(
            lambda: session, line, encoding=None, request_pty=False, env=None, send_env=None
        )
    except asyncssh.ChannelOpenError as error:
        # The library uses the same error for a connection that has gone.
        if connection.is_closed():
            raise HostUnreachable(f"the connection to {name} broke: {error.reason}") from None
        raise
    except (OSError, asyncssh.Error) as error:
        raise HostUnreachable(f"the connection to {name} broke: {error}") from None
    return channel


class Session(asyncssh.SSHClientSession[bytes]):
    """One channel's life."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        """The answer is complete, or there will be none."""
        self.closed = asyncio.Event()
        self.channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._connection: SSHConnection | None = None
        self._broken = False

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self.channel, self._connection = chan, chan.get_connection()

    def connection_lost(self, exc: Exception | None) -> None:
        self._broken = exc is not None
        self.ended.set()
        self.closed.set()

    @property
    def cut_off(self) -> bool:
        """Whether the channel ended because the connection did."""
        return self._broken or (self._connection is not None and self._connection.is_closed())


class CommandSession(Session):
    """Collects both outputs of a command until each has its second mark, or the channel ends."""

    def __init__(self, mark: str) -> None:
        super().__init__()
        self.out = Answer(mark)
        self.err = Answer(mark)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        (self.err if datatype == asyncssh.EXTENDED_DATA_STDERR else self.out).feed(data)
        if self.out.status is not None and self.err.status is not None:
            self.ended.set()


class StreamSession(Session):
    """Output as it comes. What nobody has read yet is bounded: the channel is paused, and the command with it."""

    MOST = 1 << 20

    def __init__(self, mark: str) -> None:
        super().__init__()
        self.answer = Answer(mark)
        self._ready = asyncio.Event()
        self._waiting = bytearray()
        self._dropped = False

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype == asyncssh.EXTENDED_DATA_STDERR or self._dropped:
            return
        if not self.answer.begun:
            self.answer.feed(data)
            data = self.answer.data
        self._waiting += data
        if data:
            self._ready.set()
        if len(self._waiting) > self.MOST and self.channel is not None:
            self.channel.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._ready.set()

    async def next(self) -> bytes | None:
        """What has come since; waits for something. ``None`` = the command has ended and everything was read."""
        while not self._waiting:
            if self.ended.is_set():
                return None
            self._ready.clear()
            await self._ready.wait()
        chunk = bytes(self._waiting)
        self._waiting.clear()
        self._resume()
        return chunk

    def drop(self) -> None:
        """Nobody reads any more: let everything come, so that the command's end comes too."""
        self._dropped = True
        self._waiting.clear()
        self._resume()

    def _resume(self) -> None:
        if self.channel is not None and not self.ended.is_set():
            self.channel.resume_reading()


async def close_channel(session: Session) -> None:
    """Give the host a moment to close a session that has ended, then close it from here."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_WAIT_S):
            await session.closed.wait()
    if session.channel is not None:
        session.channel.close()


async def end_remotely(channel: asyncssh.SSHClientChannel[bytes], session: Session) -> None:
    """Have the command on the host ended: the end of its input is the sign. Waits a little, so that it is really gone."""
    with contextlib.suppress(OSError, asyncssh.Error):
        channel.write_eof()
        # A command that does not read its input hides the end of it; sshd passes a signal on since OpenSSH 7.9.
        channel.terminate()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(END_WAIT_S):
            await session.ended.wait()


def outcome(session: CommandSession, command: str, name: str) -> int:
    """The command's status. Raises: HostError when there is none, and why."""
    if session.out.status is not None:
        return session.out.status
    if session.cut_off:
        raise HostUnreachable(f"the connection to {name} broke while {command} ran: whether it came to its end is not known")
    if not session.out.begun:
        said = (session.out.noise + session.err.noise).decode("utf-8", "replace").strip()
        raise HostError(f"the login shell on {name} does not run commands; it says: {said[:300] or 'nothing'}")
    raise HostError(f"{command} on {name} was ended from outside before it was done")
