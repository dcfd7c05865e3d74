"""What became of an operation whose console went away: the service itself is looked at, not the journal alone."""

from __future__ import annotations

from dataclasses import dataclass

from ..evidence.file_edits import Texts, texts_digest
from ..hosts.service import RunState
from ..session import HostSession
from .confirmed import ConfirmedStore
from .journal import PendingOperation
from .writing import texts_now


@dataclass(frozen=True)
class Found:
    """How far a cut-off operation came."""

    written: bool
    """The file holds the planned text."""
    restarted: bool
    """Another start has happened since."""
    foreign: bool
    """The file holds neither the old nor the planned text: someone else changed it."""
    running: bool
    invocation_id: str | None
    put_back: bool = False
    """The timer of commit-confirm has put the configuration of before back."""


async def examine(session: HostSession, operation: PendingOperation) -> Found:
    """Raises: HostError."""
    begin = operation.begin
    state = await session.service.state()
    now = await texts_now(session.service, begin.paths)
    digest = texts_digest(now)
    writes = begin.old_digest != begin.new_digest
    timer = session.service.rollback_timer() if begin.undo_after_s is not None else None
    half = writes and digest not in (begin.old_digest, begin.new_digest) and await _half_written(session, operation, now)
    return Found(
        written=writes and (half or digest == begin.new_digest),
        restarted=state.invocation_id is not None and state.invocation_id != begin.old_invocation,
        foreign=bool(begin.paths) and not half and digest not in (begin.old_digest, begin.new_digest),
        running=state.state in (RunState.RUNNING, RunState.STARTING),
        invocation_id=state.invocation_id,
        put_back=timer is not None and await timer.fired(),
    )


async def _half_written(session: HostSession, operation: PendingOperation, now: Texts) -> bool:
    """Whether some files have the planned text and the others their old one: it was cut off between two writes."""
    begin = operation.begin
    if not begin.backup:
        return False
    store = ConfirmedStore(session.transport, session.service)
    old, new = await store.read_texts(begin.backup), await store.read_texts(begin.planned)
    return all(text in (old.get(path), new.get(path)) for path, text in now.items())
