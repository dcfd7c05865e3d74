"""Sessions on stand-in units, with waits that end a test that is stuck and not one that shares its machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from dflash_console.apply import ApplyResult, Stage, Timeouts, apply_plan, plan_roll_back, start_service
from dflash_console.config import Config, Sampling
from dflash_console.evidence.server import in_effect_reading
from dflash_console.knobs import KNOBS, Value
from dflash_console.paths import Paths
from dflash_console.plan import Change, Mode, Plan
from dflash_console.session import HostSession, open_session

FAST = Timeouts(restart=40, ready=60, prompt=40, drain=20, hot=10)
IMPATIENT = Timeouts(restart=2.0, ready=3.0, prompt=20.0, drain=0.6, hot=1.0)
"""For waits that are meant to run out, with nothing that must have happened by then."""
NEVER_READY = replace(FAST, ready=8)
"""For a start that is meant to hang: long enough for its lines before that, and for the old engine, also on a busy machine."""


def paths_under(folder: Path) -> Paths:
    return Paths(folder / "config", folder / "state", folder / "cache")


@asynccontextmanager
async def session_on(tmp_path: Path, unit: str = "engine", config: Config | None = None) -> AsyncIterator[HostSession]:
    config = config or Config(sampling=Sampling(interval_s=0.2))
    session = await open_session(unit=unit, config=config, paths=paths_under(tmp_path))
    try:
        yield session
    finally:
        await session.close()


async def started(session: HostSession) -> ApplyResult:
    result = await start_service(session, timeouts=FAST)
    assert result.confirmed, result.reason
    return result


async def change(
    session: HostSession,
    settings: Mapping[str, Value | None],
    mode: Mode = Mode.RESTART,
    *,
    rollback: bool = False,
    timeouts: Timeouts = FAST,
    persist: bool = False,
) -> ApplyResult:
    plan = await session.plan(Change(settings, mode, persist))
    assert not plan.blocked, plan.findings
    return await apply_plan(session, plan, rollback_on_failure=rollback, timeouts=timeouts)


async def in_effect(session: HostSession, knob: str) -> Value | None:
    """What the engine itself says that it uses now."""
    state = await session.watcher.refresh()
    assert state.server is not None
    return in_effect_reading(state.server.value, KNOBS[knob]).value


def stage(result: ApplyResult, name: str) -> Stage:
    return next(found for found in result.stages if found.name == name)


async def planned_roll_back(session: HostSession) -> Plan:
    """The plan of a roll-back that nothing stands in the way of."""
    plan = await plan_roll_back(session)
    assert plan is not None
    assert not plan.blocked, plan.findings
    return plan


def said(plan: Plan) -> str:
    """What a plan finds, in one text."""
    return " | ".join(finding.message for finding in plan.findings)
