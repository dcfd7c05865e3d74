"""The prompt dock and the lower panels: who has the rows that both want."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from dflash_console.formats import clock
from dflash_console.tui.app import ConsoleApp
from dflash_console.tui.widgets.histogram import HistogramPanel
from dflash_console.tui.widgets.key_line import KeyLine
from dflash_console.tui.widgets.prompt_dock import PromptDock

from .conftest import MakeApp
from .driving import running, until
from .painting import lower_edge
from .support import BUSY, T0, RecordedLink, state

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


async def test_panels_that_come_back_say_at_once_since_when_the_verifies_are_counted(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state(rates=replace(BUSY, accept_since=T0))))
    async with running(app, SMALL) as pilot:
        await pilot.press("p")
        await until(lambda: not lower_panels(app), "the dock in their place")
        # Figures that come while the panels are hidden are drawn for no width.
        app.pane.show(app.model)
        app.query_one(HistogramPanel).redraw()
        await pilot.press("escape")
        await until(lambda: lower_panels(app), "the panels")
        await pilot.pause()
        assert f"since {clock(T0)} ─╯" in lower_edge(app.query_one(HistogramPanel))


@pytest.mark.parametrize("key", ["click", "tab"])
async def test_whoever_leaves_the_dock_another_way_than_by_escape_leaves_it_as_well(make_app: MakeApp, key: str) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, SMALL) as pilot:
        await send_one(app, pilot)
        if key == "click":
            await pilot.click("#decode")
        else:
            await pilot.press("tab", "tab", "tab", "tab")
        dock = app.query_one(PromptDock)
        await until(lambda: lower_panels(app) and dock.region.height == 3, "panels and a line of the dock")
        await pilot.press("p")
        await until(lambda: not lower_panels(app) and dock.region.height > 3, "the whole dock")
        await pilot.pause()
        assert app.focused is app.query_one("#dock-prompt")


@pytest.mark.parametrize("way", ["p", "click"])
async def test_a_dock_that_was_left_where_there_was_room_folds_when_there_is_none_any_more(make_app: MakeApp, way: str) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, (120, 40)) as pilot:
        await send_one(app, pilot)
        await pilot.click("#decode")
        dock = app.query_one(PromptDock)
        await until(lambda: app.focused is app.query_one("#decode"), "the focus on the plot")
        assert dock.region.height > 3
        if way == "p":
            # Typed into again: nothing is left any more.
            await pilot.click("#dock-prompt")
            await until(lambda: app.focused is app.query_one("#dock-prompt"), "the field")
        await pilot.resize_terminal(*SMALL)
        await until(lambda: lower_panels(app) is (way == "click"), "the panels, or the dock")


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
