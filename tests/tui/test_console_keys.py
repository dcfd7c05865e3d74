"""Keys, the palette and themes: what every screen offers, says of itself, and lets the user change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash_console.tui.screens.dialog import ScrollText
from dflash_console.tui.screens.help import ExplainScreen, HelpScreen
from dflash_console.tui.widgets.key_line import KeyLine
from dflash_console.tui.widgets.log_view import LogView
from dflash_console.tui.widgets.plot_panel import PlotPanel

from .conftest import MakeApp
from .driving import choose_in_palette, notices, running, until
from .support import RecordedLink, state


def styles_of(panel: PlotPanel) -> str:
    """All styles of the panel's text."""
    return " ".join(str(span.style) for line in panel._lines for span in line.spans)


async def test_f1_explains_the_panel_in_focus(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        app.query_one("#commit").focus()
        await pilot.press("f1")
        assert isinstance(app.screen, ExplainScreen)
        shown = app.screen.query_one("#explanation").text  # type: ignore[attr-defined]
        assert "never the rate" in shown.replace("\n", " ")
        await pilot.press("escape")
        assert not isinstance(app.screen, ExplainScreen)


async def test_question_mark_lists_the_keys_with_the_ids_to_change_them(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)
        shown = app.screen.query_one("#keys").text  # type: ignore[attr-defined]
        for identity in ("change.budget_up", "operation.apply", "plot.longer", "prompt.open", "screen.truth"):
            assert identity in shown


@pytest.mark.parametrize("pane", ["1", "2", "3", "4", "5", "7"])
async def test_each_key_has_a_line_of_its_own_on_a_small_terminal(make_app: MakeApp, pane: str) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app, size=(80, 24)) as pilot:
        await pilot.press(pane, "question_mark")
        await until(lambda: isinstance(app.screen, HelpScreen), "the keys")
        await pilot.pause()
        keys = app.screen.query_one("#keys", ScrollText)
        rows = [row for row in keys.text.split("\n") if row.startswith("  ")]
        assert max(map(len, rows)) <= keys.scrollable_content_region.width
        assert all("  " in row.strip() for row in rows)


async def test_the_last_line_shows_keys_that_work_and_a_click_presses_them(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        line = app.query_one(KeyLine)
        shown = str(line.render())
        assert "budget" in shown
        assert "apply" not in shown
        await pilot.click(KeyLine, offset=(shown.index("b budget") if "b budget" in shown else shown.index("bB budget"), 0))
        await until(lambda: bool(app.model.change), "the click to step the budget")
        assert "apply" in str(line.render())


async def test_numbers_open_the_screens_and_so_does_a_click(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        for number, name in enumerate(("dashboard", "configure", "truth", "logs", "playground"), start=1):
            await pilot.press(str(number))
            assert app.pane.id == name
        await pilot.click("#tabs", offset=(4, 0))
        await until(lambda: app.pane.id == "dashboard", "a click on the first name")


async def test_the_palette_finds_every_action_by_name(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await choose_in_palette(pilot, "truth")
        await until(lambda: app.pane.id == "truth", "the truth table")


async def test_the_palette_offers_what_the_open_screen_can_do_and_does_it(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await choose_in_palette(pilot, "tree budget: a step larger")
        await until(lambda: app.model.change.values == {"tree_budget": 12}, "the edit")
        await pilot.press("4")
        await choose_in_palette(pilot, "wrap long lines")
        await until(lambda: app.query_one(LogView).wrapped, "wrapped lines")


async def test_a_theme_can_be_chosen_and_changes_the_plots(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()), theme="light")
    async with running(app):
        assert app.theme == "ddtree-light"
        assert "#1f5fbf" in styles_of(app.query_one("#decode", PlotPanel))
        app.theme = "ddtree-high-contrast"
        await until(lambda: "#00d7ff" in styles_of(app.query_one("#decode", PlotPanel)), "the plot in the new colours")


async def test_an_unknown_theme_is_said_and_the_console_opens(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()), theme="sparkle")
    async with running(app):
        assert app.theme == "ddtree-dark"
        assert "no theme sparkle" in notices(app)


async def test_keys_can_be_changed_by_id_and_a_ctrl_chord_alone_is_refused(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()), keymap={"change.budget_up": "v", "operation.apply": "ctrl+g", "no.such": "x"})
    async with running(app) as pilot:
        await pilot.press("v")
        assert app.model.change.values == {"tree_budget": 12}
        assert "ctrl chord alone" in notices(app)
        await until(lambda: "there is no action no.such" in notices(app), "what is wrong with the keymap")


async def test_q_leaves_and_closes_the_host(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("q")
    assert link.closed
    assert app.own_units == {"ddtree-embedded"}, "what is told to run on"


async def test_a_server_that_is_not_the_consoles_own_is_none_of_its_engines(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(replace(state(), host="gpu-a", embedded=False)))
    async with running(app) as pilot:
        await pilot.press("q")
    assert not app.own_units
