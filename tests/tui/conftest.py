"""What all screen tests share: one time zone, a stopped clock, no blinking cursor."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from textual import _wait, app, pilot
from textual.widgets import Input, TextArea

from dflash_console.tui.app import ConsoleApp, ConsoleSettings

from .driving import quiet
from .support import STOPPED_CLOCK, RecordedLink


@pytest.fixture(autouse=True)
def _one_time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(autouse=True)
def _no_blinking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Input, "cursor_blink", False, raising=False)
    monkeypatch.setattr(TextArea, "cursor_blink", False, raising=False)
    os.environ.pop("NO_COLOR", None)


@pytest.fixture(autouse=True)
def _a_pause_ends_when_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Textual's own pauses end when the process uses no processor, and so it looks too while other programs have them all."""

    async def idle(min_sleep: float = _wait.SLEEP_GRANULARITY, max_sleep: float = 1) -> None:
        await _wait.wait_for_idle(min_sleep, max_sleep)
        await quiet()

    for module in (app, pilot):
        monkeypatch.setattr(module, "wait_for_idle", idle)


MakeApp = Callable[..., ConsoleApp]


@pytest.fixture
def make_app(tmp_path: Path) -> MakeApp:
    """A console on a recorded host."""

    def make(link: RecordedLink, **settings: object) -> ConsoleApp:
        async def open_link() -> RecordedLink:
            return link

        values: dict[str, object] = {"exports": tmp_path / "exports", **settings}
        return ConsoleApp(open_link, ConsoleSettings(**values), clock=STOPPED_CLOCK)  # type: ignore[arg-type]

    return make
