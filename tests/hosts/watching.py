"""Watchers on stand-in units."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from dflash_console.history import open_history
from dflash_console.hosts.link import EngineLink
from dflash_console.state import HostState
from dflash_console.watch import Watcher
from dflash_console.watch.sources import Sources

from .conftest import Unit


class Watching:
    """Watchers that are closed at the end."""

    def __init__(self, tmp_path: Path) -> None:
        self.history = open_history(tmp_path / "history.sqlite3")
        self._open: list[tuple[Watcher, EngineLink]] = []

    async def start(self, unit: Unit, interval_s: float = 0.1) -> Watcher:
        link = EngineLink(unit.transport)
        watcher = Watcher(
            "here", Sources(unit.transport, unit.service, link), interval_s=interval_s, history=self.history, history_key="k"
        )
        self._open.append((watcher, link))
        await watcher.start()
        return watcher

    async def close(self) -> None:
        for watcher, link in self._open:
            await watcher.close()
            await link.close()
        await self.history.close()


@pytest.fixture
async def watching(tmp_path: Path) -> AsyncIterator[Watching]:
    made = Watching(tmp_path)
    yield made
    await made.close()


async def when(watcher: Watcher, check: Callable[[HostState], bool], seconds: float = 60.0) -> HostState:
    async with asyncio.timeout(seconds):
        async for state in watcher.states():
            if check(state):
                return state
    raise AssertionError
