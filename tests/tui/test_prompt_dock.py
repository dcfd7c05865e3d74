"""The prompt dock and the lower panels: who has the rows that both want."""

from __future__ import annotations

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from dflash_console.tui.app import ConsoleApp
from dflash_console.tui.widgets.histogram import HistogramPanel
from dflash_console.tui.widgets.key_line import KeyLine
from dflash_console.tui.widgets.prompt_dock import PromptDock

from .conftest import MakeApp
from .driving import running, until
from .support import RecordedLink, state

SMALL = (80, 24)


def lower_panels(app: ConsoleApp) -> bool:
    return app.query_one(HistogramPanel).region.height > 0


async def send_one(app: ConsoleApp, pilot: Pilot[None]) -> None:
    await pilot.press("p", *"a b", "enter")
    await until(lambda: "commit 3.00" in app.query_one(PromptDock).text, "the answer's figures")


async def test_the_dock_takes_the_lower_panels_place_in_a_small_terminal_while_it_is_typed_into(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, SMALL) as pilot:
        assert lower_panels(app)
        await pilot.press("p")
        await until(lambda: not lower_panels(app), "the dock in their place")


async def test_escape_brings_the_lower_panels_back_and_leaves_a_line_of_the_answer(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, SMALL) as pilot:
        await send_one(app, pilot)
        await pilot.press("escape")
        dock = app.query_one(PromptDock)
        await until(lambda: lower_panels(app) and dock.region.height == 3, "panels and a line of the dock")
        assert dock.region.bottom <= app.query_one(KeyLine).region.y
        assert "commit 3.00" in dock.text
        assert "\n" not in dock.text
        await pilot.press("p")
        await until(lambda: not lower_panels(app) and dock.region.height > 3, "the whole dock")
        assert app.focused is app.query_one("#dock-prompt")


async def test_of_several_answers_the_line_that_stays_is_their_number(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, SMALL) as pilot:
        await pilot.press("p")
        app.query_one("#dock-copies", Input).value = "3"
        await pilot.press("enter")
        await until(lambda: len(app.query_one(PromptDock).text.split("\n")) == 3, "three answers")
        await pilot.press("escape")
        await until(lambda: "3 answers, 3 ended" in app.query_one(PromptDock).text, "how many there are")


async def test_a_dock_from_which_nothing_was_sent_goes_with_escape(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, SMALL) as pilot:
        await pilot.press("p", "escape")
        await until(lambda: lower_panels(app), "the panels")
        assert not app.query_one(PromptDock).display


async def test_where_no_line_has_room_the_dock_hides_and_p_shows_its_answers_again(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, (80, 21)) as pilot:
        await send_one(app, pilot)
        await pilot.press("escape")
        await until(lambda: lower_panels(app), "the panels")
        assert not app.query_one(PromptDock).display
        await pilot.press("p")
        assert "commit 3.00" in app.query_one(PromptDock).text


@pytest.mark.parametrize("size", [(120, 40), (80, 40)])
async def test_where_there_is_room_for_both_escape_changes_neither(make_app: MakeApp, size: tuple[int, int]) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, size) as pilot:
        await pilot.press("p")
        dock = app.query_one(PromptDock)
        await until(lambda: dock.region.height > 0, "the dock")
        assert lower_panels(app)
        await pilot.press("escape")
        await pilot.pause()
        assert dock.display
        assert lower_panels(app)
