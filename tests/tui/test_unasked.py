"""A dialog that opens by itself takes nothing for an answer that was typed for something else."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import TextArea

from dflash_console.tui.course import Course
from dflash_console.tui.screens.apply import ApplyScreen
from dflash_console.tui.screens.unfinished import UnfinishedScreen

from .driving import until
from .resting import Rests, rests

__all__ = ["rests"]


class Writing(App[None]):
    """Somebody writes a prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[object] = []

    def compose(self) -> ComposeResult:
        yield TextArea()


async def typed(pilot: Pilot[None], text: str) -> None:
    """Faster than a dialog could be read."""
    for letter in text:
        await pilot.press(letter)


async def test_what_is_typed_on_answers_nothing_and_a_rest_makes_it_a_question(rests: Rests) -> None:
    app = Writing()
    async with app.run_test() as pilot:
        await pilot.press("H", "e")
        app.push_screen(UnfinishedScreen("A change was cut off"), app.answers.append)
        await typed(pilot, "urgent rubbish")
        await pilot.press("enter")
        assert isinstance(app.screen, UnfinishedScreen)
        assert app.answers == []
        rests.come()
        await pilot.press("u")
        assert app.answers == [False]


async def test_a_key_begins_the_rest_anew(rests: Rests) -> None:
    app = Writing()
    async with app.run_test() as pilot:
        app.push_screen(UnfinishedScreen("A change was cut off"), app.answers.append)
        await pilot.pause()
        for _ in range(3):
            before = rests[-1]
            await pilot.press("x")
            assert before.stopped
            before.come()
        await pilot.press("r")
        assert app.answers == []
        assert not rests[-1].stopped


async def test_the_rest_comes_by_itself() -> None:
    app = Writing()
    async with app.run_test():
        dialog = UnfinishedScreen("A change was cut off")
        app.push_screen(dialog)
        assert not dialog.takes_answers
        await until(lambda: dialog.takes_answers, "a rest")


async def test_escape_closes_it_at_any_time() -> None:
    app = Writing()
    async with app.run_test() as pilot:
        app.push_screen(UnfinishedScreen("A change was cut off"), app.answers.append)
        await pilot.press("x", "escape")
        assert app.answers == [None]


@pytest.mark.parametrize(
    ("unasked", "closed"),
    [(True, False), (False, True)],
    ids=["opened by itself", "asked for"],
)
async def test_stages_that_open_by_themselves_are_not_closed_by_a_stray_enter(unasked: bool, closed: bool, rests: Rests) -> None:
    app = Writing()
    async with app.run_test() as pilot:
        app.push_screen(ApplyScreen(Course("starting", "here"), unasked=unasked))
        await pilot.pause()
        await pilot.press("enter")
        assert isinstance(app.screen, ApplyScreen) is not closed


async def test_the_keys_are_named_once_they_do_something(rests: Rests) -> None:
    app = Writing()
    async with app.run_test() as pilot:
        dialog = UnfinishedScreen("A change was cut off")
        app.push_screen(dialog)
        await pilot.pause()
        enabled = {key: active.enabled for key, active in dialog.active_bindings.items()}
        assert (enabled["u"], enabled["escape"]) == (False, True)
        rests.come()
        await pilot.pause()
        assert dialog.active_bindings["u"].enabled
