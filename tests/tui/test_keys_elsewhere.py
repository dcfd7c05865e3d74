"""Keys that change the server, on screens that do not show what is changed: they do nothing, and say so."""

from __future__ import annotations

import pytest

from dflash_console.tui.keymap import EDITING_PANES, PANES
from dflash_console.tui.screens import make_pane
from dflash_console.tui.screens.dashboard import DashboardPane
from dflash_console.tui.screens.help import HelpScreen
from dflash_console.tui.widgets.key_line import KeyLine
from dflash_console.tui.widgets.prompt_editor import PromptEditor

from .conftest import MakeApp
from .driving import notices, running, until
from .support import RecordedLink, state, way_back


def link_with_a_way_back() -> RecordedLink:
    link = RecordedLink(state())
    link.earlier = way_back(at=16)
    return link


@pytest.mark.parametrize(
    ("key", "name"), [("u", "roll back"), ("r", "restart"), ("X", "stop the service")], ids=["roll back", "restart", "stop"]
)
async def test_on_the_list_of_hosts_it_is_said_where_they_work(make_app: MakeApp, key: str, name: str) -> None:
    link = link_with_a_way_back()
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("7", key)
        words = f"{key} ({name}) works on Dashboard (1), Configure (2) and Truth (3), for the host that they show: embedded."
        await until(lambda: words in notices(app), "the reason")
        assert len(app.screen_stack) == 1
        assert link.controls == []


@pytest.mark.parametrize("pane", ["4", "5"], ids=["logs", "playground"])
async def test_on_other_screens_too(make_app: MakeApp, pane: str) -> None:
    app = make_app(link_with_a_way_back())
    async with running(app) as pilot:
        await pilot.press(pane, "escape", "u")
        await until(lambda: "u (roll back) works on" in notices(app), "the reason")


async def test_with_the_users_own_keys(make_app: MakeApp) -> None:
    app = make_app(link_with_a_way_back(), keymap={"operation.rollback": "Z", "screen.truth": "t"})
    async with running(app) as pilot:
        await pilot.press("7", "u", "Z")
        await until(lambda: "Z (roll back) works on Dashboard (1), Configure (2) and Truth (t)" in notices(app), "the reason")
        assert "u (roll back)" not in notices(app)


async def test_what_is_typed_into_a_field_is_text(make_app: MakeApp) -> None:
    app = make_app(link_with_a_way_back())
    async with running(app) as pilot:
        await pilot.press("5")
        editor = app.query_one("#prompt", PromptEditor)
        editor.focus()
        await pilot.press(*"ruX")
        assert "ruX" in editor.text
        assert "works on" not in notices(app)


async def test_a_key_of_a_dialog_is_the_dialogs(make_app: MakeApp) -> None:
    app = make_app(link_with_a_way_back())
    async with running(app) as pilot:
        await pilot.press("7", "question_mark")
        await until(lambda: isinstance(app.screen, HelpScreen), "the keys")
        await pilot.press("u")
        await pilot.pause()
        assert "works on" not in notices(app)


async def test_they_are_not_named_among_the_keys_that_work(make_app: MakeApp) -> None:
    app = make_app(link_with_a_way_back())
    async with running(app) as pilot:
        await pilot.press("7", "u")
        await pilot.pause()
        assert "roll back" not in str(app.query_one(KeyLine).render())


async def test_before_the_host_answers_that_is_said(make_app: MakeApp) -> None:
    app = make_app(RecordedLink())
    async with app.run_test() as pilot:
        await pilot.press("u")
        await until(lambda: "u (roll back) has nothing to work on: not connected to a host yet." in notices(app), "the reason")


async def test_the_screens_that_are_named_are_those_that_edit(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app):
        panes = {name: DashboardPane if name == "dashboard" else type(make_pane(name, app.model)) for name in PANES}
        assert tuple(name for name, pane in panes.items() if pane.edits) == EDITING_PANES
