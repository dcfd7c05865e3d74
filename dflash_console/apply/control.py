"""Start, stop, restart and roll back: operations on the whole service, confirmed as an apply is."""

from __future__ import annotations

import time
from dataclasses import replace

from ..drift import DriftKind, truth_table
from ..effective import UNGIVEN
from ..evidence.file_edits import texts_digest
from ..hosts.service import RunState, ServiceState
from ..plan import Change, Mode, Plan
from ..session import HostSession
from .asked import asked_changes, dialect_of
from .confirmed import ConfirmedStore
from .drain import drain as drain_requests
from .earlier import way_back
from .edited import plan_rollback
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
        return _untouched(Verdict.UNNEEDED, text, state.invocation_id)
    if seen.stranger is not None:
        text = f"{session.unit} runs already{process}, and {seen.stranger.value.sentence}"
    elif seen.said_ready:
        text = f"{session.unit} runs already{process} and does not answer; restart starts it anew"
    else:
        text = f"{session.unit} is starting already{process} and is not ready yet; logs --follow shows how far it is"
    return _untouched(Verdict.REFUSED, text, state.invocation_id)


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
        if state.state not in (RunState.STOPPED, RunState.FAILED, RunState.MISSING):
            raise StageFailed(Verdict.TIMED_OUT, f"{session.unit} is {state.state.value} after the stop")
        if main is not None and await identify(session.transport, main.pid) == main:
            raise StageFailed(Verdict.TIMED_OUT, f"process {main.pid} still runs after the stop")
        notes.evidence = "the process is gone"


async def roll_back(
    session: HostSession, *, on_event: OnEvent | None = None, why: str = "", timeouts: Timeouts | None = None
) -> ApplyResult:
    """Go back to the last confirmed configuration that is not the one that runs confirmed now, or, when what is written was never
    confirmed, to what was there before.

    A change of the running engine that was never written down is taken back without a restart, if what is written is the
    confirmed configuration; otherwise the file has to go back, and with it the running engine.

    Raises:
        PlanError: the configuration cannot be read.
    """
    hot = await _hot_drift(session) if await _written_is_confirmed(session) else None
    if hot is not None:
        plan = await session.plan(hot)
        if not plan.blocked:
            result = await apply_plan(session, plan, on_event=on_event, why=why, what="rollback", timeouts=timeouts)
            return replace(result, rolled_back=result.confirmed)
    back = await way_back(session)
    if back is None:
        return _untouched(Verdict.REFUSED, "there is no earlier configuration to go back to", None)
    plan = await plan_rollback(session, back)
    result = await apply_plan(
        session, plan, rollback_on_failure=False, drain=False, on_event=on_event, why=why, what="rollback", timeouts=timeouts
    )
    if result.confirmed:
        return replace(result, rolled_back=True)
    changed = any(stage.name == "restart" for stage in result.stages)
    return replace(result, verdict=Verdict.ROLLBACK_FAILED) if changed and result.verdict is not Verdict.UNKNOWN else result


async def _written_is_confirmed(session: HostSession) -> bool:
    """Whether the configuration file is the newest confirmed one, or none was ever confirmed."""
    written = texts_digest(session.service.restorable(await session.service.configuration()))
    records = await ConfirmedStore(session.transport, session.service).records()
    return not records or records[0].digest == written


async def _hot_drift(session: HostSession) -> Change | None:
    """The change that takes back what was changed while running and not written down."""
    state = await session.watcher.refresh()
    rows = [row for row in truth_table(state).rows if row.kind is DriftKind.HOT_NOT_WRITTEN]
    if not rows or state.config is None:
        return None
    command = state.config.value.command
    asked = {change.knob: change.new for change in asked_changes(command, command, dialect_of(session))}
    settings = {row.knob: asked.get(row.knob, UNGIVEN.get(row.knob)) for row in rows}
    # A value that the engine chose itself at start is not known here; only a restart brings it back.
    return None if None in settings.values() else Change(settings, Mode.HOT)


def _untouched(verdict: Verdict, reason: str, invocation_id: str | None) -> ApplyResult:
    """Nothing was even begun."""
    return ApplyResult(False, verdict, reason, "", Mode.RESTART, (), invocation_id)
