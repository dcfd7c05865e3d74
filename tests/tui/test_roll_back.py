"""``u``: the way back is a plan like any other change, shown before anything is done."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from textual.pilot import Pilot
from textual.widgets import Static

from dflash_console.apply import ApplyResult, Verdict
from dflash_console.plan import Mode
from dflash_console.tui.app import ConsoleApp
from dflash_console.tui.screens.apply import ApplyScreen
from dflash_console.tui.screens.plan import PlanScreen
from dflash_console.tui.widgets.key_line import KeyLine

from .conftest import MakeApp
from .driving import notices, running, text_of, until
from .support import IDLE, RecordedLink, state, way_back

BACK = ApplyResult(True, Verdict.CONFIRMED, "tree_budget is 8", "op", Mode.RESTART, (), rolled_back=True)


def link_with_a_way_back() -> RecordedLink:
    """A host whose budget was 8 before."""
    link = RecordedLink(state())
    link.earlier = way_back(at=16)
    link.result = BACK
    return link


@asynccontextmanager
async def plan_by_u(
    make_app: MakeApp, link: RecordedLink, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[tuple[ConsoleApp, Pilot[None]]]:
    """The console with the plan open that ``u`` asks for."""
    app = make_app(link)
    async with running(app, size=size) as pilot:
        await pilot.press("u")
        await until(lambda: isinstance(app.screen, PlanScreen) and app.screen.has_parts, "the plan")
        yield app, pilot


async def test_u_shows_what_it_goes_back_to_and_changes_nothing_before_it_is_accepted(make_app: MakeApp) -> None:
    link = link_with_a_way_back()
    async with plan_by_u(make_app, link) as (app, pilot):
        shown = text_of(app, "#plan")
        assert "Tree budget: 16 → 8" in shown
        assert "goes back to the configuration that was confirmed on 2026-11-29 at 16:00:07" in shown
        assert '-  "16",' in shown
        assert '+  "8",' in shown
        assert "restart: about 3 s, from this host's earlier starts" in shown
        await pilot.press("escape")
        assert link.rolled_back == []
        assert link.controls == []


async def test_enter_in_that_plan_rolls_back_and_the_stages_follow(make_app: MakeApp) -> None:
    link = link_with_a_way_back()
    async with plan_by_u(make_app, link) as (app, pilot):
        await pilot.press("d", "enter")
        await until(lambda: isinstance(app.screen, ApplyScreen) and "✓ confirmed" in app.screen.text, "the end")
        ((plan, choices),) = link.rolled_back
        assert plan is link.earlier
        assert choices.drain
        assert link.applied == [], "it is carried out as a roll-back"


async def test_a_roll_back_names_what_its_restart_cuts_and_offers_no_roll_back_of_itself(make_app: MakeApp) -> None:
    link = link_with_a_way_back()
    async with plan_by_u(make_app, link) as (app, pilot):
        choices = str(app.screen.query_one("#plan-choices", Static).render())
        assert "3 running requests" in choices
        assert "roll back on failure" not in choices
        await pilot.pause()
        assert "roll back on failure" not in str(app.screen.query_one(KeyLine).render())
        await pilot.press("o", "enter")
        await until(lambda: bool(link.rolled_back), "the roll-back")
        assert not link.rolled_back[0][1].rollback_on_failure


async def test_what_stays_as_it_is_written_takes_one_line_so_that_the_diff_is_in_sight(make_app: MakeApp) -> None:
    link = link_with_a_way_back()
    async with plan_by_u(make_app, link, (80, 24)) as (app, _pilot):
        shown = text_of(app, "#plan")
        assert "as written now, and proven again: Algorithm DDTREE, Top-k" in " ".join(shown.split())
        assert "DDTREE → DDTREE" not in shown


async def test_from_a_file_that_cannot_be_read_no_setting_is_said_to_change_or_to_be_written(make_app: MakeApp) -> None:
    link = link_with_a_way_back()
    assert link.earlier is not None
    changes = tuple(replace(change, old=change.new) for change in link.earlier.changes)
    link.earlier = replace(link.earlier, old_command=(), changes=changes)
    async with plan_by_u(make_app, link, (80, 24)) as (app, _pilot):
        shown = " ".join(text_of(app, "#plan").split())
        assert "as before, and proven again: Algorithm DDTREE" in shown
        assert "→ DDTREE" not in shown
        assert "as written now" not in shown


async def test_a_way_back_without_a_change_of_a_file_says_what_the_restart_takes(make_app: MakeApp) -> None:
    link = link_with_a_way_back()
    assert link.earlier is not None
    link.earlier = replace(link.earlier, edits=(), diff="", old_command=link.earlier.command)
    async with plan_by_u(make_app, link) as (app, _pilot):
        assert "No file changes: the restart takes what is written." in text_of(app, "#plan")


async def test_a_way_back_that_needs_no_restart_offers_nothing_to_write(make_app: MakeApp) -> None:
    link = link_with_a_way_back()
    assert link.earlier is not None
    hot = {"speculative_ddtree_budget": 8.0}
    link.earlier = replace(link.earlier, mode=Mode.HOT, edits=(), diff="", hot_values=hot)
    async with plan_by_u(make_app, link) as (app, _pilot):
        choices = str(app.screen.query_one("#plan-choices", Static).render())
        assert "now, without a restart" in choices
        assert "write to the file" not in choices


async def test_where_nothing_earlier_is_known_that_is_said(make_app: MakeApp) -> None:
    link = RecordedLink(state(rates=IDLE))
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("u")
        await until(lambda: "there is no earlier configuration to go back to" in notices(app), "the reason")
        assert not isinstance(app.screen, PlanScreen)


async def test_an_end_that_says_itself_that_it_was_rolled_back_is_not_said_to_run_again(make_app: MakeApp) -> None:
    link = link_with_a_way_back()
    link.result = replace(BACK, reason="rolled back: the file is as it was, and the engine had not been restarted")
    async with plan_by_u(make_app, link) as (app, pilot):
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ApplyScreen) and "✓ confirmed" in app.screen.text, "the end")
        assert isinstance(app.screen, ApplyScreen)
        assert "runs again" not in app.screen.text
