"""What is remembered of a finished operation: a row and a mark in history, a line in the audit file here and in the host's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from ..evidence.secrets import mask_text
from ..history import Mark, MarkKind, OperationRow
from ..hosts.transport import HostError
from ..knobs import Value, show_value
from ..session import HostSession
from .audit import append_audit, audit_record
from .records import ApplyResult


async def remember(
    session: HostSession, result: ApplyResult, what: str, settings: str, why: str, stages: Mapping[str, float]
) -> None:
    """Note a finished operation in history, in the audit file here and in the one on the host."""
    now = time.time()
    row = OperationRow(now, result.operation_id, what, result.verdict.value, result.reason, result.seconds, stages)
    session.history.add_operation(session.key, row)
    kind = MarkKind.APPLY if result.confirmed else MarkKind.FAILURE
    session.history.add_mark(session.key, Mark(now, kind, f"{what} {settings}".strip() + f": {result.verdict.value}"))
    record = audit_record(what=what, service=session.key, result=result, settings=settings, why=why)
    append_audit(session.paths.audit_file, record)
    # A host that cannot be reached, or has no room, loses the line, not the operation.
    with contextlib.suppress(HostError):
        await session.service.audit(record)


def setting_words(settings: Mapping[str, Value | None]) -> str:
    """``draft_window=512 tree_budget=16``, secrets masked."""
    words = (f"{name}={'(not given)' if value is None else show_value(value)}" for name, value in settings.items())
    return mask_text(" ".join(words))
