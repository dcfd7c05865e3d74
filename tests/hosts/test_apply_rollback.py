"""Changes that fail and are taken back: what was before is restored, restarted and confirmed, or it is said that it is not."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dflash_console.apply import StageEvent, StageStatus, Verdict, apply_plan
from dflash_console.evidence.server import in_effect_reading
from dflash_console.hosts import proc
from dflash_console.hosts.service import RunState
from dflash_console.knobs import KNOBS
from dflash_console.plan import Change, Mode

from .conftest import MakeUnit
from .sessions import FAST, NEVER_READY, change, session_on, started


@pytest.mark.parametrize("fault", ["exit", "hang", "ignore-flag", "bad-answer", "broken-drafter"])
async def test_an_automatic_roll_back_restores_restarts_and_confirms_the_old_configuration(
    fault: str, make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8", "--speculative-draft-window-size", "256", faults=f"16={fault}")
    async with session_on(tmp_path) as session:
        await started(session)
        text = unit.file.read_text()
        timeouts = NEVER_READY if fault == "hang" else FAST
        result = await change(session, {"tree_budget": 16, "draft_window": 512}, rollback=True, timeouts=timeouts)
        assert not result.confirmed
        assert result.rolled_back, result.reason
        assert result.rollback is not None
        assert "tree budget 8 (log line" in result.rollback.reason
        assert unit.file.read_text() == text
        state = await session.watcher.refresh()
        assert state.server is not None
        assert in_effect_reading(state.server.value, KNOBS["draft_window"]).value == 256


async def test_a_roll_back_that_fails_too_has_a_verdict_of_its_own(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8", faults="16=exit")
    async with session_on(tmp_path) as session:
        await started(session)
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        blocker = socket.socket()
        blocker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def block(event: StageEvent) -> None:
            if event.rolling_back and event.stage.name == "checks" and event.stage.status is StageStatus.DONE:
                blocker.bind(("127.0.0.1", unit.port))
                blocker.listen()

        with blocker:
            result = await apply_plan(session, plan, rollback_on_failure=True, timeouts=FAST, on_event=block)
        assert result.verdict is Verdict.ROLLBACK_FAILED
        assert not result.rolled_back
        assert "no kernel image" in result.reason, "what began it"
        assert "is in use" in result.reason, "what stopped the roll-back"


@pytest.mark.parametrize("stage_name", ["verify unit", "restart"], ids=["put back", "rolled back"])
async def test_what_a_colleague_wrote_meanwhile_is_not_put_back(stage_name: str, make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8", faults="16=exit")
    async with session_on(tmp_path) as session:
        await started(session)
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))

        def colleague(event: StageEvent) -> None:
            if event.stage.name == stage_name and event.stage.status is StageStatus.DONE:
                unit.file.write_text(unit.file.read_text().replace('"16"', '"24"'))

        result = await apply_plan(session, plan, rollback_on_failure=True, timeouts=FAST, on_event=colleague)
        assert result.verdict is Verdict.ROLLBACK_FAILED
        assert "was changed by someone else since" in result.reason
        assert '"24"' in unit.file.read_text()


async def test_rolling_back_a_service_that_was_stopped_stops_it_again(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit(faults="16=hang")
    text = unit.file.read_text()
    async with session_on(tmp_path) as session:
        result = await change(session, {"tree_budget": 16}, rollback=True, timeouts=NEVER_READY)
        assert (result.verdict, result.rolled_back) == (Verdict.TIMED_OUT, True)
        assert (await session.service.state()).state is RunState.STOPPED
        assert unit.file.read_text() == text


async def test_a_failed_hot_change_is_taken_back(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit("--speculative-ddtree-budget", "8", faults="8=bad-answer-hot")
    async with session_on(tmp_path) as session:
        await started(session)
        result = await change(session, {"tree_budget": 16}, Mode.HOT, rollback=True)
        assert (result.verdict, result.rolled_back) == (Verdict.BAD_ANSWER, True), result.reason
        state = await session.watcher.refresh()
        assert state.server is not None
        assert in_effect_reading(state.server.value, KNOBS["tree_budget"]).value == 8


async def test_no_engine_is_left_behind_by_a_failed_apply(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit(faults="16=orphan;16=bad-answer")
    async with session_on(tmp_path) as session:
        await started(session)
        result = await change(session, {"tree_budget": 16}, rollback=True)
        assert result.rolled_back, result.reason
        failed_start = next(found for found in result.stages if found.name == "restart").evidence
        invocations = [line.invocation_id for line in await session.service.lines() if line.invocation_id]
        broken = next(found for found in dict.fromkeys(invocations) if found and found[:8] in failed_start.partition("→")[2])
        assert proc.started_with("INVOCATION_ID", broken) == []
