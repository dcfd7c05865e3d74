"""One cut-off operation taken up again: under the unit's lock and in its own journal, with its plan made out again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..evidence.file_edits import edits_between
from ..hosts.transport import HostError
from ..knobs import find_knob
from ..plan import KnobChange, Mode, Plan, Predictions
from ..proof import proof_sources, proof_words
from ..session import HostSession
from . import restart
from .asked import asked_changes, dialect_of
from .audit import who
from .confirmed import ConfirmedStore
from .engine import default_timeouts
from .examine import Found, examine
from .journal import OperationJournal, PendingOperation, own_identity
from .operation import Operation
from .records import ApplyResult, OnEvent, StageFailed, Timeouts, Verdict
from .remember import remember, setting_words


class TakenUp:
    """One cut-off operation taken up again, under the lock and in its own journal."""

    def __init__(
        self, session: HostSession, pending: PendingOperation, on_event: OnEvent | None, timeouts: Timeouts | None
    ) -> None:
        self.session = session
        self.pending = pending
        self.begin = pending.begin
        self.on_event = on_event
        self.timeouts = timeouts or default_timeouts(session)
        self.journal = OperationJournal(pending.path)
        self.mode = Mode.HOT if self.begin.mode == Mode.HOT.value else Mode.RESTART
        self.operation = Operation(
            self.begin.operation_id, self.mode, restart.STAGES, self.journal, expected={}, on_event=on_event
        )

    async def run(self, way: Callable[[TakenUp, Found], Awaitable[ApplyResult]], name: str) -> ApplyResult:
        what = f"{name} of {self.begin.what}"
        try:
            async with self.session.service.lock(f"{what} by {who()}"):
                pid, ticks = own_identity()
                self.journal.note(console_pid=pid, console_ticks=ticks, abandoned=False)
                try:
                    if self.session.read_only:
                        raise StageFailed(Verdict.REFUSED, "the console is read-only: nothing was done")
                    found = await examine(self.session, self.pending)
                except StageFailed as error:
                    self.journal.note(abandoned=True)
                    raise HostError(error.reason) from error
                except BaseException:
                    self.journal.note(abandoned=True)
                    raise
                try:
                    result = await way(self, found)
                except StageFailed as error:
                    result = self.operation.result(error.verdict, error.reason, failed=error)
                except HostError as error:
                    result = self.operation.result(Verdict.NOT_READY, str(error))
                except asyncio.CancelledError:
                    self.journal.note(abandoned=True)
                    raise
                if result.verdict in (Verdict.REFUSED, Verdict.LINK_DOWN):
                    self.journal.note(abandoned=True)
                else:
                    self.journal.end(result.verdict.value, result.reason)
        except HostError as error:
            result = self.operation.result(Verdict.REFUSED, str(error))
        await remember(self.session, result, what, setting_words(self.begin.settings), "", {})
        return result

    async def plan(self) -> Plan:
        """The plan as far as the journal and the kept texts give it back. Raises: HostError."""
        session, begin = self.session, self.begin
        config = await session.service.configuration()
        old = new = session.service.restorable(config)
        if begin.backup:
            store = ConfirmedStore(session.transport, session.service)
            old, new = await store.read_texts(begin.backup), await store.read_texts(begin.planned)
        old_command, command = await session.service.command_with(old), await session.service.command_with(new)
        dialect = dialect_of(session)
        changes = tuple(
            KnobChange(name, None, value, proof_sources(find_knob(name), dialect), proof_words(find_knob(name), ()))
            for name, value in begin.settings.items()
        )
        drafter = session.watcher.state.drafter
        return Plan(
            host=session.host,
            unit=session.unit,
            mode=self.mode,
            target=begin.target,
            edits=edits_between(old, new),
            diff="",
            command=command,
            old_command=old_command,
            shown_command=(),
            changes=changes or asked_changes(command, old_command, dialect),
            predictions=Predictions(),
            findings=(),
            digests={},
            invocation_id=begin.old_invocation,
            drafter=drafter.value if drafter is not None else None,
            undo_after_s=begin.undo_after_s,
        )
