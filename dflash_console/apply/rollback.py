"""Roll back as the user asks for it: to the configuration of before, and how that is chosen.

What an operation that fails takes back of itself is in :mod:`~dflash_console.apply.revert`.
"""

from __future__ import annotations

from dataclasses import replace

from ..drift import DriftKind, truth_table
from ..effective import UNGIVEN
from ..evidence.file_edits import texts_digest
from ..hosts.transport import HostError
from ..plan import Change, Finding, Mode, Plan, PlanError, Severity
from ..session import HostSession
from .asked import asked_changes, dialect_of
from .confirmed import ConfirmedStore
from .earlier import way_back
from .edited import NotPutBack, plan_rollback
from .engine import apply_plan
from .journal import pending_operations
from .pending import call_off, take_up_as_shown
from .records import ApplyResult, OnEvent, Timeouts, Verdict
from .spoilt import find_spoilt, plan_from_spoilt, plan_whole
from .unfinished import find_left_over, plan_left_over, settle_left_over

NOTHING_EARLIER = "there is no earlier configuration to go back to"
TAKES_BACK = Finding.info("goes_back_to", "takes back what was changed while the engine ran and never written down")


async def plan_roll_back(session: HostSession) -> Plan | None:
    """The plan of a roll-back; ``None`` when nothing earlier is known. Changes nothing.

    An operation that was cut off comes first: it is undone before anything else is gone back from, and the plan says so. Where
    there is nothing to undo of it, or somebody else has changed its files since, the plan leads to an earlier configuration, and
    says what became of it.

    Raises:
        PlanError: no plan can be made.
        HostError: the configuration cannot be read.
    """
    left = await plan_left_over(session)
    if left is None:
        return await _plan_earlier(session)
    if left.plan is not None:
        return left.plan
    plan = await _plan_earlier(session)
    if plan is None and left.finding.severity is Severity.WARNING:
        raise PlanError(f"{NOTHING_EARLIER}; {left.finding.message}")
    return None if plan is None else replace(plan, findings=(*plan.findings, left.finding))


async def way_of_roll_back(session: HostSession) -> str:
    """What a roll-back would do beside an operation that was cut off, in words behind its name. Changes nothing."""
    try:
        return way_words(await plan_roll_back(session))
    except (PlanError, HostError) as error:
        return f"cannot go back as things are ({error})"


def way_words(plan: Plan | None) -> str:
    """What the plan of a roll-back does with the operation that was cut off: undo it, finish it, or pass it over."""
    if plan is None:
        return "has nothing to undo, and nowhere earlier to go"
    said = next((finding.message for finding in plan.findings if finding.code in ("takes_up", "goes_back_to")), "goes back")
    verb = said.partition(" ")[0]
    way = f"{verb} it" if plan.takes_up else f"does not undo it and {said}"
    return f"{way}, which is blocked now: {plan.errors[0].message}" if plan.blocked else way


async def _plan_earlier(session: HostSession) -> Plan | None:
    """The plan that goes back to the last confirmed configuration before the one that is written, or, when what is written was
    never confirmed, to what was there before.

    A change of the running engine that was never written down is taken back without a restart, if what is written is the
    confirmed configuration; otherwise the file has to go back, and with it the running engine. Where what is written cannot be
    used at all, the last kept configuration takes its place.
    """
    if (spoilt := await find_spoilt(session)) is not None and (plan := await plan_from_spoilt(session, spoilt)) is not None:
        return plan
    hot = await _hot_drift(session) if await _written_is_confirmed(session) else None
    if hot is not None:
        plan = await session.plan(hot)
        if not plan.blocked:
            return replace(plan, findings=(*plan.findings, TAKES_BACK))
    back = await way_back(session)
    if back is None:
        return None
    try:
        return await plan_rollback(session, back)
    except NotPutBack as error:
        if not back.unit or (plan := await plan_whole(session, back, error.why)) is None:
            raise
        return plan


async def carry_out_roll_back(
    session: HostSession,
    plan: Plan | None,
    *,
    drain: bool = False,
    on_event: OnEvent | None = None,
    why: str = "",
    timeouts: Timeouts | None = None,
) -> ApplyResult:
    """Carry out what :func:`plan_roll_back` answered, and confirm it. It is not rolled back in its turn when it fails.

    Without a plan there is no way back; an operation that was cut off and has left nothing to undo is decided then.
    """
    if plan is None:
        left = pending_operations(session.paths, session.host, session.unit)
        if left:
            return await call_off(session, left[-1], on_event=on_event, timeouts=timeouts)
        return ApplyResult.not_begun(Verdict.REFUSED, NOTHING_EARLIER)
    if plan.takes_up:
        pending = find_left_over(session, plan.takes_up)
        if pending is None:
            return ApplyResult.not_begun(Verdict.REFUSED, "what was cut off was decided since the plan was made; plan again")
        return await take_up_as_shown(session, pending, plan, on_event=on_event, timeouts=timeouts)
    hot = plan.mode is Mode.HOT
    result = await apply_plan(
        session,
        plan,
        rollback_on_failure=None if hot else False,
        drain=drain,
        on_event=on_event,
        why=why,
        what="rollback",
        timeouts=timeouts,
    )
    if result.confirmed and not hot:
        settle_left_over(session)
    if hot or result.confirmed:
        return replace(result, rolled_back=result.confirmed)
    changed = any(stage.name == "restart" for stage in result.stages)
    return replace(result, verdict=Verdict.ROLLBACK_FAILED) if changed and result.verdict is not Verdict.UNKNOWN else result


async def roll_back(
    session: HostSession, *, on_event: OnEvent | None = None, why: str = "", timeouts: Timeouts | None = None
) -> ApplyResult:
    """:func:`plan_roll_back`, carried out at once. Raises: PlanError, HostError."""
    plan = await plan_roll_back(session)
    return await carry_out_roll_back(session, plan, on_event=on_event, why=why, timeouts=timeouts)


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
