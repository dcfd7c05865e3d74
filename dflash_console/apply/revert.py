"""Rolling a restart back: the previous text restored, restarted, and confirmed in its turn."""

from __future__ import annotations

from dataclasses import replace

from ..effective import UNGIVEN
from ..evidence.command import flag_value
from ..evidence.file_edits import reverse_edits
from ..hosts.transport import HostError
from ..knobs import Value, find_knob
from ..plan import KnobChange, Mode, Plan
from ..session import HostSession
from .journal import OperationJournal
from .judge import overall
from .operation import Operation
from .records import ApplyResult, OnEvent, StageFailed, Timeouts, Verdict
from .restart import STAGES, RestartApply


async def revert_restart(
    session: HostSession,
    plan: Plan,
    failed: ApplyResult,
    journal: OperationJournal,
    timeouts: Timeouts,
    *,
    written: bool,
    was_running: bool,
    on_event: OnEvent | None,
) -> ApplyResult:
    """Undo what a failed apply did; the lock is still held. The answer is ``failed`` with what became of the roll-back.

    A service that was stopped before is stopped again: there was no running configuration to go back to.
    """
    journal.note(rolling_back=True)
    if not was_running:
        return await _stop_again(session, plan, failed, written=written)
    config = await session.service.configuration()
    operation = Operation(
        f"{failed.operation_id}-back",
        Mode.RESTART,
        STAGES,
        journal,
        expected=plan.predictions.stage_seconds,
        on_event=on_event,
        rolling_back=True,
    )
    back = backwards(plan, config.command, written=written)
    steps = RestartApply(session, back, operation, journal, timeouts)
    try:
        async with operation.stage("checks", Verdict.ROLLBACK_FAILED) as notes:
            notes.evidence = f"back to the configuration before {failed.operation_id}"
        await steps.run(drain=False)
    except (StageFailed, HostError) as error:
        reason = error.reason if isinstance(error, StageFailed) else str(error)
        rollback = operation.result(Verdict.ROLLBACK_FAILED, reason, failed=error if isinstance(error, StageFailed) else None)
        text = f"{failed.reason}; and the roll-back failed: {reason}"
        return replace(
            failed, verdict=Verdict.ROLLBACK_FAILED, reason=text, rollback=rollback, invocation_id=operation.invocation_id
        )
    words = "; ".join(proof.words for proof in steps.proofs)
    if overall(steps.proofs) is not Verdict.CONFIRMED:
        rollback = operation.result(Verdict.UNKNOWN, words)
        text = f"{failed.reason}; rolled back: the previous configuration runs, but this engine cannot confirm all of it: {words}"
        return replace(failed, reason=text, rollback=rollback, invocation_id=operation.invocation_id)
    rollback = operation.result(Verdict.CONFIRMED, words, rolled_back=True)
    text = f"{failed.reason}; rolled back: the previous configuration runs and is confirmed"
    return replace(failed, reason=text, rolled_back=True, rollback=rollback, invocation_id=operation.invocation_id)


async def _stop_again(session: HostSession, plan: Plan, failed: ApplyResult, *, written: bool) -> ApplyResult:
    try:
        await session.service.stop()
        if written:
            await session.service.write(reverse_edits(plan.edits))
            await session.service.reload()
    except HostError as error:
        text = f"{failed.reason}; and the roll-back failed: {error}"
        return replace(failed, verdict=Verdict.ROLLBACK_FAILED, reason=text)
    return replace(failed, reason=f"{failed.reason}; rolled back: stopped, as it was before", rolled_back=True)


def backwards(plan: Plan, command: tuple[str, ...], *, written: bool) -> Plan:
    """The plan that undoes ``plan``: old text for new, and the values that the old command asks for."""
    changes = tuple(replace(change, old=change.new, new=_asked(plan.old_command, change)) for change in plan.changes)
    return replace(
        plan,
        mode=Mode.RESTART,
        edits=reverse_edits(plan.edits) if written else (),
        command=plan.old_command if written else command,
        changes=changes,
        findings=(),
        # What was written is checked when it is written back.
        digests={},
    )


def _asked(command: tuple[str, ...], change: KnobChange) -> Value | None:
    knob = find_knob(change.knob)
    given = flag_value(command, knob)
    return knob.shown(given.value) if given.given else UNGIVEN.get(knob.name)
