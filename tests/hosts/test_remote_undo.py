"""Commit-confirm on a real host: a console that is gone leaves a change that the host itself puts back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from dflash_console.apply import (
    StageStatus,
    Verdict,
    apply_plan,
    pending_operations,
    resume,
    roll_back,
    start_service,
)
from dflash_console.plan import Change, Mode, Plan
from dflash_console.session import HostSession

from .remote_rig import DROP_IN, WAITS, Remote, cut_off_at, remote
from .sessions import stage

__all__ = ["remote"]
pytestmark = pytest.mark.slow


async def with_timer(session: HostSession, seconds: int, budget: int = 16) -> Plan:
    plan = await session.plan(Change({"tree_budget": budget}, Mode.RESTART, commit_confirm=True))
    assert not plan.blocked, plan.findings
    assert plan.undo_after_s is not None
    assert plan.undo_after_s > (plan.predictions.restart_s or 0)
    return replace(plan, undo_after_s=seconds)


async def test_a_confirmed_change_calls_the_timer_off(remote: Remote) -> None:
    remote.install()
    async with remote.session() as session:
        assert (await start_service(session, timeouts=WAITS)).confirmed
        result = await apply_plan(session, await with_timer(session, 120), timeouts=WAITS)
        assert result.confirmed, result.reason
        assert stage(result, "disarm timer").status is StageStatus.DONE
        timer = session.service.rollback_timer()
        assert timer is not None
        assert not await timer.armed()


async def test_the_host_puts_a_change_back_whose_console_is_gone_and_the_next_look_says_so(remote: Remote) -> None:
    remote.install()
    async with remote.session() as session:
        assert (await start_service(session, timeouts=WAITS)).confirmed
        await cut_off_at(session, await with_timer(session, 15), "process up")
    assert remote.text(DROP_IN) is not None
    async with asyncio.timeout(90):
        while remote.text(DROP_IN) is not None:  # noqa: ASYNC110 - the host
            await asyncio.sleep(0.5)
    async with remote.session() as session:
        (pending,) = pending_operations(session.paths, session.host, session.unit)
        result = await resume(session, pending, timeouts=WAITS)
        assert result.verdict is Verdict.CANCELLED
        assert result.rolled_back
        assert "fired after 15 s and put the configuration of before back" in result.reason
        assert "it runs and is confirmed" in result.reason
        assert result.invocation_id == remote.shown("InvocationID")
        assert not pending_operations(session.paths, session.host, session.unit)


async def test_while_a_timer_runs_nothing_else_begins_until_a_roll_back_calls_it_off(remote: Remote) -> None:
    remote.install()
    async with remote.session("lost") as session:
        assert (await start_service(session, timeouts=WAITS)).confirmed
        await cut_off_at(session, await with_timer(session, 300), "process up")
    async with remote.session("colleague") as session:
        plan = await session.plan(Change({"tree_topk": 2}, Mode.RESTART))
        refused = await apply_plan(session, plan, timeouts=WAITS)
        assert refused.verdict is Verdict.REFUSED
        assert "about to be put back by a timer" in refused.reason
        back = await roll_back(session, timeouts=WAITS)
        assert back.confirmed, back.reason
        assert remote.text(DROP_IN) is None
        timer = session.service.rollback_timer()
        assert timer is not None
        assert not await timer.armed()


async def test_a_failed_change_is_put_back_at_once_and_the_timer_called_off(remote: Remote) -> None:
    remote.install(faults="16=exit")
    async with remote.session() as session:
        assert (await start_service(session, timeouts=WAITS)).confirmed
        result = await apply_plan(session, await with_timer(session, 300), timeouts=WAITS)
        assert result.verdict is Verdict.PROCESS_DIED
        assert result.rolled_back
        timer = session.service.rollback_timer()
        assert timer is not None
        assert not await timer.armed()
        assert not await timer.fired()


@pytest.mark.parametrize("lost_at", ["reload", "process up"])
async def test_a_change_taken_up_again_and_lost_again_is_still_put_back_by_the_host(lost_at: str, remote: Remote) -> None:
    remote.install()
    async with remote.session() as session:
        assert (await start_service(session, timeouts=WAITS)).confirmed
        await cut_off_at(session, await with_timer(session, 15), lost_at)
        (pending,) = pending_operations(session.paths, session.host, session.unit)
        reached = asyncio.Event()
        work = asyncio.create_task(
            resume(
                session, pending, timeouts=WAITS, on_event=lambda event: reached.set() if event.stage.name == "ready" else None
            )
        )
        await asyncio.wait_for(reached.wait(), 60)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert remote.text(DROP_IN) is not None
    async with asyncio.timeout(60):
        while remote.text(DROP_IN) is not None:  # noqa: ASYNC110 - the host
            await asyncio.sleep(0.5)


async def test_a_change_taken_up_again_that_fails_says_that_the_host_will_put_it_back(remote: Remote) -> None:
    remote.install(faults="16=exit")
    async with remote.session() as session:
        assert (await start_service(session, timeouts=WAITS)).confirmed
        await cut_off_at(session, await with_timer(session, 120), "reload")
        (pending,) = pending_operations(session.paths, session.host, session.unit)
        result = await resume(session, pending, timeouts=WAITS)
        assert result.verdict is Verdict.PROCESS_DIED
        assert "puts the configuration of before back unless it is called off" in result.reason
