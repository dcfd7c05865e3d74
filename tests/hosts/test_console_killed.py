"""A console that is killed in the middle of an apply loses nothing: the next one resumes or rolls back from the journal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dflash_console.apply import (
    ApplyResult,
    Verdict,
    apply_plan,
    discard,
    pending_operations,
    resume,
    roll_back_operation,
)
from dflash_console.hosts.service import RunState
from dflash_console.plan import Change, Mode

from .conftest import MakeUnit
from .killing import ROOT, kill_console
from .sessions import FAST, change, in_effect, paths_under, session_on, stage, started


async def test_killed_between_write_and_restart_the_next_console_finishes_the_restart(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        first = await started(session)
        pending = await kill_console(tmp_path, "write", "done")
        assert '"16",' in unit.file.read_text(), "written, and not restarted: what the journal is for"
        assert await in_effect(session, "tree_budget") == 8
        assert pending.written
        assert "was cut off after 'write'" in pending.words
        result = await resume(session, pending, timeouts=FAST)
        assert result.verdict is Verdict.CONFIRMED, result.reason
        assert result.invocation_id != first.invocation_id
        assert await in_effect(session, "tree_budget") == 16
        assert pending_operations(session.paths) == ()


async def test_killed_between_write_and_restart_the_next_console_can_put_the_file_back(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        first = await started(session)
        text = unit.file.read_text()
        pending = await kill_console(tmp_path, "write", "done")
        result = await roll_back_operation(session, pending, timeouts=FAST)
        assert (result.verdict, result.rolled_back) == (Verdict.CONFIRMED, True), result.reason
        assert unit.file.read_text() == text
        assert (await session.service.state()).invocation_id == first.invocation_id, "nothing had to be restarted"
        assert pending_operations(session.paths) == ()


@pytest.mark.parametrize("name", ["restart", "process up", "draft runner", "prompt"])
async def test_killed_after_the_restart_the_next_console_confirms_that_very_start(
    name: str, make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        pending = await kill_console(tmp_path, name, "done")
        running = (await session.service.state()).invocation_id
        result = await resume(session, pending, timeouts=FAST)
        assert result.verdict is Verdict.CONFIRMED, result.reason
        assert result.invocation_id == running, "it was not restarted once more"
        assert stage(result, "draft runner").line is not None


async def test_killed_after_the_restart_the_next_console_can_roll_back_and_confirm(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        text = unit.file.read_text()
        pending = await kill_console(tmp_path, "ready", "done")
        result = await roll_back_operation(session, pending, timeouts=FAST)
        assert (result.verdict, result.rolled_back) == (Verdict.CONFIRMED, True), result.reason
        assert unit.file.read_text() == text
        assert await in_effect(session, "tree_budget") == 8


@pytest.mark.parametrize("way", [resume, roll_back_operation])
@pytest.mark.parametrize(("name", "again"), [("write", True), ("restart", False), ("draft runner", False)])
async def test_killed_in_the_roll_back_of_a_failed_change_the_next_console_finishes_the_roll_back(
    name: str, again: bool, way: Callable[..., Awaitable[ApplyResult]], make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8", faults="16=exit")
    async with session_on(tmp_path) as session:
        await started(session)
        text = unit.file.read_text()
        pending = await kill_console(tmp_path, name, "done", "rollback")
        before = (await session.service.state()).invocation_id
        result = await way(session, pending, timeouts=FAST)
        assert (result.verdict, result.rolled_back) == (Verdict.CONFIRMED, True), result.reason
        assert unit.file.read_text() == text
        assert await in_effect(session, "tree_budget") == 8
        assert (result.invocation_id != before) is again, "restarted only where the roll-back had not done so"
        assert pending_operations(session.paths) == ()


@pytest.mark.parametrize(("name", "status"), [("checks", "done"), ("backup", "done"), ("write", "running")])
async def test_killed_before_the_write_there_is_nothing_to_undo(
    name: str, status: str, make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    text = unit.file.read_text()
    async with session_on(tmp_path) as session:
        pending = await kill_console(tmp_path, name, status)
        result = await resume(session, pending, timeouts=FAST)
        assert result.verdict is Verdict.CANCELLED
        assert "before anything was changed" in result.reason
        assert unit.file.read_text() == text
        assert (await session.service.state()).state is RunState.STOPPED


async def test_killed_during_a_hot_change_the_next_console_confirms_or_takes_it_back(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        pending = await kill_console(tmp_path, "change", "done", "hot")
        assert await in_effect(session, "tree_budget") == 16
        result = await roll_back_operation(session, pending, timeouts=FAST)
        assert (result.verdict, result.rolled_back) == (Verdict.CONFIRMED, True), result.reason
        assert await in_effect(session, "tree_budget") == 8
        pending = await kill_console(tmp_path, "change", "done", "hot")
        result = await resume(session, pending, timeouts=FAST)
        assert result.verdict is Verdict.CONFIRMED, result.reason
        assert await in_effect(session, "tree_budget") == 16


async def test_killed_during_a_hot_change_that_was_written_down_the_file_goes_back_with_the_engine(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        text = unit.file.read_text()
        pending = await kill_console(tmp_path, "write", "done", "persist")
        assert '"16",' in unit.file.read_text()
        result = await roll_back_operation(session, pending, timeouts=FAST)
        assert (result.verdict, result.rolled_back) == (Verdict.CONFIRMED, True), result.reason
        assert unit.file.read_text() == text
        assert await in_effect(session, "tree_budget") == 8


async def test_killed_before_a_hot_change_was_written_down_the_next_console_says_so(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        text = unit.file.read_text()
        pending = await kill_console(tmp_path, "prompt", "done", "persist")
        result = await resume(session, pending, timeouts=FAST)
        assert result.verdict is Verdict.CONFIRMED, result.reason
        assert "before it was written down" in result.reason
        assert unit.file.read_text() == text


async def test_killed_during_a_stop_the_next_console_stops_and_never_starts(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        first = await started(session)
        pending = await kill_console(tmp_path, "checks", "done", "stop")
        assert (await roll_back_operation(session, pending, timeouts=FAST)).verdict is Verdict.CANCELLED
        pending = await kill_console(tmp_path, "checks", "done", "stop")
        result = await resume(session, pending, timeouts=FAST)
        assert result.verdict is Verdict.CONFIRMED, result.reason
        state = await session.service.state()
        assert (state.state, state.invocation_id) == (RunState.STOPPED, first.invocation_id)


async def test_a_file_that_a_colleague_changed_since_is_left_alone(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        pending = await kill_console(tmp_path, "write", "done")
        unit.file.write_text(unit.file.read_text() + "# by a colleague\n")
        for way in (resume, roll_back_operation):
            result = await way(session, pending, timeouts=FAST)
            assert result.verdict is Verdict.REFUSED
            assert "changed by someone else" in result.reason
        assert unit.file.read_text().endswith("# by a colleague\n")
        assert len(pending_operations(session.paths)) == 1, "still to be decided"
        discard(pending)
        assert pending_operations(session.paths) == ()


async def test_a_cancelled_apply_can_be_resumed_by_the_same_console(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        written = asyncio.Event()
        task = asyncio.create_task(
            apply_plan(
                session, plan, timeouts=FAST, on_event=lambda event: written.set() if event.stage.name == "restart" else None
            )
        )
        await written.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (pending,) = pending_operations(session.paths)
        result = await resume(session, pending, timeouts=FAST)
        assert result.verdict is Verdict.CONFIRMED, result.reason


async def test_an_operation_of_a_console_that_ended_well_is_not_pending(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.hosts.killed_console", str(tmp_path), "never", "done", "restart", cwd=ROOT
    )
    assert await process.wait() == 0
    assert pending_operations(paths_under(tmp_path)) == ()


async def test_an_operation_that_runs_is_not_pending(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        seen: list[int] = []
        await apply_plan(session, plan, timeouts=FAST, on_event=lambda event: seen.append(len(pending_operations(session.paths))))
        assert set(seen) == {0}


async def test_the_lock_of_a_killed_console_is_free(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        await kill_console(tmp_path, "write", "done")
        result = await change(session, {"tree_topk": 2})
        assert result.confirmed, result.reason
