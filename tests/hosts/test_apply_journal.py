"""The journal is true to whatever becomes of an operation: what nobody ended is offered again, and nothing goes on without it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dflash_console.apply import StageEvent, StageStatus, Verdict, apply_plan, pending_operations, resume, stop_service
from dflash_console.plan import Change, Mode

from .conftest import MakeUnit
from .killing import kill_console
from .sessions import FAST, session_on, started


async def test_a_journal_that_cannot_be_written_any_more_ends_the_change_before_the_restart_and_puts_the_file_back(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        first = await started(session)
        text = unit.file.read_text()
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))

        def break_journal(event: StageEvent) -> None:
            if event.stage.name == "verify unit" and event.stage.status is StageStatus.DONE:
                path = session.paths.operations / f"{event.operation_id}.jsonl"
                path.unlink()
                path.mkdir()

        result = await apply_plan(session, plan, timeouts=FAST, on_event=break_journal)
        assert result.verdict is Verdict.NO_RESTART
        assert "journal" in result.reason
        assert "the files are as they were" in result.reason
        assert unit.file.read_text() == text
        assert (await session.service.state()).invocation_id == first.invocation_id


async def test_a_cancelled_stop_is_offered_by_the_same_console(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        begun = asyncio.Event()
        work = asyncio.create_task(stop_service(session, timeouts=FAST, on_event=lambda event: begun.set()))
        await begun.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        (pending,) = pending_operations(session.paths)
        assert (await resume(session, pending, timeouts=FAST)).confirmed


async def test_an_operation_that_cannot_be_gone_on_with_just_now_is_offered_again(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        pending = await kill_console(tmp_path, "write", "done")
        (kept,) = unit.folder.glob("kept/*.planned")
        whole = kept.read_bytes()
        kept.write_bytes(whole[:-9])
        result = await resume(session, pending, timeouts=FAST)
        assert result.verdict is Verdict.REFUSED
        assert "is damaged" in result.reason
        (again,) = pending_operations(session.paths)
        kept.write_bytes(whole)
        assert (await resume(session, again, timeouts=FAST)).confirmed
