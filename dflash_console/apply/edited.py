"""Plans that change files as a whole instead of single settings: back to an earlier configuration, and what becomes of the
console's own drop-in when the unit under it has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..evidence.file_edits import FileEdit, edits_between, new_texts
from ..evidence.secrets import mask_argv
from ..hosts.address import engine_address
from ..hosts.transport import HostError, HostUnreachable
from ..plan import Change, Finding, Mode, Plan, PlanError, Predictions
from ..plan.maker import diff_of
from ..plan.masking import mask_values, secret_values
from ..session import HostSession
from ..survey import who_has_port
from .asked import asked_changes, dialect_of, unproven
from .earlier import WayBack

NOTHING_HIDDEN = "has nothing to carry over: no drop-in of the console's hides a change of it"


class NotPutBack(PlanError):
    """The files of an earlier configuration make none together with what is there."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} cannot be put back: {why}")
        self.why = why


async def plan_rollback(session: HostSession, back: WayBack) -> Plan:
    """The plan that puts an earlier configuration back; an info among its findings says which.

    Raises:
        NotPutBack: its files do not work beside the unit's own as that is now.
        PlanError: no plan can be made.
        HostError
    """
    base = await session.plan(Change({}, Mode.RESTART))
    try:
        command = await session.service.command_with(back.texts)
        now = session.service.restorable(await session.service.configuration())
    except HostUnreachable:
        raise
    except HostError as error:
        raise NotPutBack(back.name, str(error)) from None
    # Findings and arithmetic are about the configuration that is left. This one is known to work, and its restart takes as long.
    expected = Predictions(restart_s=base.predictions.restart_s, stage_seconds=base.predictions.stage_seconds)
    goes_back = Finding.info("goes_back_to", f"goes back to {back.name}")
    plan = _with_edits(session, base, edits_between(now, back.texts), command)
    return replace(plan, predictions=expected, findings=(*await port_findings(session, plan), goes_back, *_unproven(plan)))


async def port_findings(session: HostSession, plan: Plan) -> tuple[Finding, ...]:
    """The port that the earlier configuration needs: what would keep its engine from listening stops the roll-back before it
    begins, as it stops a start."""
    state = session.watcher.state
    if not plan.edits and state.config is not None and state.config.value.chosen_port is not None:
        return ()  # Nothing is written, so the start takes the next port that is free.
    try:
        holder = await who_has_port(state, plan.command, session.transport)
    except HostError:
        return ()
    if holder is None:
        return ()
    address = engine_address(plan.command)
    port = f"port {address.port}" if address is not None else "the port"
    said = f"{port} of that configuration is held by {holder}: the engine could not listen; end that first"
    return (Finding.error("port_busy", said),)


def _unproven(plan: Plan) -> tuple[Finding, ...]:
    """What the plan changes and no setting tells: whoever reads *confirmed* at the end has to know what that leaves out."""
    others = unproven(plan.command, plan.old_command, plan.changes)
    if others:
        return (Finding.warning("not_proven", f"also changes {', '.join(others)}: the diff shows how, and nothing proves it"),)
    if plan.edits and plan.command == plan.old_command:
        said = "the command stays as it is: what else changes is in the diff, and nothing but the start proves it"
        return (Finding.warning("not_proven", said),)
    return ()


async def plan_rebase(session: HostSession) -> Plan:
    """The plan that carries the settings of the console's drop-in over to the unit as it is now.

    Raises:
        PlanError: there is nothing to carry over, or both changed the same words.
    """
    plan = await _plan_drop_in(session, session.service.rebase, NOTHING_HIDDEN)
    state = session.watcher.state
    if state.config is None or not state.config.value.shadowed:
        raise PlanError(f"{session.unit} {NOTHING_HIDDEN}")
    return plan


async def plan_release(session: HostSession) -> Plan:
    """The plan that removes the console's drop-in, so that the unit's own command is in effect again. Raises: PlanError."""
    return await _plan_drop_in(session, session.service.release, "has no drop-in of the console's, so there is nothing to remove")


async def _plan_drop_in(session: HostSession, edit: Callable[[], tuple[FileEdit, ...]], nothing: str) -> Plan:
    base = await session.plan(Change({}, Mode.RESTART))
    try:
        edits = edit()
        command = await session.service.command_with(new_texts(edits))
    except HostError as error:
        raise PlanError(str(error)) from None
    if not edits:
        raise PlanError(f"{session.unit} {nothing}")
    return _with_edits(session, base, edits, command)


def _with_edits(session: HostSession, base: Plan, edits: tuple[FileEdit, ...], command: tuple[str, ...]) -> Plan:
    secrets = secret_values((*base.command, *command), {})
    return replace(
        base,
        target=", ".join(edit.path for edit in edits) or base.target,
        edits=edits,
        diff=mask_values(diff_of(edits), secrets),
        command=command,
        shown_command=mask_argv(command),
        changes=asked_changes(command, base.command, dialect_of(session)),
    )
