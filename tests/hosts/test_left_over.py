"""A roll-back beside an operation that was cut off: that one is undone first, by a plan that says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dflash_console.apply import (
    StageEvent,
    StageStatus,
    Verdict,
    carry_out_roll_back,
    pending_operations,
    plan_roll_back,
    restart_service,
    roll_back_operation,
    way_of_roll_back,
)
from dflash_console.plan import Mode
from dflash_console.tui.link import LinkError
from dflash_console.tui.live_operations import LiveOperations

from .commands import Console, console, environment
from .conftest import MakeUnit
from .killing import kill_console
from .sessions import FAST, change, in_effect, planned_roll_back, said, session_on, started

__all__ = ["console", "environment"]


async def test_a_change_that_was_written_and_not_started_is_undone_without_a_restart(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        first = await started(session)
        text = unit.file.read_text()
        await kill_console(tmp_path, "write", "done")
        written = unit.file.read_text()
        plan = await planned_roll_back(session)
        assert unit.file.read_text() == written, "a plan changes nothing"
        assert said(plan).startswith("undoes what was not finished: apply on embedded/engine, begun at ")
        assert said(plan).endswith("was cut off after 'write'; the engine was not restarted with it, and goes on")
        assert plan.mode is Mode.HOT
        assert '-    "16",' in plan.diff.splitlines()
        result = await carry_out_roll_back(session, plan, timeouts=FAST)
        assert (result.verdict, result.rolled_back) == (Verdict.CONFIRMED, True), result.reason
        assert unit.file.read_text() == text
        assert (await session.service.state()).invocation_id == first.invocation_id
        assert pending_operations(session.paths) == ()


async def test_a_change_that_was_started_is_undone_by_a_restart(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        text = unit.file.read_text()
        await kill_console(tmp_path, "ready", "done")
        assert await way_of_roll_back(session) == "undoes it"
        plan = await planned_roll_back(session)
        assert plan.mode is Mode.RESTART
        assert [(found.knob, found.old, found.new) for found in plan.changes] == [("tree_budget", 16, 8)]
        assert plan.changes[0].confirmable
        result = await carry_out_roll_back(session, plan, timeouts=FAST)
        assert (result.verdict, result.rolled_back) == (Verdict.CONFIRMED, True), result.reason
        assert unit.file.read_text() == text
        assert await in_effect(session, "tree_budget") == 8


async def test_a_hot_change_is_taken_back_while_the_engine_runs(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        await kill_console(tmp_path, "change", "done", "hot")
        plan = await planned_roll_back(session)
        assert said(plan).startswith("undoes what was not finished: ")
        assert (plan.mode, plan.hot_values, plan.edits) == (Mode.HOT, {"speculative_ddtree_budget": 8}, ())
        assert [(found.knob, found.old, found.new) for found in plan.changes] == [("tree_budget", 16, 8)]
        assert (await carry_out_roll_back(session, plan, timeouts=FAST)).rolled_back
        assert await in_effect(session, "tree_budget") == 8


@pytest.mark.parametrize(("stage", "what"), [("checks", "stop"), ("checks", "restart")])
async def test_what_has_left_nothing_to_undo_is_named_and_the_way_leads_to_the_earlier_configuration(
    stage: str, what: str, make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        text = unit.file.read_text()
        assert (await change(session, {"tree_budget": 12})).confirmed
        await kill_console(tmp_path, stage, "done", what)
        assert (await way_of_roll_back(session)).startswith(
            "does not undo it and goes back to the configuration that was confirmed"
        )
        plan = await planned_roll_back(session)
        assert plan.takes_up == ""
        assert "goes back to the configuration that was confirmed on" in said(plan)
        assert f"was cut off after '{stage}': it has left nothing to undo" in said(plan)
        assert (await carry_out_roll_back(session, plan, timeouts=FAST)).confirmed
        assert unit.file.read_text() == text
        assert pending_operations(session.paths) == (), "decided by going further back"


async def test_what_has_left_nothing_to_undo_is_decided_by_a_roll_back_that_has_nowhere_to_go(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        first = await started(session)
        text = unit.file.read_text()
        await kill_console(tmp_path, "checks", "done")
        assert await plan_roll_back(session) is None
        assert await way_of_roll_back(session) == "has nothing to undo, and nowhere earlier to go"
        assert len(pending_operations(session.paths)) == 1, "a plan decides nothing"
        result = await carry_out_roll_back(session, None, timeouts=FAST)
        assert (result.verdict, "left nothing to undo" in result.reason) == (Verdict.CANCELLED, True), result.reason
        assert pending_operations(session.paths) == ()
        assert unit.file.read_text() == text
        assert (await session.service.state()).invocation_id == first.invocation_id
        again = await carry_out_roll_back(session, None, timeouts=FAST)
        assert (again.verdict, "no earlier configuration" in again.reason) == (Verdict.REFUSED, True), again.reason


async def test_what_has_left_something_to_undo_is_not_called_off_unseen(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        await kill_console(tmp_path, "write", "done")
        written = unit.file.read_text()
        result = await carry_out_roll_back(session, None, timeouts=FAST)
        assert (result.verdict, "plan the roll-back again" in result.reason) == (Verdict.REFUSED, True), result.reason
        assert unit.file.read_text() == written
        assert len(pending_operations(session.paths)) == 1


async def test_the_screens_do_not_ask_again_about_what_has_left_nothing_to_undo(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        await kill_console(tmp_path, "checks", "done")
        operations = LiveOperations(session)
        assert operations.pending()
        with pytest.raises(LinkError, match="left nothing to undo; nothing is to be done"):
            await operations.plan_roll_back()
        assert not operations.pending()


async def test_a_file_that_was_changed_since_does_not_stand_in_the_way_of_the_last_confirmed_one(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        text = unit.file.read_text()
        await kill_console(tmp_path, "write", "done")
        unit.file.write_text(unit.file.read_text() + "# by a colleague\n")
        plan = await planned_roll_back(session)
        (warning,) = [found.message for found in plan.warnings if found.code == "unfinished"]
        assert "it is not undone by itself, since " in warning
        assert "-# by a colleague" in plan.diff.splitlines(), "what would be lost is in sight"
        assert (await carry_out_roll_back(session, plan, timeouts=FAST)).confirmed
        assert unit.file.read_text() == text
        assert pending_operations(session.paths) == ()


async def test_a_roll_back_that_was_cut_off_is_finished_and_not_undone(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        text = unit.file.read_text()
        assert (await change(session, {"tree_budget": 16})).confirmed
        written = asyncio.Event()

        def note(event: StageEvent) -> None:
            if event.stage.name == "write" and event.stage.status is StageStatus.DONE:
                written.set()

        work = asyncio.create_task(carry_out_roll_back(session, await planned_roll_back(session), timeouts=FAST, on_event=note))
        await written.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        plan = await planned_roll_back(session)
        assert said(plan).startswith("finishes what was not finished: rollback on embedded/engine")
        assert (plan.mode, plan.edits) == (Mode.RESTART, ())
        result = await carry_out_roll_back(session, plan, timeouts=FAST)
        assert (result.verdict, result.rolled_back) == (Verdict.CONFIRMED, True), result.reason
        assert unit.file.read_text() == text
        assert await in_effect(session, "tree_budget") == 8


async def test_what_became_of_it_after_the_plan_was_shown_is_not_undone_unseen(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        pending = await kill_console(tmp_path, "write", "done")
        plan = await planned_roll_back(session)
        await session.service.restart()
        async with asyncio.timeout(30):
            while (await session.service.state()).invocation_id == plan.invocation_id:  # noqa: ASYNC110 - the supervisor
                await asyncio.sleep(0.05)
        result = await carry_out_roll_back(session, plan, timeouts=FAST)
        assert result.verdict is Verdict.REFUSED
        assert "has changed since the plan was made; plan again" in result.reason
        assert [found.operation_id for found in pending_operations(session.paths)] == [pending.operation_id]
        assert (await roll_back_operation(session, pending, timeouts=FAST)).rolled_back
        again = await carry_out_roll_back(session, plan, timeouts=FAST)
        assert (again.verdict, again.stages) == (Verdict.REFUSED, ()), "it was decided meanwhile"


async def test_a_change_that_was_cut_off_before_it_wrote_does_not_restart_what_a_colleague_started(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        pending = await kill_console(tmp_path, "checks", "done")
        colleague = await restart_service(session, timeouts=FAST)
        result = await roll_back_operation(session, pending, timeouts=FAST)
        assert (result.verdict, "before anything was changed" in result.reason) == (Verdict.CANCELLED, True), result.reason
        assert (await session.service.state()).invocation_id == colleague.invocation_id


async def test_the_command_shows_the_same_plan(make_unit: MakeUnit, tmp_path: Path, console: Console) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    assert (await console("start")).code == 0
    text = unit.file.read_text()
    await kill_console(tmp_path, "write", "done")
    shown = await console("rollback")
    assert shown.code == 2
    assert "undoes what was not finished: apply on embedded/engine" in " ".join(shown.out.split())
    assert '-    "16",' in shown.out
    assert "look at the plan, then add --yes" in shown.err
    assert (await console("rollback", "--yes")).code == 0
    assert unit.file.read_text() == text
