"""A journal to read: units whose logs are known, on a real host, and a follower that keeps what it is given."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable

from dflash_console.evidence.journal import LogLine
from dflash_console.hosts.journald import Journal
from tests.testhost import TestHost

_numbers = itertools.count(1)


def install(host: TestHost, program: str, *settings: str) -> str:
    """A unit of its own whose main process is a Python program; not started."""
    name = f"log{next(_numbers)}.service"
    script = f"/root/{name}.py"
    host.path(script).write_text("import sys, time\n" + program)
    lines = ["[Unit]", "StartLimitIntervalSec=0", "[Service]", f"ExecStart=/usr/bin/python3 -u {script}", *settings]
    host.install_unit(name, "\n".join(lines) + "\n")
    return name


async def on(host: TestHost, *argv: str) -> str:
    done = await asyncio.to_thread(host.exec, *argv)
    return done.stdout.decode()


@contextlib.asynccontextmanager
async def running(host: TestHost, unit: str) -> AsyncIterator[None]:
    """Start a unit, and stop it in the end."""
    await on(host, "systemctl", "start", unit)
    try:
        yield
    finally:
        await on(host, "systemctl", "stop", unit)


async def invocation_of(host: TestHost, unit: str) -> str:
    return (await on(host, "systemctl", "show", "--property=InvocationID", "--value", unit)).strip()


class Collected:
    """What one follower was given, so far."""

    def __init__(self) -> None:
        self.batches: list[tuple[LogLine, ...]] = []
        self._news = asyncio.Event()

    @property
    def lines(self) -> list[LogLine]:
        return [line for batch in self.batches for line in batch]

    def texts(self, origin: str = "engine") -> list[str]:
        return [line.text for line in self.lines if line.origin == origin]

    def take(self, batch: tuple[LogLine, ...]) -> None:
        self.batches.append(batch)
        self._news.set()

    async def until(self, met: Callable[[], bool], timeout: float = 30.0) -> None:
        async with asyncio.timeout(timeout):
            while not met():
                self._news.clear()
                await self._news.wait()


@contextlib.asynccontextmanager
async def following(journal: Journal, *, cursor: str | None = None, invocation_id: str | None = None) -> AsyncIterator[Collected]:
    collected = Collected()

    async def follow() -> None:
        async for batch in journal.batches(cursor=cursor, invocation_id=invocation_id):
            collected.take(batch)

    task = asyncio.create_task(follow())
    try:
        yield collected
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
