"""Operations and the screen that shows their stages: opened, closed and opened again, whatever arrives meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dflash_console.apply import ApplyResult, Stage, StageEvent, StageStatus, Verdict
from dflash_console.hosts.service import RunState
from dflash_console.plan import Mode
from dflash_console.tui import messages
from dflash_console.tui.course import Course
from dflash_console.tui.link import Control
from dflash_console.tui.screens.apply import ApplyScreen
from dflash_console.tui.screens.plan import PlanScreen

from .conftest import MakeApp
from .driving import notices, running, until
from .painting import Painting
from .support import RecordedLink, state

EVENT = StageEvent("op", Stage("weights", StageStatus.RUNNING, evidence="4 of 9 shards"), ("weights", "ready"), 1.0)
DONE = ApplyResult(True, Verdict.CONFIRMED, "", "op", Mode.RESTART, ())
FAILED = replace(DONE, confirmed=False, verdict=Verdict.PROCESS_DIED, reason="the port is held by python (pid 77)")


def held_link(*, run: RunState = RunState.RUNNING) -> RecordedLink:
    """A host whose operations go on until ``hold`` is set."""
    link = RecordedLink(state(run=run))
    link.stages = (EVENT,)
    link.result = DONE
    link.hold.clear()
    return link


async def test_stages_that_were_closed_are_painted_when_they_are_opened_again(make_app: MakeApp) -> None:
    link = held_link()
    app = make_app(link)
    painting = Painting(app)
    async with running(app) as pilot:
        app.operations.control(Control.RESTART)
        for _ in range(3):
            await until(lambda: "4 of 9 shards" in painting.text, "the stages")
            await pilot.press("enter")
            await until(lambda: "Restarting on" not in painting.text, "the dashboard")
            await pilot.press("r")
        link.hold.set()
        await until(lambda: "✓ confirmed" in painting.text and "took" in painting.text, "the end, painted")
        await until(lambda: painting.differences() == "", "nothing that stood still")


@pytest.mark.parametrize("turns", [0, 1, 2, 8])
async def test_stages_opened_again_while_they_are_still_being_closed_are_painted(make_app: MakeApp, turns: int) -> None:
    link = held_link()
    app = make_app(link)
    painting = Painting(app)
    async with running(app):
        app.operations.control(Control.RESTART)
        await until(lambda: "4 of 9 shards" in painting.text, "the stages")
        app.screen.dismiss(None)
        for _ in range(turns):
            await asyncio.sleep(0)
        app.operations.show()
        await until(lambda: "4 of 9 shards" in painting.text, "the stages again")
        link.hold.set()
        await until(lambda: "✓ confirmed" in painting.text, "the end, painted")


async def test_a_start_of_the_consoles_own_that_fails_after_its_stages_were_closed_shows_them_and_paints_them(
    make_app: MakeApp,
) -> None:
    link = held_link(run=RunState.STOPPED)
    link.result = FAILED
    app = make_app(link)
    painting = Painting(app)
    async with running(app) as pilot:
        await until(lambda: app.model.busy == "starting", "the start")
        await pilot.press("r")
        await until(lambda: "4 of 9 shards" in painting.text, "the stages")
        await pilot.press("enter")
        await until(lambda: "Starting on" not in painting.text, "the dashboard")
        link.hold.set()
        await until(lambda: "the port is held by python (pid 77)" in painting.text, "the cause")
        await pilot.press("escape")
        await until(lambda: "Starting on" not in painting.text, "the dashboard")
        await until(lambda: painting.differences() == "", "nothing that stood still")


async def test_stages_are_kept_while_no_screen_shows_them(make_app: MakeApp) -> None:
    link = held_link()
    app = make_app(link)
    async with running(app) as pilot:
        app.operations.control(Control.RESTART)
        app.screen.dismiss(None)
        await pilot.pause()
        assert not isinstance(app.screen, ApplyScreen)
        await pilot.press("r")
        await until(lambda: isinstance(app.screen, ApplyScreen) and "4 of 9 shards" in app.screen.text, "the stages")


async def test_the_first_end_of_an_operation_counts(make_app: MakeApp) -> None:
    link = held_link()
    app = make_app(link)
    async with running(app) as pilot:
        app.operations.control(Control.RESTART)
        await until(lambda: isinstance(app.screen, ApplyScreen) and "4 of 9 shards" in app.screen.text, "the stages")
        screen = app.screen
        assert isinstance(screen, ApplyScreen)
        await pilot.press("x", "x")
        await until(lambda: "stopped waiting" in screen.text, "its end")
        app.operations.control(Control.RESTART)
        app.post_message(messages.OperationEnded(app.operations, screen.course, DONE))
        await pilot.pause()
        assert app.model.busy == "restarting", "an end that came late is not the end of what runs now"
        assert "stopped waiting" in screen.text


def test_the_time_that_an_operation_took_stands_still() -> None:
    course = Course("restarting", "gpu-a")
    course.take_result(None, "the link is down")
    first = course.seconds
    assert course.seconds == first


async def test_a_plan_is_not_applied_while_another_operation_runs(make_app: MakeApp) -> None:
    link = held_link()
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("b", "a")
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        app.operations.control(Control.RESTART, quiet=True)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ApplyScreen), "the stages of what runs")
        assert not link.applied
        assert "restarting is under way" in notices(app)
        assert app.model.change, "the edits are still there"
