"""The row of the unit file: there when it cannot be read, or not in full, and when it does not mean what it seems to.

What a file asks for that cannot be read is not known, and not nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..evidence.reading import Known, Reading
from ..knobs import KNOBS, Source
from ..state import HostState
from .verdicts import UNIT_FILE, DriftKind, TruthRow, Verdict


def unit_file_rows(state: HostState) -> list[TruthRow]:
    """One row while the configuration cannot be read; a note where a part of it cannot, or does not mean what it seems to."""
    config = state.config.value if state.config is not None else None
    absent = {source: Reading(Known.ABSENT) for source in Source}
    row = TruthRow(UNIT_FILE, "Unit file", absent, Verdict.NOTE)
    if why := state.unread_config:
        message = f"{why}; until that is mended nobody knows what the next start would run"
        return [replace(row, verdict=Verdict.UNKNOWN, message=message, kind=DriftKind.NOT_READ)]
    if config is None:
        return []
    if config.problems:
        return [replace(row, message=config.problems[0], kind=DriftKind.NOT_READ)]
    return [replace(row, message="; ".join(config.remarks), kind=DriftKind.NOT_AS_IT_SEEMS)] if config.remarks else []


def judged_without_unit_file(rows: Sequence[TruthRow], state: HostState) -> list[TruthRow]:
    """The rows, where the configuration cannot be read: a setting on which the other sources agree is not known to be in order.

    The reason stands once, in the unit file's own row.
    """
    if not state.unread_config:
        return list(rows)
    return [
        replace(row, verdict=Verdict.UNKNOWN, kind=DriftKind.NOT_READ)
        if row.verdict is Verdict.OK and row.kind is DriftKind.NONE and (row.knob not in KNOBS or KNOBS[row.knob].flags)
        else row
        for row in rows
    ]
