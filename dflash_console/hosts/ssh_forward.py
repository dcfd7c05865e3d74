"""A port of the host, answering on a port of this machine.

The local port behaves as the far one does: where nobody listens there, nobody listens here, so that a client sees the same
refusal as it would beside the engine. While the link is down, connections break instead: a refusal would say that the engine
is not there.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Protocol

import asyncssh

from .transport import HostError

PROBE_S = 1.0
"""Between two looks whether somebody listens on the far side by now."""
OPEN_TIMEOUT_S = 10.0
BLOCK = 65_536

Connect = Callable[[], Awaitable[asyncssh.SSHClientConnection]]


class Forward:
    """One forwarded port. Open with :meth:`start`, end with :meth:`close`, which also ends what runs through it."""

    def __init__(self, connect: Connect, address: str, port: int) -> None:
        self._connect = connect
        self._far = (address, port)
        self._port = 0
        self._server: asyncio.Server | None = None
        self._closed_socket: socket.socket | None = None
        self._prober: asyncio.Task[None] | None = None
        self._pipes: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Of this machine, on 127.0.0.1."""
        return self._port

    async def start(self) -> None:
        """Raises: HostError when the host cannot be reached, or this machine has no port left."""
        if await self._far_listens():
            await self._listen()
        else:
            self._refuse()

    async def close(self) -> None:
        tasks = [task for task in (self._prober, *self._pipes) if task is not None]
        for task in tasks:
            task.cancel()
        self._stop_listening()
        if self._closed_socket is not None:
            self._closed_socket.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _far_listens(self) -> bool:
        """Whether somebody accepts connections there; a link that breaks meanwhile says nothing about that: then True.

        Raises:
            HostError: the link is down, or the host forbids forwarding.
        """
        connection = await self._connect()
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                _, writer = await connection.open_connection(*self._far, encoding=None)
        except asyncssh.ChannelOpenError as error:
            if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
                raise HostError(
                    f"the host forbids to forward its port {self._far[1]}: allow it with AllowTcpForwarding in its sshd_config"
                ) from None
            return not _refused(error, connection)
        except (TimeoutError, OSError, asyncssh.Error):
            return True
        writer.close()
        return True

    async def _listen(self) -> None:
        held, self._closed_socket = self._closed_socket, None
        if held is not None:
            held.close()
        try:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port, reuse_address=True)
        except OSError as error:
            raise HostError(f"no local port for the engine's: {error.strerror}") from None
        self._port = self._server.sockets[0].getsockname()[1]

    def _stop_listening(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _refuse(self) -> None:
        """Hold the port without listening: connections are refused, and nobody else gets it."""
        self._stop_listening()
        if self._closed_socket is None:
            self._closed_socket = socket.socket()
            self._closed_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._closed_socket.bind(("127.0.0.1", self._port))
            self._port = self._closed_socket.getsockname()[1]
        if self._prober is None:
            self._prober = asyncio.create_task(self._probe())

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(PROBE_S)
            with contextlib.suppress(HostError):
                if await self._far_listens():
                    await self._listen()
                    self._prober = None
                    return

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pipes.add(task)
        try:
            await self._pass_on(reader, writer)
        except asyncio.CancelledError:
            # Closing the forward ends its connections; the server that made this task wants no news of that.
            pass
        finally:
            self._pipes.discard(task)
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connection = await self._connect()
        except HostError:
            return
        try:
            async with asyncio.timeout(OPEN_TIMEOUT_S):
                far_reader, far_writer = await connection.open_connection(*self._far, encoding=None)
        except asyncssh.ChannelOpenError as error:
            if _refused(error, connection):
                self._refuse()
            return
        except (TimeoutError, OSError, asyncssh.Error):
            return
        try:
            up = asyncio.create_task(_copy(reader, far_writer))
            down = asyncio.create_task(_copy(far_reader, writer))
            # The far side's end is the end; the near side may close its half first and still wait for the answer.
            try:
                await down
            finally:
                up.cancel()
                down.cancel()
                await asyncio.gather(up, down, return_exceptions=True)
            with contextlib.suppress(OSError):
                await writer.drain()
        finally:
            far_writer.close()
        # An engine that has gone hangs up: then the next connection is to be refused, as it would be beside it.
        with contextlib.suppress(HostError):
            if self._server is not None and not reader.at_eof() and not await self._far_listens():
                self._refuse()


class _Source(Protocol):
    async def read(self, n: int, /) -> bytes: ...


class _Sink(Protocol):
    def write(self, data: bytes, /) -> None: ...
    async def drain(self) -> None: ...
    def write_eof(self) -> None: ...


async def _copy(source: _Source, sink: _Sink) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await source.read(BLOCK):
            sink.write(data)
            await sink.drain()
        sink.write_eof()


def _refused(error: asyncssh.ChannelOpenError, connection: asyncssh.SSHClientConnection) -> bool:
    """Whether nobody listens on the far side. The library uses the same code when the connection itself has gone."""
    return error.code == asyncssh.OPEN_CONNECT_FAILED and not connection.is_closed()
