"""A roll-back where an operation was cut off: what it does with that one is shown before it is done, by a plan like any other.

What the plan says is what :mod:`~dflash_console.apply.pending` does; under the unit's lock it is made out once more and compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..evidence.file_edits import FileEdit, edits_between, new_texts
from ..evidence.secrets import mask_argv
from ..hosts.transport import HostError, HostUnreachable
from ..knobs import KNOBS, Value
from ..plan import Finding, KnobChange, Mode, Plan, Predictions
from ..plan.maker import diff_of
from ..plan.masking import mask_values, secret_values
from ..session import HostSession
from .asked import asked_changes, dialect_of
from .examine import Found, examine
from .journal import OperationBegin, OperationJournal, PendingOperation, pending_operations
from .patience import Patience
from .records import StageFailed, Verdict
from .revert import edits_back
from .taken_up import TakenUp
from .writing import texts_now


@dataclass(frozen=True)
class LeftOver:
    """The newest operation of a unit that was cut off, seen by a roll-back."""

    plan: Plan | None
    """What takes it up; ``None``: there is nothing to take up."""
    finding: Finding
    """What is to be said of it."""


async def plan_left_over(session: HostSession) -> LeftOver | None:
    """What a roll-back has to do first; ``None`` when no operation was cut off. Changes nothing.

    Raises:
        HostUnreachable
    """
    found = pending_operations(session.paths, session.host, session.unit)
    if not found:
        return None
    run = TakenUp(session, found[-1], None, None)
    try:
        looked = await examine(session, run.pending)
        plan = await plan_taking_up(run, looked)
    except HostUnreachable:
        raise
    except (StageFailed, HostError) as error:
        why = error.reason if isinstance(error, StageFailed) else str(error)
        return LeftOver(None, Finding.warning("unfinished", f"{run.pending.words}: it is not undone by itself, for {why}"))
    if plan is not None:
        times = await session.history.stage_seconds(session.key) if plan.mode is Mode.RESTART else {}
        expected = Predictions(restart_s=sum(times.values()) if times else None, stage_seconds=times)
        return LeftOver(replace(plan, predictions=expected), plan.findings[0])
    if looked.foreign:
        said = f"{run.pending.words}: it is not undone by itself, since {run.begin.target} was changed by someone else meanwhile"
        return LeftOver(None, Finding.warning("unfinished", said))
    return LeftOver(None, Finding.info("unfinished", f"{run.pending.words}: it has left nothing to undo"))


async def plan_taking_up(run: TakenUp, found: Found) -> Plan | None:
    """What a roll-back does with a cut-off operation: undo it, or, when it was a roll-back itself, finish it.

    Returns:
        ``None`` when nothing is left to do, or it cannot be undone by itself.

    Raises:
        StageFailed, HostError: it cannot be made out.
    """
    if found.foreign or not _left(run, found):
        return None
    finishes = run.begin.what == "rollback"
    forward = await run.plan()
    edits: tuple[FileEdit, ...] = ()
    hot_values: dict[str, float] = {}
    restarts, note = False, ""
    if found.put_back:
        note = "the timer on the host has put the configuration of before back already: it is seen whether that runs"
    elif finishes:
        # A hot change is written down last, and not by whoever finishes it.
        edits = await _still_to_write(run, forward) if run.mode is Mode.RESTART else ()
        restarts = run.mode is Mode.RESTART and (bool(edits) or not (found.restarted and run.pending.restart_asked))
        note = "" if restarts else "its change was made already: it is confirmed"
    elif run.mode is Mode.HOT:
        edits = await _edits_back(run, forward) if found.written else ()
        hot_values = dict(run.begin.hot_before) if found.running and not found.restarted else {}
    elif run.begin.rolling_back and runs_back(run.begin, found):
        note = "the roll-back of its own has restarted the engine already: that start is confirmed"
    else:
        edits, restarts = await _edits_back(run, forward), found.restarted
        if not restarts:
            note = "the engine was not restarted with it, and goes on"
        elif not run.begin.ran_before:
            note = "the engine was stopped before it, and is stopped again"
    config = await run.session.service.configuration()
    # Where no start is to come, the files say what the command will be and nothing is proven of it.
    command = forward.command if finishes else forward.old_command
    proven = _restart_changes(run, forward, command, config.command) if restarts else ()
    verb = "finishes" if finishes else "undoes"
    said = f"{verb} what was not finished: {run.pending.words}" + (f"; {note}" if note else "")
    secrets = secret_values((*forward.command, *forward.old_command), config.environment)
    return replace(
        forward,
        mode=Mode.RESTART if restarts else Mode.HOT,
        edits=edits,
        diff=mask_values(diff_of(edits), secrets),
        command=command,
        old_command=config.command,
        shown_command=mask_argv(command),
        changes=_hot_changes(run.begin, forward) if hot_values else proven,
        hot_values=hot_values,
        undo_after_s=None,
        findings=(Finding.info("takes_up", said),),
        takes_up=run.pending.operation_id,
    )


def _left(run: TakenUp, found: Found) -> bool:
    """Whether it has changed anything that a roll-back could put back. A stop, a start and a restart change no configuration."""
    begin = run.begin
    if begin.what == "stop":
        return False
    if run.mode is Mode.HOT:
        return found.written or (found.running and not found.restarted)
    writes = begin.old_digest != begin.new_digest
    if begin.what == "rollback":
        return found.written or not writes
    return writes and (found.put_back or found.written or begin.rolling_back or run.pending.restart_asked)


def runs_back(begin: OperationBegin, found: Found) -> bool:
    """Whether the restart of a roll-back that was cut off has happened, so that it need not happen once more."""
    earlier = (None, begin.old_invocation, begin.back_from)
    return begin.back_from is not None and not found.written and found.running and found.invocation_id not in earlier


async def _edits_back(run: TakenUp, forward: Plan) -> tuple[FileEdit, ...]:
    return await edits_back(run.session, forward, Patience(run.session.transport, run.timeouts.link))


async def _still_to_write(run: TakenUp, forward: Plan) -> tuple[FileEdit, ...]:
    now = await texts_now(run.session.service, [edit.path for edit in forward.edits])
    return edits_between(now, new_texts(forward.edits))


def hot_wanted(begin: OperationBegin) -> dict[str, Value]:
    """The settings that a hot change has changed, with what was in effect before it."""
    wanted: dict[str, Value] = {}
    for name in begin.settings:
        knob = KNOBS[name]
        if knob.hot_name is not None and knob.hot_name in begin.hot_before:
            wanted[name] = knob.of_hot_value(begin.hot_before[knob.hot_name])
    return wanted


def _restart_changes(run: TakenUp, forward: Plan, command: Sequence[str], now: Sequence[str]) -> tuple[KnobChange, ...]:
    names = {change.knob for change in forward.changes}
    return tuple(change for change in asked_changes(command, now, dialect_of(run.session)) if change.knob in names)


def _hot_changes(begin: OperationBegin, forward: Plan) -> tuple[KnobChange, ...]:
    wanted = hot_wanted(begin)
    return tuple(replace(change, old=change.new, new=wanted[change.knob]) for change in forward.changes if change.knob in wanted)


async def as_it_was_shown(run: TakenUp, found: Found, shown: Plan) -> None:
    """Raises: StageFailed: what would be done now is not what the plan said."""
    now = await plan_taking_up(run, found)
    if now is None or (now.mode, now.edits, now.hot_values) != (shown.mode, shown.edits, shown.hot_values):
        raise StageFailed(Verdict.REFUSED, "what became of it has changed since the plan was made; plan again")


def find_left_over(session: HostSession, operation_id: str) -> PendingOperation | None:
    """The cut-off operation of a plan; ``None`` when it was decided meanwhile."""
    found = pending_operations(session.paths, session.host, session.unit)
    return next((pending for pending in found if pending.operation_id == operation_id), None)


def settle_left_over(session: HostSession) -> None:
    """After a roll-back to another configuration was confirmed, what was cut off before it wants no decision any more."""
    for pending in pending_operations(session.paths, session.host, session.unit):
        OperationJournal(pending.path).end(Verdict.CANCELLED.value, "the configuration was rolled back since")
