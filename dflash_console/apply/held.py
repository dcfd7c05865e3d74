"""An operation from taking its unit's lock to giving it back, with the journal true to whatever becomes of it between.

Every operation goes through here, so that none can end, be cancelled or fail without its journal saying so: what is neither ended
nor given up there would not be offered again while its console lives.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from ..hosts.transport import HostError
from ..session import HostSession
from .audit import who
from .journal import OperationJournal
from .operation import Operation
from .patience import lost_link
from .records import ApplyResult, StageFailed, Verdict

UNDECIDED = frozenset({Verdict.LINK_DOWN})
"""Nobody could see how it ended: as with a console that went away, the next look tells."""


async def hold_unit(
    session: HostSession,
    operation: Operation,
    journal: OperationJournal,
    what: str,
    *,
    begin: Callable[[], None],
    change: Callable[[], Awaitable[ApplyResult]],
    undecided: Collection[Verdict] = UNDECIDED,
) -> ApplyResult:
    """Take the lock, begin the journal, carry the change out, and note how it ended.

    Args:
        what: what is being done, for those who find the unit locked.
        begin: writes the journal's first record; when it cannot, nothing is changed.
        change: the operation itself. Of what it raises, a failed stage becomes the result.
        undecided: verdicts that leave the operation open, to be resumed or rolled back.

    Returns:
        REFUSED when the lock cannot be had or the journal not be begun.
    """
    try:
        async with session.service.lock(f"{what} by {who()}"):
            begin()
            try:
                result = await _result(session, operation, change)
            except BaseException:
                # Nothing is undone here: what was asked of the service goes on, and the next look at it tells how it ended.
                journal.abandon()
                raise
            if result.verdict in undecided:
                journal.abandon()
            else:
                journal.end(result.verdict.value, result.reason)
            return result
    except HostError as error:
        return operation.result(Verdict.REFUSED, f"nothing was changed: {error}")


async def _result(session: HostSession, operation: Operation, change: Callable[[], Awaitable[ApplyResult]]) -> ApplyResult:
    try:
        return await change()
    except StageFailed as error:
        return operation.result(error.verdict, error.reason, failed=error)
    except HostError as error:
        # Every stage gives its failures a verdict; what slips through must not be taken for "nothing was changed".
        slipped = StageFailed(Verdict.NOT_READY, str(error))
        slipped.__cause__ = error
        failed = lost_link(session.transport, slipped) or slipped
        return operation.result(failed.verdict, failed.reason, failed=failed)
