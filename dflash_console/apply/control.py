"""Start, stop and restart of the whole service, confirmed as an apply is."""

from __future__ import annotations

import time
from dataclasses import replace

from ..hosts.service import ENDED, RunState, ServiceState
from ..plan import Change, Mode, Plan
from ..session import HostSession
from .asked import asked_changes, dialect_of
from .drain import drain as drain_requests
from .engine import apply_plan, default_timeouts
from .held import hold_unit
from .journal import JournalError, OperationBegin, OperationJournal, new_operation_id, own_identity, pending_operations
from .operation import Operation
from .patience import lost_link
from .records import ApplyResult, OnEvent, StageFailed, Timeouts, Verdict
from .remember import remember
from .start import identify
from .undo import call_off_foreign

STOP_STAGES = ("checks", "drain", "stop", "gone")


async def restart_service(
    session: HostSession,
    *,
    drain: bool | None = None,
    on_event: OnEvent | None = None,
    why: str = "",
    timeouts: Timeouts | None = None,
) -> ApplyResult:
    """Restart with the configuration as it is written, and prove everything that it asks for.

    Raises:
        PlanError: the configuration cannot be read.
    """
    plan = await plan_restart(session)
    return await apply_plan(
        session, plan, rollback_on_failure=False, drain=drain, on_event=on_event, why=why, what="restart", timeouts=timeouts
    )


async def start_service(
    session: HostSession, *, on_event: OnEvent | None = None, why: str = "", timeouts: Timeouts | None = None
) -> ApplyResult:
    """Start a stopped service, confirmed as a restart is. One that runs already is left alone: when it answers, there is nothing
    to do; when it does not, a start is refused, for only a restart could help.

    Raises:
        PlanError: the configuration cannot be read.
    """
    state = await session.service.state()
    if state.state in (RunState.RUNNING, RunState.STARTING):
        return await _runs_already(session, state)
    plan = await plan_restart(session)
    return await apply_plan(
        session, plan, rollback_on_failure=False, drain=False, on_event=on_event, why=why, what="start", timeouts=timeouts
    )


async def _runs_already(session: HostSession, state: ServiceState) -> ApplyResult:
    seen = await session.watcher.refresh()
    process = f" (process {state.main_pid})" if state.main_pid is not None else ""
    if seen.ready:
        text = f"{session.unit} runs already{process} and answers; restart starts it anew"
        return ApplyResult.not_begun(Verdict.UNNEEDED, text, state.invocation_id)
    if seen.stranger is not None:
        text = f"{session.unit} runs already{process}, and {seen.stranger.value.sentence}"
    elif seen.silent:
        text = f"{session.unit} runs already{process} and does not answer; restart starts it anew"
    elif seen.service is not None and seen.service.value.state in (RunState.STOPPING, *ENDED):
        text = f"{session.unit} was running{process} and is now {seen.service.value.state.value}; start it again in a moment"
    else:
        text = f"{session.unit} is starting already{process} and is not ready yet; logs --follow shows how far it is"
    return ApplyResult.not_begun(Verdict.REFUSED, text, state.invocation_id)


async def plan_restart(session: HostSession) -> Plan:
    """The plan of a restart that changes no setting. Raises: PlanError."""
    plan = await session.plan(Change({}, Mode.RESTART))
    state = session.watcher.state
    loaded = state.config.value.loaded if state.config is not None else None
    return replace(plan, changes=asked_changes(plan.command, loaded or plan.command, dialect_of(session)))


async def stop_service(
    session: HostSession,
    *,
    drain: bool | None = None,
    on_event: OnEvent | None = None,
    why: str = "",
    timeouts: Timeouts | None = None,
) -> ApplyResult:
    """Stop the service; confirmed when it is stopped and its process is gone.

    A stop has nothing to go back to, so it goes on without its journal when that cannot be written: a full disk
    is a reason to stop.
    """
    waits = timeouts or default_timeouts(session)
    operation_id = new_operation_id()
    journal = OperationJournal(session.paths.operations / f"{operation_id}.jsonl")
    operation = Operation(operation_id, Mode.RESTART, STOP_STAGES, journal, expected={}, on_event=on_event)
    pid, ticks = own_identity()
    record = OperationBegin(operation_id, "stop", session.host, session.unit, "stop", time.time(), pid, ticks)
    unwritten = ""

    def begin() -> None:
        nonlocal unwritten
        try:
            journal.begin(record)
        except JournalError as error:
            unwritten = f"; {error}, so it was done without"

    async def change() -> ApplyResult:
        try:
            await _stop(session, operation, session.config.apply.drain if drain is None else drain, waits)
        except StageFailed as failure:
            lost = lost_link(session.transport, failure)
            if lost is None or lost is failure or all(stage.name != "stop" for stage in operation.stages):
                raise
            raise lost from failure
        _supersede(session)
        return operation.result(Verdict.CONFIRMED, f"{session.unit} is stopped and its process is gone{unwritten}")

    result = await hold_unit(session, operation, journal, "stop", begin=begin, change=change)
    await remember(session, result, "stop", "", why, operation.stage_seconds())
    return result


def _supersede(session: HostSession) -> None:
    """End what was cut off and has nothing left to go on with once the engine is stopped: earlier stops, and hot changes. A
    change of the file stays: it still wants to be confirmed or rolled back."""
    for pending in pending_operations(session.paths, session.host, session.unit):
        if pending.begin.what == "stop" or pending.begin.mode == Mode.HOT.value:
            OperationJournal(pending.path).end(Verdict.CANCELLED.value, "the service was stopped since")


async def _stop(session: HostSession, operation: Operation, drain: bool, timeouts: Timeouts) -> None:
    async with operation.stage("checks", Verdict.REFUSED) as notes:
        if session.read_only:
            raise StageFailed(Verdict.REFUSED, "the console is read-only: start it without --read-only to change anything")
        await call_off_foreign(session)
        state = await session.service.state()
        operation.invocation_id = state.invocation_id
        main = await identify(session.transport, state.main_pid) if state.main_pid is not None else None
        notes.evidence = f"process {state.main_pid}" if main is not None else "nothing runs"
    if drain and main is not None:
        async with operation.stage("drain", Verdict.TIMED_OUT) as notes:
            await drain_requests(session, notes, timeouts.drain)
    else:
        operation.skip("drain", "not asked for" if main is not None else "nothing runs")
    async with operation.stage("stop", Verdict.TIMED_OUT) as notes:
        await session.service.stop(timeout=timeouts.restart)
        notes.evidence = (await session.service.state()).state.value
    async with operation.stage("gone", Verdict.TIMED_OUT) as notes:
        state = await session.service.state()
        if state.state not in ENDED:
            raise StageFailed(Verdict.TIMED_OUT, f"{session.unit} is {state.state.value} after the stop")
        if main is not None and await identify(session.transport, main.pid) == main:
            raise StageFailed(Verdict.TIMED_OUT, f"process {main.pid} still runs after the stop")
        notes.evidence = "the process is gone"
