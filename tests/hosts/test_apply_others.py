"""An apply beside others: colleagues who changed the file, restarted or apply too, and requests that run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from dflash_console.apply import StageEvent, Verdict, apply_plan
from dflash_console.apply.control import plan_restart
from dflash_console.hosts.process import ProcessService
from dflash_console.plan import Change, Mode
from dflash_console.session import HostSession

from .conftest import MakeUnit
from .sessions import FAST, IMPATIENT, change, session_on, stage, started
from .waiting import until


def one_runs(session: HostSession) -> Callable[[], Awaitable[bool]]:
    """Whether the engine says that a request runs."""

    async def seen() -> bool:
        loads = (await session.watcher.refresh()).loads
        return loads is not None and loads.value.running == 1

    return seen


async def test_a_hot_plan_from_before_a_restart_is_refused(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        plan = await session.plan(Change({"tree_budget": 16}, Mode.HOT))
        assert (await change(session, {"layers_window": "off"})).confirmed
        result = await apply_plan(session, plan, timeouts=FAST)
        assert result.verdict is Verdict.REFUSED
        assert "was changed since the plan" in result.reason or "restarted since" in result.reason


async def test_a_file_that_changed_after_the_plan_is_not_overwritten(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        unit.file.write_text(unit.file.read_text() + "\n# by a colleague\n")
        result = await apply_plan(session, plan, timeouts=FAST)
        assert result.verdict is Verdict.REFUSED
        assert "changed since the plan was made" in result.reason
        assert unit.file.read_text().endswith("# by a colleague\n")


async def test_a_start_that_waited_for_a_colleagues_does_not_restart_the_engine(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        plan = await plan_restart(session)
        first = await started(session)
        result = await apply_plan(session, plan, what="start", timeouts=FAST)
        assert result.verdict is Verdict.REFUSED
        assert "was started meanwhile" in result.reason
        assert (await session.service.state()).invocation_id == first.invocation_id


async def test_two_people_cannot_apply_at_once(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    other = ProcessService(unit.transport, unit.folder)
    async with session_on(tmp_path) as session, other.lock("apply by ada"):
        result = await change(session, {"tree_budget": 16})
        assert result.verdict is Verdict.REFUSED
        assert "apply by ada" in result.reason


async def test_running_requests_are_counted_and_drained_before_the_stop(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        http = await session.engine()
        release = tmp_path / "release"
        body = {"text": "x", "sampling_params": {"custom_params": {"hold": str(release)}}}
        request = asyncio.create_task(http._request("POST", "/generate", body, timeout=60))
        await until(one_runs(session))
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        assert "cuts_requests" in [finding.code for finding in plan.warnings]

        def let_go(event: StageEvent) -> None:
            if (event.stage.name, event.stage.evidence) == ("drain", "1 requests run"):
                release.touch()

        result = await apply_plan(session, plan, drain=True, timeouts=FAST, on_event=let_go)
        assert result.confirmed, result.reason
        assert stage(result, "drain").seconds > 0.2
        assert b"meta_info" in await request, "the request was answered to its end"


async def test_a_drain_that_takes_too_long_restarts_nothing_and_puts_the_file_back(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        first = await started(session)
        text = unit.file.read_text()
        http = await session.engine()
        release = tmp_path / "release"
        body = {"text": "x", "sampling_params": {"custom_params": {"hold": str(release)}}}
        request = asyncio.create_task(http._request("POST", "/generate", body, timeout=60))
        await until(one_runs(session))
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        result = await apply_plan(session, plan, drain=True, timeouts=IMPATIENT)
        assert result.verdict is Verdict.TIMED_OUT
        assert "1 requests still run" in result.reason
        assert (await session.service.state()).invocation_id == first.invocation_id
        assert unit.file.read_text() == text
        release.touch()
        assert b"meta_info" in await request, "the request was answered to its end"
