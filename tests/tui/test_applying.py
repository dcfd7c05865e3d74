"""From the plan to the end of an operation: what is shown before it is accepted, its stages, and what ends it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from dflash_console.apply.records import ApplyResult, Stage, StageEvent, StageStatus, Verdict
from dflash_console.plan import Mode, Survey
from dflash_console.tui.app import ConsoleApp
from dflash_console.tui.link import Control
from dflash_console.tui.screens.apply import ApplyScreen
from dflash_console.tui.screens.confirm import ConfirmScreen
from dflash_console.tui.screens.dialog import ScrollText
from dflash_console.tui.screens.plan import PlanScreen
from dflash_console.tui.screens.unfinished import UnfinishedScreen

from .conftest import MakeApp
from .driving import notices, running, text_of, until
from .support import RecordedLink, lines, state, way_back

STAGES = ("checks", "change", "log line", "server", "prompt", "truth")


def stage(name: str, status: StageStatus, evidence: str = "", **changes: object) -> StageEvent:
    """One event of an operation."""
    line = changes.pop("line", None)
    shown = Stage(name, status, 0.4, evidence, line)  # type: ignore[arg-type]
    return StageEvent("op", shown, STAGES, 1.0, left_s=2.0, **changes)  # type: ignore[arg-type]


DONE = ApplyResult(True, Verdict.CONFIRMED, "tree_budget is 12", "op", Mode.HOT, (), "aa" * 16, seconds=1.2)


async def apply_budget(pilot: Pilot[None], app: ConsoleApp) -> None:
    """Step the budget, plan it and accept the plan: the stages are open then."""
    await pilot.press("b", "a")
    await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
    await pilot.press("enter")
    await until(lambda: isinstance(app.screen, ApplyScreen), "the stages")


async def test_apply_shows_the_plan_and_changes_nothing_before_it_is_accepted(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("b", "a")
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        assert "Tree budget: 8 → 12" in text_of(app, "#plan")
        await pilot.press("escape")
        assert link.applied == []
        assert app.model.change.values == {"tree_budget": 12}


async def test_m_turns_a_hot_change_into_one_with_a_restart(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("b", "a")
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        await pilot.press("m")
        await until(lambda: "Effective command" in text_of(app, "#plan"), "the plan with a restart")
        await pilot.press("o", "d", "enter")
        await until(lambda: bool(link.applied), "the apply")
        plan, choices = link.applied[0]
        assert plan.mode is Mode.RESTART
        assert choices.rollback_on_failure
        assert choices.drain


async def test_a_plan_with_an_error_cannot_be_applied(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.survey = replace(Survey(), drafter_problem="the folder /x holds no weights")
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("2")
        app.edit("drafter", "/x")
        await pilot.press("a")
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        await pilot.press("enter")
        await pilot.pause()
        assert "cannot be applied" in text_of(app, "#plan")
        assert link.applied == []


async def test_stages_appear_as_they_happen_and_the_end_is_said(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.stages = (
        stage("checks", StageStatus.DONE, "2 files unchanged"),
        stage("log line", StageStatus.DONE, "Hot change applied.", line=88),
        stage("prompt", StageStatus.RUNNING, progress=(3, 12)),
    )
    link.result = DONE
    link.hold.clear()
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("b", "a")
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ApplyScreen) and "3/12" in app.screen.text, "the stages")
        assert isinstance(app.screen, ApplyScreen)
        shown = app.screen.text
        assert "✓ checks" in shown
        assert "← log line 88" in shown
        assert re.search(r"about \d s left, from this host's earlier starts", shown)
        assert "then: change · server · truth" in shown
        assert app.model.busy == "applying"
        link.hold.set()
        await until(lambda: "✓ confirmed" in app.screen.text, "the verdict")  # type: ignore[attr-defined]
        assert app.model.busy == ""


async def test_in_a_small_terminal_the_newest_stage_and_the_verdict_are_in_sight(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.stages = tuple(stage(f"stage {number}", StageStatus.DONE, "of this start " * 12) for number in range(8))
    link.result = DONE
    link.hold.clear()
    app = make_app(link)
    async with running(app, size=(80, 24)) as pilot:
        await apply_budget(pilot, app)
        stages = app.screen.query_one("#stages", ScrollText)
        await until(lambda: "stage 7" in stages.text, "the stages")
        await until(lambda: stages.max_scroll_y > 0 and stages.scroll_y == stages.max_scroll_y, "the newest stage in sight")
        await pilot.press("home")
        await until(lambda: stages.scroll_y == 0, "the first stage again")
        link.hold.set()
        await until(lambda: "✓ confirmed" in str(app.screen.query_one("#apply-head", Static).render()), "the verdict on top")
        await pilot.pause()
        assert stages.scroll_y == 0, "whoever scrolled is left where he is"


async def test_what_shows_that_a_stage_is_done_stands_in_a_column_of_its_own(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.stages = (
        stage("checks", StageStatus.DONE, "2 files unchanged since the plan"),
        stage("log line", StageStatus.DONE, "Hot change applied. speculative_ddtree_budget: 8 -> 12 " * 3, line=88),
    )
    link.result = DONE
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("b", "a")
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ApplyScreen) and "line 88" in app.screen.text, "the stages")
        lines = app.screen.text.splitlines()  # type: ignore[attr-defined]
        column = next(line for line in lines if "checks" in line).index("2 files")
        assert next(line for line in lines if "log line" in line).index("Hot change") == column
        wrapped = next(line for line in lines if "← log line 88" in line)
        assert wrapped.index(wrapped.strip()) == column


async def test_a_failure_shows_its_cause_and_lines_and_u_shows_the_way_back(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.stages = (stage("log line", StageStatus.FAILED, "the log says draft_window_size=None"),)
    link.result = ApplyResult(
        False, Verdict.OTHER_VALUE, "the log says None", "op", Mode.RESTART, (), lines=lines(["draft_window_size=None"])
    )
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("b", "a")
        await until(lambda: isinstance(app.screen, PlanScreen), "the plan")
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ApplyScreen) and "another value" in app.screen.text, "the verdict")
        assert "draft_window_size=None" in app.screen.text  # type: ignore[attr-defined]
        link.earlier = way_back(at=16)
        await pilot.press("u")
        await until(lambda: isinstance(app.screen, PlanScreen) and app.screen.rolling_back, "the plan of the roll-back")
        assert link.rolled_back == []


async def test_leaving_the_stages_stops_nothing_and_the_end_is_told(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.result = DONE
    link.hold.clear()
    app = make_app(link)
    async with running(app) as pilot:
        await apply_budget(pilot, app)
        await pilot.press("escape")
        await until(lambda: not isinstance(app.screen, ApplyScreen), "the dashboard")
        await pilot.press("q")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("n")
        link.hold.set()
        await until(lambda: "confirmed: tree_budget is 12" in notices(app), "a notice of the end")


async def test_stop_waiting_gives_the_screen_back(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.hold.clear()
    app = make_app(link)
    async with running(app) as pilot:
        await apply_budget(pilot, app)
        await pilot.press("x")
        await until(lambda: "journal is on disk" in app.screen.text, "what was left")  # type: ignore[attr-defined]
        assert app.model.busy == ""


async def test_restart_and_stop_ask_first(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.result = DONE
    app = make_app(link)
    async with running(app) as pilot:
        for key, control in (("r", Control.RESTART), ("X", Control.STOP)):
            await pilot.press(key)
            assert isinstance(app.screen, ConfirmScreen)
            await pilot.press("n")
            assert control not in link.controls
            await pilot.press(key, "y")
            await until(lambda wanted=control: wanted in link.controls, f"{control}")  # type: ignore[misc]
            await until(lambda: app.model.busy == "", "the end")
            await pilot.press("escape")


async def test_a_read_only_console_changes_nothing(make_app: MakeApp) -> None:
    link = RecordedLink(state(), read_only=True)
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("b", "a", "r", "u")
        await pilot.pause()
        assert link.asked == []
        assert link.controls == []
        assert "Read only" in notices(app)


async def test_an_unfinished_operation_is_offered_at_the_start_and_undone_by_a_plan(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.left_over = "apply on embedded/ddtree-embedded, begun at 14:14:26, was cut off after 'write'"
    link.earlier = replace(way_back(at=16), takes_up="20261129-141426-abcdef")
    link.result = DONE
    app = make_app(link)
    async with running(app) as pilot:
        await until(lambda: isinstance(app.screen, UnfinishedScreen) and app.screen.takes_answers, "the question")
        await pilot.press("u")
        await until(lambda: isinstance(app.screen, PlanScreen) and app.screen.has_parts, "the plan")
        assert link.rolled_back == [], "nothing is undone before its plan was seen"
        assert "drain" not in str(app.screen.query_one("#plan-choices", Static).render())
        await pilot.press("enter")
        await until(lambda: [plan for plan, _ in link.rolled_back] == [link.earlier], "the roll-back of that operation")
        assert link.controls == []


async def test_an_unfinished_operation_is_gone_on_with(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    link.left_over = "apply on embedded/ddtree-embedded, begun at 14:14:26, was cut off after 'write'"
    link.result = DONE
    app = make_app(link)
    async with running(app) as pilot:
        await until(lambda: isinstance(app.screen, UnfinishedScreen) and app.screen.takes_answers, "the question")
        await pilot.press("r")
        await until(lambda: link.controls == [Control.RESUME], "the rest of that operation")


async def test_commit_confirm_is_offered_on_a_host_and_said_in_the_plan(make_app: MakeApp) -> None:
    found = state()
    link = RecordedLink(replace(found, host="gpu-a", embedded=False))
    app = make_app(link)
    async with running(app) as pilot:
        await pilot.press("w", "a")
        await until(lambda: isinstance(app.screen, PlanScreen) and bool(app.screen.query("#plan-choices")), "the plan")
        await pilot.press("m")
        choices = app.screen.query_one("#plan-choices", Static)
        await until(lambda: "commit-confirm: no" in str(choices.render()), "the choice")
        await pilot.press("t")
        await until(lambda: "commit-confirm: the host goes back after" in str(choices.render()), "the timer")


@pytest.mark.parametrize("embedded", [True, False])
async def test_commit_confirm_is_not_offered_where_no_timer_would_outlive_this_machine(make_app: MakeApp, embedded: bool) -> None:
    app = make_app(RecordedLink(replace(state(), embedded=embedded)))
    async with running(app) as pilot:
        await pilot.press("w", "a")
        await until(lambda: isinstance(app.screen, PlanScreen) and bool(app.screen.query("#plan-choices")), "the plan")
        await pilot.press("m")
        await pilot.press("t")
        await pilot.pause()
        assert "commit-confirm" not in str(app.screen.query_one("#plan-choices", Static).render())
