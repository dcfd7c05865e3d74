"""Rolling a restart back: the previous text restored, restarted, and confirmed in its turn."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from ..effective import UNGIVEN
from ..evidence.command import flag_value
from ..evidence.file_edits import FileEdit, edits_between, old_texts
from ..hosts.transport import HostError
from ..knobs import Value, find_knob
from ..plan import KnobChange, Mode, Plan
from ..session import HostSession
from .journal import JournalError, OperationJournal
from .judge import overall
from .operation import Operation
from .patience import LinkLost, Patience
from .records import ApplyResult, OnEvent, StageFailed, Timeouts, Verdict
from .restart import STAGES, RestartApply
from .undo import Undo
from .writing import texts_now, write_edits


async def put_files_back(session: HostSession, plan: Plan, timeouts: Timeouts) -> bool:
    """Make the files of a change what they were before, and have the manager read them; whether any had to be written.

    For an engine that was not restarted. Each file is looked at: a write that failed may have got to some of them.

    Raises:
        HostError: it cannot be done, somebody else changed a file since, or the manager does not load the command of before.
        LinkLost
    """
    service, patience = session.service, Patience(session.transport, timeouts.link)
    edits = await edits_back(session, plan, patience)
    await write_edits(service, edits, patience)
    try:
        await patience.ask(service.reload)
    except HostError as error:
        # A manager that reads nothing has not read the change either.
        config = await patience.ask(service.configuration)
        if not service.loads_on_reload or config.loaded != plan.old_command:
            raise HostError(f"the files are as they were, and the manager does not read them: {error}") from error
    return bool(edits)


async def revert_restart(
    session: HostSession,
    plan: Plan,
    failed: ApplyResult,
    journal: OperationJournal,
    timeouts: Timeouts,
    *,
    was_running: bool,
    on_event: OnEvent | None,
) -> ApplyResult:
    """Undo what a failed apply did; the lock is still held. The answer is ``failed`` with what became of the roll-back.

    A service that was stopped before is stopped again: there was no running configuration to go back to.

    Raises:
        LinkLost: what became of the roll-back is not known.
    """
    # Without room for the note it goes on: a change that failed is better undone than left.
    with contextlib.suppress(JournalError):
        journal.note(rolling_back=True)
    if not was_running:
        return await _stop_again(session, plan, failed, timeouts)
    operation = Operation(
        f"{failed.operation_id}-back",
        Mode.RESTART,
        STAGES,
        journal,
        expected=plan.predictions.stage_seconds,
        on_event=on_event,
        rolling_back=True,
    )
    patience = Patience(session.transport, timeouts.link, operation.move)
    undo = Undo(session, plan, patience)
    try:
        async with operation.stage("checks", Verdict.ROLLBACK_FAILED) as notes:
            config = await patience.ask(session.service.configuration)
            edits = await edits_back(session, plan, patience)
            notes.evidence = f"back to the configuration before {failed.operation_id}"
        back = backwards(plan, config.command, edits)
        # Its time begins anew: a console that is lost during the roll-back leaves it to the host.
        await undo.rearm()
        steps = RestartApply(session, back, operation, journal, timeouts)
        await steps.run(drain=False)
        if not await undo.off():
            raise StageFailed(Verdict.ROLLBACK_FAILED, f"{undo.fired_words}, in the middle of the roll-back: look at the unit")
    except LinkLost:
        raise
    except (StageFailed, HostError) as error:
        with contextlib.suppress(HostError):
            await undo.off()
        reason = error.reason if isinstance(error, StageFailed) else str(error)
        rollback = operation.result(Verdict.ROLLBACK_FAILED, reason, failed=error if isinstance(error, StageFailed) else None)
        text = f"{failed.reason}; and the roll-back failed: {reason}"
        return replace(
            failed, verdict=Verdict.ROLLBACK_FAILED, reason=text, rollback=rollback, invocation_id=operation.invocation_id
        )
    words = "; ".join(filter(None, (*(proof.words for proof in steps.proofs), steps.unproven)))
    if overall(steps.proofs) is not Verdict.CONFIRMED:
        rollback = operation.result(Verdict.UNKNOWN, words)
        text = f"{failed.reason}; rolled back: the previous configuration runs, but this engine cannot confirm all of it: {words}"
        return replace(failed, reason=text, rollback=rollback, invocation_id=operation.invocation_id)
    rollback = operation.result(Verdict.CONFIRMED, words, rolled_back=True)
    text = f"{failed.reason}; rolled back: the previous configuration runs and is confirmed"
    return replace(failed, reason=text, rolled_back=True, rollback=rollback, invocation_id=operation.invocation_id)


async def _stop_again(session: HostSession, plan: Plan, failed: ApplyResult, timeouts: Timeouts) -> ApplyResult:
    try:
        await Patience(session.transport, timeouts.link).ask(session.service.stop)
        await put_files_back(session, plan, timeouts)
        await Undo(session, plan, Patience(session.transport, timeouts.link)).off()
    except HostError as error:
        text = f"{failed.reason}; and the roll-back failed: {error}"
        return replace(failed, verdict=Verdict.ROLLBACK_FAILED, reason=text)
    return replace(failed, reason=f"{failed.reason}; rolled back: stopped, as it was before", rolled_back=True)


async def edits_back(session: HostSession, plan: Plan, patience: Patience) -> tuple[FileEdit, ...]:
    """What makes the files of a change what they were before it, the one that was written last first.

    Raises:
        HostError: one holds neither text: somebody else has changed it since, and that is not overwritten.
        LinkLost
    """
    now = await patience.ask(lambda: texts_now(session.service, [edit.path for edit in plan.edits]))
    for edit in plan.edits:
        if now[edit.path] not in (edit.old, edit.new):
            raise HostError(f"{edit.path} was changed by someone else since: it is left as it is, look at it")
        if edit.lossy and now[edit.path] != edit.old:
            raise HostError(
                f"{edit.path} held bytes that are no UTF-8, so it stays as it is now; they are in {session.service.keep}"
            )
    return edits_between(now, old_texts(reversed(plan.edits)))


def backwards(plan: Plan, command: tuple[str, ...], edits: tuple[FileEdit, ...]) -> Plan:
    """The plan that undoes ``plan``, with the values that the old command asks for.

    Args:
        command: what is effective now.
        edits: what makes the files that are there now those of before; none when nothing was written.
    """
    changes = tuple(replace(change, old=change.new, new=_asked(plan.old_command, change)) for change in plan.changes)
    return replace(
        plan,
        mode=Mode.RESTART,
        edits=edits,
        command=plan.old_command if edits else command,
        changes=changes,
        findings=(),
        # What was written is checked when it is written back.
        digests={},
        undo_after_s=None,
    )


def _asked(command: tuple[str, ...], change: KnobChange) -> Value | None:
    knob = find_knob(change.knob)
    given = flag_value(command, knob)
    return knob.shown(given.value) if given.given else UNGIVEN.get(knob.name)
