"""Taking pictures of screens: the fixture of pytest-textual-snapshot, and the way to the picture."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from textual.app import App
from textual.pilot import Pilot

from dflash_console.tui.app import ConsoleApp

from .driving import until

Press = Callable[[Pilot[None]], Awaitable[None]]


class SnapCompare(Protocol):
    """The fixture of pytest-textual-snapshot, as far as it is used here."""

    def __call__(self, app: App[None], *, terminal_size: tuple[int, int], run_before: Press) -> bool: ...


def after(*keys: str, until_shown: Callable[[ConsoleApp], bool] | None = None) -> Press:
    """Wait for snapshot and plots, then press keys."""

    async def run(pilot: Pilot[None]) -> None:
        app = pilot.app
        assert isinstance(app, ConsoleApp)
        await until(lambda: app.model.state is not None and app.plots_loaded, "the first snapshot")
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            # A key may change the height of what lies below; a dialog opened in the same breath would freeze the old picture.
            await pilot.pause(0.2)
            await pilot.pause()
        if until_shown is not None:
            await until(lambda: until_shown(app), "the screen")
        await pilot.pause(0.3)
        await pilot.pause()

    return run
