"""The row of the unit file: there when it cannot be read, or not in full. What it asks for is then not known, and not nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..evidence.reading import Known, Reading
from ..knobs import KNOBS, Source
from ..state import HostState
from .verdicts import UNIT_FILE, DriftKind, TruthRow, Verdict


def unit_file_rows(state: HostState) -> list[TruthRow]:
    """One row while the configuration cannot be read; a note where a part of it cannot, and the command is known all the same."""
    problems = state.config.value.problems if state.config is not None else ()
    why = state.unread_config or next(iter(problems), "")
    if not why:
        return []
    absent = {source: Reading(Known.ABSENT) for source in Source}
    if not state.unread_config:
        return [TruthRow(UNIT_FILE, "Unit file", absent, Verdict.NOTE, why, kind=DriftKind.NOT_READ)]
    message = f"{why}; until that is mended nobody knows what the next start would run"
    return [TruthRow(UNIT_FILE, "Unit file", absent, Verdict.UNKNOWN, message, kind=DriftKind.NOT_READ)]


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
