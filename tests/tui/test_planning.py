"""A plan that takes long to make: what is told of it, how it is given up, and that it is made once."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest
from textual.app import App
from textual.widgets import Static

from dflash_console.state import HostState
from dflash_console.tui import planning
from dflash_console.tui.screens.plan import PlanScreen
from dflash_console.tui.widgets.change_bar import ChangeBar
from dflash_console.tui.widgets.truth_view import TruthView

from .conftest import MakeApp
from .driving import change, notices, running, text_of, until
from .recorded import HOT
from .support import RecordedLink, state, way_back


class HeldLink(RecordedLink):
    """A host on which plans are made for as long as ``hold`` is clear."""

    def __init__(self, snapshot: HostState | None = None) -> None:
        super().__init__(snapshot or state())
        self.earlier = way_back(at=16)
        self.begun = 0
        self.hold.clear()

    async def while_planning(self) -> None:
        self.begun += 1
        await self.hold.wait()


def line(app: App[None]) -> str:
    """The line above the keys, as it is painted; empty while it is hidden."""
    bar = app.screen_stack[0].query_one(ChangeBar)
    return str(bar.render()) if bar.display else ""


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
@pytest.mark.parametrize(
    ("keys", "of"), [(("b", "a"), "being made: tree budget 8 → 12"), (("u",), "being made: a roll-back")], ids=["a", "u"]
)
async def test_a_plan_that_takes_long_is_told_of_in_one_line_with_the_way_out(
    make_app: MakeApp, keys: tuple[str, ...], of: str, size: tuple[int, int]
) -> None:
    link = HeldLink()
    app = make_app(link)
    async with running(app, size=size) as pilot:
        await pilot.press(*keys)
        await until(lambda: of in line(app), "the line of the plan", seconds=5)
        assert "esc gives it up" in line(app)
        assert len(line(app)) <= size[0]
        assert len(app.screen_stack) == 1
        link.hold.set()
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        assert "being made" not in line(app)


@pytest.mark.parametrize(("key", "of"), [("e", "carrying the drop-in over"), ("E", "removing the console's drop-in")])
async def test_the_plans_of_a_drop_in_are_told_of_and_given_up_too(make_app: MakeApp, key: str, of: str) -> None:
    found = state()
    assert found.config is not None
    config = replace(found.config, value=replace(found.config.value, shadowed="the drop-in hides a change of the unit"))
    link = HeldLink(replace(found, config=config))
    app = make_app(link)
    async with running(app, size=(80, 24)) as pilot:
        await pilot.press("3")
        await until(lambda: "hides a change" in app.query_one(TruthView).text, "the row of the drop-in")
        await pilot.press(key, key)
        await until(lambda: f"being made: {of}" in line(app), "the line of the plan", seconds=5)
        assert link.begun == 1
        await pilot.press("escape")
        assert line(app) == ""


async def test_what_is_in_effect_is_written_down_by_a_plan_that_is_told_of(make_app: MakeApp) -> None:
    link = HeldLink(state(texts=HOT, speculative_ddtree_budget=16))
    app = make_app(link)
    async with running(app, size=(80, 24)) as pilot:
        await pilot.press("3")
        await until(lambda: "a writes it down" in app.query_one(TruthView).text, "the row of the hot change")
        await pilot.press("a", "a")
        await until(lambda: "being made: writing down tree budget 16" in line(app), "the line of the plan", seconds=5)
        assert link.begun == 1


class Kept:
    """A timer that is never over, however long a busy machine takes."""

    def __init__(self, delay: float, callback: object) -> None:
        self.delay = delay
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


async def test_a_plan_that_is_there_at_once_is_not_told_of(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    timers: list[Kept] = []

    def set_timer(delay: float, callback: object) -> Kept:
        timers.append(Kept(delay, callback))
        return timers[-1]

    monkeypatch.setattr(ChangeBar, "show_plan", lambda bar, words, seconds, way_out: told.append(words))
    link = HeldLink()
    link.hold.set()
    app = make_app(link)
    async with running(app) as pilot:
        monkeypatch.setattr(app, "set_timer", set_timer)
        await pilot.press("u")
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        assert [(timer.delay, timer.stopped) for timer in timers] == [(planning.SHOWN_AFTER_S, True)]
        assert set(told) <= {""}


async def test_escape_gives_the_plan_up_and_keeps_the_edits(make_app: MakeApp) -> None:
    link = HeldLink()
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("b", "a")
        await until(lambda: "being made" in line(app), "the line of the plan", seconds=5)
        await pilot.press("escape")
        assert "being made" not in line(app)
        assert "tree budget 8 → 12" in line(app)
        link.hold.set()
        await asyncio.sleep(0.1)
        await pilot.pause()
        assert not isinstance(app.screen, PlanScreen)
        await pilot.press("escape")
        assert change(app) == ""


async def test_escape_before_the_line_is_there_gives_the_plan_up_too(make_app: MakeApp) -> None:
    link = HeldLink()
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("b", "a", "escape")
        assert change(app)
        link.hold.set()
        await asyncio.sleep(1.5 * planning.SHOWN_AFTER_S)
        assert not isinstance(app.screen, PlanScreen)
        assert "being made" not in line(app)


async def test_escape_gives_it_up_on_a_screen_that_was_opened_meanwhile(make_app: MakeApp) -> None:
    link = HeldLink()
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("u")
        await until(lambda: "being made" in line(app), "the line of the plan", seconds=5)
        await pilot.press("4")
        assert "a roll-back" in line(app)
        await pilot.press("escape")
        assert not app.planning
        assert line(app) == ""


@pytest.mark.parametrize("keys", [("b", "a"), ("u",)], ids=["a", "u"])
async def test_a_second_press_starts_no_second_plan(make_app: MakeApp, keys: tuple[str, ...]) -> None:
    link = HeldLink()
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press(*keys)
        await until(lambda: link.begun == 1, "the plan's beginning")
        await pilot.press(keys[-1], keys[-1])
        await until(lambda: "being made" in line(app), "the line of the plan", seconds=5)
        await pilot.press(keys[-1])
        link.hold.set()
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        await pilot.pause()
        assert link.begun == 1
        assert len(app.screen_stack) == 2


async def test_another_plan_takes_the_place_of_the_one_that_is_being_made(make_app: MakeApp) -> None:
    link = HeldLink()
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("b", "a")
        await until(lambda: link.begun == 1, "the plan's beginning")
        await pilot.press("u")
        await until(lambda: "a roll-back" in line(app), "the line of the other plan", seconds=5)
        link.hold.set()
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        await pilot.pause()
        assert len(app.screen_stack) == 2
        assert app.screen.query_one(".dialog").border_title == "Roll back"


async def test_an_edit_gives_up_the_plan_of_the_edits_before_it_and_says_so(make_app: MakeApp) -> None:
    link = HeldLink()
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("b", "a")
        await until(lambda: "being made" in line(app), "the line of the plan", seconds=5)
        await pilot.press("k")
        assert "top-k per position 4 → 6" in line(app)
        assert "a apply" in line(app)
        assert "The plan is given up: the change is another one now." in notices(app)
        link.hold.set()
        await asyncio.sleep(0.1)
        await pilot.pause()
        assert not isinstance(app.screen, PlanScreen)


async def test_the_line_says_for_how_long(make_app: MakeApp) -> None:
    link = HeldLink()
    app = make_app(link)
    async with running(app, size=(80, 24)) as pilot:
        await pilot.press("u")
        await until(lambda: "being made" in line(app), "the line of the plan", seconds=5)
        now = app.clock.monotonic()
        app.clock = type(app.clock)(wall=app.clock.wall, monotonic=lambda: now + 12.0)
        revisions = itertools.count(2)

        def told() -> bool:
            # Snapshots come, and with each the header: the line goes on all the same.
            link.push(state(revision=next(revisions)))
            return "a roll-back · 12 s  esc gives it up" in line(app)

        await until(told, "the seconds", seconds=5)


async def test_a_plan_that_cannot_be_made_takes_its_line_away(make_app: MakeApp) -> None:
    link = HeldLink()
    link.earlier = None
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("u")
        await until(lambda: "being made" in line(app), "the line of the plan", seconds=5)
        link.hold.set()
        await until(lambda: "there is no earlier configuration" in notices(app), "the reason")
        await until(lambda: line(app) == "", "no line")


async def test_while_a_plan_is_made_anew_that_is_said_and_it_is_made_once(make_app: MakeApp) -> None:
    link = HeldLink()
    link.hold.set()
    app = make_app(link)
    async with running(app, size=(80, 24)) as pilot:
        await pilot.press("b", "a")
        await until(lambda: isinstance(app.screen, PlanScreen) and app.screen.has_parts, "the plan")
        link.hold.clear()
        await pilot.press("m", "m", "t", "f")
        choices = app.screen.query_one("#plan-choices", Static)
        await until(lambda: "being made anew" in str(choices.render()), "what is being done", seconds=5)
        assert link.begun == 2
        link.hold.set()
        await until(lambda: "Effective command" in text_of(app, "#plan"), "the plan with a restart")
        assert "being made anew" not in str(choices.render())
