"""A test host reached without SSH: commands through its namespaces, files through its root; with a link that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from dflash_console.hosts.local import LocalTransport
from dflash_console.hosts.transport import Completed, FileStat, HostUnreachable
from tests.testhost import TestHost


class InsideTransport(LocalTransport):
    """A :class:`~dflash_console.hosts.transport.Transport` into a test host."""

    def __init__(self, host: TestHost, *, user: str = "root") -> None:
        super().__init__(host.name)
        self._host = host
        self._user = user
        self._cut = asyncio.Event()
        self.up = True
        self.streams = 0
        """How many streams were begun."""

    def cut(self, *, stay_down: bool = False) -> None:
        """End every stream at once, wherever it is in a line; while it stays down nothing can be begun."""
        self.up = not stay_down
        self._cut.set()
        self._cut = asyncio.Event()

    def _inside(self, argv: Sequence[str]) -> list[str]:
        if not self.up:
            raise HostUnreachable(f"{self.name} does not answer")
        enter = ["nsenter", "--target", str(self._host.leader), "--all", "--"]
        if self._user != "root":
            enter += ["setpriv", f"--reuid={self._user}", f"--regid={self._user}", "--init-groups"]
        return [*enter, *argv]

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0, changes: bool = False) -> Completed:
        return await super().run(self._inside(argv), stdin=stdin, timeout=timeout, changes=changes)

    @contextlib.asynccontextmanager
    async def stream(self, argv: Sequence[str]) -> AsyncIterator[AsyncIterator[bytes]]:
        cut = self._cut
        self.streams += 1
        async with super().stream(self._inside(argv)) as chunks:
            yield _until(chunks, cut)

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        return await super().read(str(self._host.path(path)), offset=offset, limit=limit)

    async def stat(self, path: str) -> FileStat:
        return await super().stat(str(self._host.path(path)))

    async def listdir(self, path: str) -> tuple[str, ...]:
        return await super().listdir(str(self._host.path(path)))


async def _until(chunks: AsyncIterator[bytes], cut: asyncio.Event) -> AsyncIterator[bytes]:
    """The chunks until the cut; of the chunk that comes with it only the first half."""
    ending = asyncio.create_task(cut.wait())
    reading: asyncio.Future[bytes] | None = None
    try:
        while True:
            reading = asyncio.ensure_future(anext(chunks))
            await asyncio.wait((reading, ending), return_when=asyncio.FIRST_COMPLETED)
            if cut.is_set():
                if reading.done() and reading.exception() is None:
                    data = reading.result()
                    yield data[: len(data) // 2]
                raise HostUnreachable("the link is cut")
            try:
                data = reading.result()
            except StopAsyncIteration:
                return
            yield data
    finally:
        for task in (ending, reading):
            if task is not None:
                task.cancel()
        with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
            if reading is not None:
                await reading
