"""A host over SSH: commands, files, streams and ports on one connection that comes back by itself."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

import asyncssh

from . import ssh_files
from .ssh_command import HEARTBEAT_S, command_script, login_line, new_mark, not_started, stream_script
from .ssh_destination import Destination, parse_destination
from .ssh_forward import Forward
from .ssh_link import SshLink
from .ssh_sessions import (
    FOLLOWED_WAIT_S,
    CommandSession,
    Session,
    Slot,
    Slots,
    StreamSession,
    close_channel,
    end_remotely,
    open_session,
    outcome,
)
from .transport import CommandLog, Completed, FileStat, HostError, HostTimeout, HostUnreachable, Link

RETRY_SESSION_S = 0.2
PATIENT_TRIES = 5


class SshTransport:
    """A :class:`~dflash_console.hosts.transport.Transport` over SSH.

    It connects when it is first used. A connection that is lost is noticed within 30 s and tried again by itself; meanwhile
    everything raises :class:`~dflash_console.hosts.transport.HostUnreachable` at once. :attr:`link` tells which it is.
    """

    def __init__(self, destination: str | Destination, name: str = "") -> None:
        """``destination``: what ``ssh`` would take. Raises: BadDestination."""
        self._destination = parse_destination(destination) if isinstance(destination, str) else destination
        self._name = name or str(self._destination)
        self._commands = CommandLog()
        self._link = SshLink(self._destination, self._name)
        self._slots = Slots()

    @property
    def name(self) -> str:
        return self._name

    @property
    def destination(self) -> Destination:
        return self._destination

    @property
    def commands(self) -> CommandLog:
        return self._commands

    @property
    def link(self) -> Link:
        return self._link.state

    async def connect(self) -> None:
        """Connect now, also after a refusal or before the next try is due.

        Raises:
            HostKeyUnknown: ask the user, add the key with ``trust_host_key``, connect again.
            HostUnreachable: every other reason; the message names the hop.
            HostError: the user's SSH configuration cannot be used.
        """
        await self._link.retry()

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0, changes: bool = False) -> Completed:
        return await self._run(argv, stdin=stdin, timeout=timeout, changes=changes, shown=argv)

    @contextlib.asynccontextmanager
    async def stream(self, argv: Sequence[str]) -> AsyncIterator[AsyncIterator[bytes]]:
        mark = new_mark()
        line = login_line(stream_script(argv, mark))
        begun = time.monotonic()
        async with self._slots.take(stream=True) as slot:
            session = StreamSession(mark)
            channel = await self._open(session, line, slot)
            heart = asyncio.create_task(_beat(channel))
            try:
                yield self._chunks(session, argv[0])
            finally:
                heart.cancel()
                session.drop()
                await asyncio.shield(end_remotely(channel, session))
                await close_channel(session)
                self._commands.add(argv, channel.get_exit_status(), time.monotonic() - begun)

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        return await ssh_files.read(self._run, path, offset, limit)

    async def stat(self, path: str) -> FileStat:
        return await ssh_files.stat(self._run, path)

    async def mtimes(self, paths: Sequence[str]) -> dict[str, float | None]:
        return await ssh_files.mtimes(self._run, paths)

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        await ssh_files.write(self._run, path, data, mode)

    async def make_folder(self, path: str) -> None:
        await ssh_files.make_folder(self._run, path)

    async def remove(self, path: str) -> None:
        await ssh_files.remove(self._run, path)

    async def listdir(self, path: str) -> tuple[str, ...]:
        return await ssh_files.listdir(self._run, path)

    @contextlib.asynccontextmanager
    async def forward(self, port: int, *, address: str = "127.0.0.1") -> AsyncIterator[str]:
        async def connect() -> asyncssh.SSHClientConnection:
            return (await self._link.connection()).ssh

        way = Forward(connect, address, port)
        try:
            await way.start()
            yield f"http://127.0.0.1:{way.port}"
        finally:
            await way.close()

    async def now(self) -> float:
        done = await self.run(["date", "+%s.%N"])
        try:
            # The clock was read about half the way back.
            return float(done.stdout) + done.seconds / 2
        except ValueError:
            raise HostError(f"date on {self._name} answered {done.stdout[:60]!r} instead of the time") from None

    async def close(self) -> None:
        await self._link.close()

    async def _run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float = ssh_files.FILE_TIMEOUT_S,
        shown: Sequence[str],
        changes: bool,
    ) -> Completed:
        mark = new_mark()
        line = login_line(command_script(argv, mark, stdin_size=len(stdin), timeout=timeout))
        begun = time.monotonic()
        status = None
        try:
            async with asyncio.timeout(timeout), self._slots.take() as slot:
                session = CommandSession(mark)
                channel = await self._open(session, line, slot)
                try:
                    # A command that has ended by now closed its channel; its answer is there all the same.
                    with contextlib.suppress(BrokenPipeError):
                        channel.write(stdin)
                    await session.ended.wait()
                except BaseException:
                    await asyncio.shield(end_remotely(channel, session))
                    raise
                finally:
                    await close_channel(session)
            status = outcome(session, shown[0], self._name)
        except TimeoutError:
            raise HostTimeout(f"{shown[0]} on {self._name} did not end within {timeout:g} s and was stopped") from None
        finally:
            self._commands.add(shown, status, time.monotonic() - begun, changes=changes)
        out, err = session.out.data, session.err.data
        if (reason := not_started(status, err)) is not None:
            raise HostError(f"{argv[0]} could not be started on {self._name}: {reason}")
        return Completed(tuple(argv), status, out, err, time.monotonic() - begun)

    async def _open(self, session: Session, line: str, slot: Slot) -> asyncssh.SSHClientChannel[bytes]:
        tries, begun = 0, time.monotonic()
        while True:
            tries += 1
            connection = await self._link.connection()
            try:
                channel = await open_session(connection.ssh, session, line, self._name)
                slot.open = True
                return channel
            except asyncssh.ChannelOpenError as error:
                # sshd frees a session a moment after its end: only a refusal that lasts says what it allows.
                if tries > PATIENT_TRIES and not self._slots.refused():
                    raise HostError(
                        f"{self._name} opens no session for a command: {error.reason or 'it does not say why'}"
                    ) from None
                if self._slots.all_followed and time.monotonic() - begun >= FOLLOWED_WAIT_S:
                    raise self._slots.too_few() from None
                await asyncio.sleep(RETRY_SESSION_S)

    async def _chunks(self, session: StreamSession, command: str) -> AsyncIterator[bytes]:
        while (chunk := await session.next()) is not None:
            yield chunk
        if session.cut_off:
            raise HostUnreachable(f"the connection to {self._name} broke while {command} was followed")
        if not session.answer.begun:
            said = session.answer.noise.decode("utf-8", "replace").strip()
            raise HostError(f"the login shell on {self._name} does not run commands; it says: {said[:300] or 'nothing'}")


async def _beat(channel: asyncssh.SSHClientChannel[bytes]) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            channel.write(b".")
