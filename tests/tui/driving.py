"""Driving the console in tests: wait for what is expected instead of sleeping."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from textual.app import App
from textual.command import Command, CommandList, CommandPalette
from textual.pilot import Pilot

from dflash_console.tui.app import ConsoleApp
from dflash_console.tui.screens.dialog import ScrollText
from dflash_console.tui.widgets.change_bar import ChangeBar
from dflash_console.tui.widgets.header import StatusHeader

QUIET_TURNS = 3
MOST_TURNS = 20_000
"""Something that never rests, as a test's own loop may be, is not waited for."""


async def quiet() -> None:
    """Wait until nothing in the event loop can go on at once: every widget has dealt with its messages and with what followed.

    A few turns more are waited for, so that what other threads and programs have left is taken first.
    """
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    turns = 0
    for _ in range(MOST_TURNS):
        await asyncio.sleep(0)
        turns = 0 if ready else turns + 1
        if turns == QUIET_TURNS:
            return


async def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait for a condition, and for all that is done in the same breath; fails with ``what`` was expected."""
    for _ in range(int(seconds / 0.02)):
        if condition():
            await quiet()
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"expected: {what}")


@contextlib.asynccontextmanager
async def running(app: ConsoleApp, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Pilot[None]]:
    """The console, up to its first snapshot and with plots drawn."""
    async with app.run_test(size=size) as pilot:
        await until(lambda: app.model.state is not None, "a first snapshot")
        await until(lambda: app.plots_loaded, "the plotting library")
        await pilot.pause()
        yield pilot


async def until_marked_in_palette(app: App[None], words: str) -> None:
    """Wait until an entry that holds ``words`` is the marked one: before that, one of those found earlier may be."""

    def marked() -> bool:
        found = app.screen.query(CommandList).first() if isinstance(app.screen, CommandPalette) else None
        entry = found.highlighted_option if found is not None and found.display else None
        return isinstance(entry, Command) and words in str(entry.hit.text).lower()

    await until(marked, f"{words!r} in the palette")


async def choose_in_palette(pilot: Pilot[None], words: str) -> None:
    """Open the palette, type ``words``, and press enter once an entry that holds them is the marked one."""
    await pilot.press("colon", *words)
    await until_marked_in_palette(pilot.app, words)
    await pilot.press("enter")


def header(app: ConsoleApp) -> str:
    """The two lines on top."""
    return app.screen_stack[0].query_one(StatusHeader).text


def change(app: ConsoleApp) -> str:
    """The change being put together, in words; empty when there is none."""
    return app.screen_stack[0].query_one(ChangeBar).text


def notices(app: ConsoleApp) -> str:
    """All notices so far."""
    return "\n".join(notice.message for notice in app._notifications)


def text_of(app: ConsoleApp, identity: str) -> str:
    """The whole text of a scrolled part of the screen that is open."""
    return app.screen.query_one(identity, ScrollText).text
