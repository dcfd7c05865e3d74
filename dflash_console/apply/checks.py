"""Before anything is changed, with the lock held: nothing that the plan was made from may have changed since."""

from __future__ import annotations

from ..evidence.file_edits import text_digest
from ..formats import counted
from ..hosts.service import RunState
from ..hosts.transport import HostFileError
from ..plan import Mode, Plan
from ..session import HostSession
from .operation import Operation
from .records import StageFailed, Verdict
from .undo import call_off_foreign, foreign_timer
from .writing import texts_now


async def check_plan(session: HostSession, plan: Plan, operation: Operation, what: str) -> None:
    """The first stage of every operation.

    Args:
        what: ``apply``, ``restart``, ``start`` or ``rollback``. A roll-back calls an earlier change's timer off instead of
            waiting for it; a start is for a service that does not run.

    Raises:
        StageFailed: with REFUSED; nothing was changed.
    """
    async with operation.stage("checks", Verdict.REFUSED) as notes:
        if session.read_only:
            raise StageFailed(Verdict.REFUSED, "the console is read-only: start it without --read-only to change anything")
        if plan.blocked:
            raise StageFailed(Verdict.REFUSED, plan.errors[0].message)
        for path, digest in plan.digests.items():
            try:
                found: str | None = text_digest((await session.service.read(path)).decode("utf-8", "replace"))
            except HostFileError:
                found = None
            if found != digest:
                raise StageFailed(Verdict.REFUSED, f"{path} was changed since the plan was made; plan again")
        await _same_files(session, plan)
        await _no_timer(session, rolling_back=what == "rollback")
        state = await session.service.state()
        if what == "start" and state.state in (RunState.RUNNING, RunState.STARTING):
            running = f"{session.unit} was started meanwhile (process {state.main_pid}); use restart to start it anew"
            raise StageFailed(Verdict.REFUSED, running)
        if plan.mode is Mode.HOT and state.invocation_id != plan.invocation_id:
            raise StageFailed(Verdict.REFUSED, "the engine was restarted since the plan was made; plan again")
        warned = f", {counted(len(plan.warnings), 'warning')}" if plan.warnings else ""
        notes.evidence = f"{counted(len(plan.digests), 'file')} unchanged since the plan{warned}"


async def _same_files(session: HostSession, plan: Plan) -> None:
    """Files that came since the plan was made: where it writes, and wherever they make the unit run another command."""
    service = session.service
    now = await texts_now(service, [edit.path for edit in plan.edits])
    for edit in plan.edits:
        if now[edit.path] != edit.old:
            raise StageFailed(Verdict.REFUSED, f"{edit.path} was changed since the plan was made; plan again")
    if plan.mode is not Mode.RESTART:
        return
    try:
        config = await service.configuration()
        command, by = config.command, config.command_path or "another file"
    except HostFileError as error:
        if not error.missing:
            raise
        command, by = (), "its removal"
    if command != plan.old_command:
        raise StageFailed(Verdict.REFUSED, f"the unit's command was changed since the plan was made (by {by}); plan again")


async def _no_timer(session: HostSession, *, rolling_back: bool) -> None:
    """The timer of an earlier change, left by a console that is gone, must not fire into this one."""
    if rolling_back:
        await call_off_foreign(session)
    elif words := await foreign_timer(session):
        raise StageFailed(Verdict.REFUSED, words)
