"""Keys that come before what the last one did is over, and dialogs that nobody waits for any more."""

from __future__ import annotations

import asyncio

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, TextArea

from dflash_console.tui.app import ConsoleApp
from dflash_console.tui.fleet import HostView
from dflash_console.tui.palette import Palette
from dflash_console.tui.screens.add_host import AddHostScreen
from dflash_console.tui.screens.choose import ChooseScreen
from dflash_console.tui.screens.confirm import ConfirmScreen
from dflash_console.tui.screens.help import ExplainScreen, HelpScreen
from dflash_console.tui.screens.host_key import HostKeyScreen
from dflash_console.tui.work import begin

from .conftest import MakeApp
from .driving import header, running, until, until_marked_in_palette
from .fleets import a_fleet, key_error, make_hosts_app, open_hosts
from .support import RecordedLink, state


def type_ahead(app: ConsoleApp, *keys: str) -> None:
    """Press keys without waiting for any of them."""
    for key in keys:
        app.simulate_key(key)


async def find_in_palette(pilot: Pilot[None], words: str) -> None:
    await pilot.press("colon")
    await until(lambda: isinstance(pilot.app.screen, Palette) and bool(pilot.app.screen.query(Input)), "the palette")
    pilot.app.screen.query_one(Input).value = words
    await until_marked_in_palette(pilot.app, words)


async def test_enter_pressed_twice_in_the_palette_runs_its_command_once_and_closes_nothing_else(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("f1")
        assert isinstance(app.screen, ExplainScreen)
        await app.action_open_pane("dashboard")
        await app.run_action("command_palette")
        await pilot.pause()
        palette = app.screen
        assert isinstance(palette, Palette)
        palette.query_one(Input).value = "the keys that work here"
        await until_marked_in_palette(app, "the keys that work here")
        type_ahead(app, "enter", "enter")
        await until(lambda: isinstance(app.screen, HelpScreen), "the keys")
        await pilot.pause()
        assert [type(screen) for screen in app.screen_stack[1:]] == [ExplainScreen, HelpScreen]


async def test_enter_pressed_twice_in_the_palette_over_the_dashboard_does_not_end_the_console(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await find_in_palette(pilot, "plots: a longer span")
        before = app.model.span
        type_ahead(app, "enter", "enter", "enter")
        await until(lambda: app.model.span > before, "a longer span")
        await pilot.pause()
        assert len(app.screen_stack) == 1


async def test_page_keys_pressed_as_the_palette_opens_do_not_end_the_console(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        app.action_command_palette()
        palette = app.screen
        assert isinstance(palette, Palette)
        while not palette.query(OptionList):  # noqa: ASYNC110 - turn by turn: it is laid out soon after it is there
            await asyncio.sleep(0)
        found = palette.query_one(OptionList)
        found.add_option("a command")
        found.highlighted = 0
        assert not found.size, "not laid out yet"
        palette._action_command_list("page_up")
        await pilot.press("escape")
        assert len(app.screen_stack) == 1


async def test_enter_pressed_twice_adds_a_host_once_and_closes_nothing_else() -> None:
    fleet = a_fleet()
    app = make_hosts_app(RecordedLink(state()), fleet)
    async with running(app) as pilot:
        await open_hosts(pilot)
        await pilot.press("n")
        assert isinstance(app.screen, AddHostScreen)
        app.screen.query_one("#host-address", Input).value = "root@gpu-e"
        type_ahead(app, "enter", "enter")
        await until(lambda: "gpu-e" in fleet.rows, "the new host")
        await pilot.pause()
        assert fleet.rows["gpu-e"] == HostView("gpu-e", "root@gpu-e")
        assert len(app.screen_stack) == 1


async def test_keys_pressed_while_another_host_is_opened_find_a_screen() -> None:
    app = make_hosts_app(RecordedLink(state()))
    async with running(app) as pilot:
        await open_hosts(pilot)
        await pilot.press("down")
        app.simulate_key("enter")
        while "gpu-a" not in header(app):
            type_ahead(app, "b", "3", "1")
            assert app.pane.id, "the keys in the last line are asked of it at any moment"
            await asyncio.sleep(0)
        await pilot.press("question_mark")
        assert isinstance(app.screen, HelpScreen)


async def test_a_question_that_nobody_waits_for_is_closed_when_it_is_on_top_again() -> None:
    accepted: list[bool] = []
    app = make_hosts_app(RecordedLink(state()))
    async with running(app) as pilot:
        question = HostKeyScreen(key_error(accepted).question)
        app.push_screen(question)
        over = ConfirmScreen("Quit now?", "Something is under way.", yes="quit")
        app.push_screen(over)
        await pilot.pause()
        question.withdraw()
        await pilot.pause()
        assert app.screen is over, "what lies over it stays"
        await pilot.press("n")
        await until(lambda: len(app.screen_stack) == 1, "neither")


async def test_work_that_is_cancelled_before_it_begins_is_never_called(make_app: MakeApp) -> None:
    called: list[bool] = []

    async def work() -> None:
        called.append(True)

    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        begin(app, work, "working").cancel()
        await pilot.pause()
        assert not called
        await begin(app, work, "working").wait()
        assert called


async def test_a_dialog_that_is_closed_as_it_opens_has_nothing_to_write_on(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        for _ in range(5):
            app.push_screen(ChooseScreen("Units", "Which one?", ("a.service", "b.service")))
            app.screen.dismiss(None)
            await pilot.pause()
        assert len(app.screen_stack) == 1


def text_in(app: ConsoleApp) -> str:
    """What the field that has the focus holds."""
    field = app.focused
    return field.value if isinstance(field, Input) else field.text if isinstance(field, TextArea) else f"no field, but {field}"


@pytest.mark.parametrize("at_once", [6, 3, 2])
@pytest.mark.parametrize("opening", [("p",), ("2", "F"), ("4", "slash"), ("5", "e")])
async def test_keys_that_arrive_together_with_the_one_that_opens_a_field_are_its_text(
    make_app: MakeApp, opening: tuple[str, ...], at_once: int
) -> None:
    # Over SSH quickly typed keys come in one read: ``r`` of them asked about a restart, and ``y`` answered.
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press(*opening[:-1])
        typed = [opening[-1], *"retry"]
        type_ahead(app, *typed[:at_once])
        await pilot.pause()
        await pilot.press(*typed[at_once:])
        await until(lambda: text_in(app).removeprefix("--") == "retry", "the text")
        assert len(app.screen_stack) == 1
        assert link.controls == []
        assert not app.model.change


async def test_a_field_that_is_opened_right_after_its_screen_keeps_the_focus(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        type_ahead(app, *"5eretry")
        await pilot.pause()
        await until(lambda: text_in(app) == "retry", "the text")
        assert link.controls == []
        assert len(app.screen_stack) == 1
