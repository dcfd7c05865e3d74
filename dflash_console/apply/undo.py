"""Commit-confirm: a timer on the host puts the configuration of before back unless the console, having confirmed, calls it off.

A laptop that is lost in the middle of a change leaves a host that goes back by itself.
"""

from __future__ import annotations

from ..evidence.file_edits import old_texts
from ..formats import duration
from ..hosts.transport import HostError
from ..plan import Plan
from ..session import HostSession
from .operation import Operation
from .patience import Patience
from .records import StageFailed, Verdict

ARM, CALL_OFF = "arm timer", "disarm timer"
"""Stages of an operation with commit-confirm."""


class Undo:
    """The timer of one change. Without commit-confirm nothing is done and nothing asked."""

    def __init__(self, session: HostSession, plan: Plan, patience: Patience) -> None:
        self._host = session.transport.name
        self._timer = session.service.rollback_timer() if plan.undo_after_s is not None else None
        self._seconds = plan.undo_after_s or 0
        self._restore = old_texts(plan.edits)
        self._patience = patience

    @property
    def wanted(self) -> bool:
        return self._timer is not None

    async def arm(self, operation: Operation, *, restart: bool) -> None:
        """Start it, as a stage of the operation. Raises: StageFailed."""
        if self._timer is None:
            return
        async with operation.stage(ARM, Verdict.WRITE_FAILED) as notes:
            await self.rearm(restart=restart)
            notes.evidence = f"{self._host} puts the files back in {duration(self._seconds)} unless this is confirmed"

    async def rearm(self, *, restart: bool = True) -> None:
        """Begin its time anew. Raises: HostError."""
        timer = self._timer
        if timer is not None:
            await self._patience.ask(lambda: timer.arm(self._seconds, self._restore, restart=restart))

    async def call_off(self, operation: Operation) -> None:
        """The change is confirmed: make sure that the timer will not fire.

        Raises:
            StageFailed: it had fired; the host goes back to the configuration of before.
            LinkLost
        """
        if self._timer is None:
            return
        async with operation.stage(CALL_OFF, Verdict.NOT_READY) as notes:
            if not await self.off():
                raise StageFailed(Verdict.TIMED_OUT, f"confirmed too late: {self.fired_words}")
            notes.evidence = "it will not fire"

    async def off(self) -> bool:
        """Call it off; whether it is certain that it has not fired and will not. Raises: HostError, LinkLost."""
        timer = self._timer
        if timer is None or await self._patience.ask(timer.disarm):
            return True
        # A call whose answer a cut swallowed finds no timer the second time.
        return not await self._patience.ask(timer.fired)

    async def fired(self) -> bool:
        """Whether it has put the files back. Raises: HostError, LinkLost."""
        return self._timer is not None and await self._patience.ask(self._timer.fired)

    async def ahead(self) -> str:
        """What the host will do by itself, in words; empty where no timer runs. Raises: HostError, LinkLost."""
        if self._timer is None or not await self._patience.ask(self._timer.armed):
            return ""
        return f"the timer on {self._host} puts the configuration of before back unless it is called off (rollback does both)"

    @property
    def fired_words(self) -> str:
        return f"the timer on {self._host} fired after {self._seconds} s and put the configuration of before back"


async def foreign_timer(session: HostSession) -> str:
    """Why no new operation may begin, in words: the timer of an earlier one is still armed, and would undo both. Empty = none is.

    Raises:
        HostError
    """
    timer = session.service.rollback_timer()
    if timer is None or not await timer.armed():
        return ""
    return (
        f"a change that nobody has confirmed yet is about to be put back by a timer on {session.transport.name}: wait for it, "
        "go on with that change (apply --resume on the machine it came from), or call it off with a rollback"
    )


async def call_off_foreign(session: HostSession) -> None:
    """Before a roll-back or a stop: the timer of a change whose console is gone must not fire into it. Raises: HostError."""
    timer = session.service.rollback_timer()
    if timer is not None and await timer.armed() and not await timer.disarm():
        raise HostError(f"the roll-back timer on {session.transport.name} fires just now: look at the unit, then try again")
