"""One cut-off operation taken up again: under the unit's lock and in its own journal, with its plan made out again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..evidence.file_edits import edits_between
from ..hosts.transport import HostError, HostUnreachable
from ..knobs import find_knob
from ..plan import KnobChange, Mode, Plan, Predictions
from ..proof import proof_sources, proof_words
from ..session import HostSession
from . import restart
from .asked import asked_changes, dialect_of
from .confirmed import ConfirmedStore
from .engine import default_timeouts
from .examine import Found, examine
from .held import UNDECIDED, hold_unit
from .journal import OperationJournal, PendingOperation, own_identity
from .operation import Operation
from .patience import lost_link
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
        """Go one way out of it; refused or out of sight, it stays open."""
        what = f"{name} of {self.begin.what}"
        result = await hold_unit(
            self.session,
            self.operation,
            self.journal,
            what,
            begin=self._begin,
            change=lambda: self._go(way),
            undecided=UNDECIDED | {Verdict.REFUSED},
        )
        await remember(self.session, result, what, setting_words(self.begin.settings), "", {})
        return result

    def _begin(self) -> None:
        pid, ticks = own_identity()
        self.journal.note(console_pid=pid, console_ticks=ticks, abandoned=False)

    async def _go(self, way: Callable[[TakenUp, Found], Awaitable[ApplyResult]]) -> ApplyResult:
        if self.session.read_only:
            raise StageFailed(Verdict.REFUSED, "the console is read-only: nothing was done")
        try:
            found = await examine(self.session, self.pending)
        except HostError as error:
            raise StageFailed(Verdict.REFUSED, f"what became of it cannot be seen, so nothing was done: {error}") from error
        try:
            return await way(self, found)
        except StageFailed as error:
            lost = lost_link(self.session.transport, error)
            if lost is None or lost is error or error.verdict is Verdict.REFUSED:
                raise
            raise lost from error

    async def plan(self) -> Plan:
        """The plan as far as the journal and the kept texts give it back.

        Raises:
            StageFailed: it cannot be made out; nothing was done.
            HostUnreachable
        """
        try:
            return await self._plan()
        except HostUnreachable:
            raise
        except HostError as error:
            raise StageFailed(Verdict.REFUSED, f"what was planned cannot be made out, so nothing was done: {error}") from error

    async def _plan(self) -> Plan:
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
