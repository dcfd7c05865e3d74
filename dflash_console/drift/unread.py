"""The row of the unit file: there when it cannot be read, or not in full, and when it does not mean what it seems to.

What a file asks for that cannot be read is not known, and not nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def unread_sources(state: HostState) -> Mapping[Source, str]:
    """The sources that somebody tried to read and could not, each with the reason."""
    parts = {
        Source.TRAINED: ("drafter", state.drafter),
        Source.LOADED: ("config", state.config),
        Source.PROCESS: ("process", state.process),
        Source.SERVER: ("server", state.server),
        Source.LOG: ("log", state.log),
    }
    return {
        source: state.problems[name] for source, (name, known) in parts.items() if known is None and state.problems.get(name, "")
    }


def with_reasons(rows: Sequence[TruthRow], unread: Mapping[Source, str]) -> list[TruthRow]:
    """The rows, where it is said of what could not be read why that is so."""
    return [_with_reasons(row, unread) for row in rows]


def _with_reasons(row: TruthRow, unread: Mapping[Source, str]) -> TruthRow:
    cells = dict(row.readings)
    message = row.message
    for source, why in unread.items():
        cell = cells.get(source)
        if cell is not None and cell.known is Known.UNKNOWN:
            cells[source] = replace(cell, why=why)
            if row.verdict is Verdict.UNKNOWN and message == cell.why:
                message = why
    return replace(row, readings=cells, message=message)


def unreadable(rows: Sequence[TruthRow], unread: Mapping[Source, str]) -> tuple[str, ...]:
    """What keeps rows from being judged because it could not be read: ``unit file``, ``log``."""
    judged = [row for row in rows if row.verdict is Verdict.UNKNOWN]
    names = ["unit file"] if any(row.knob == UNIT_FILE for row in judged) else []
    names += [_NAMES[source] for source, why in unread.items() if any(row.message == why for row in judged)]
    return tuple(dict.fromkeys(names))


_NAMES = {
    Source.TRAINED: "the drafter's configuration",
    Source.LOADED: "unit file",
    Source.PROCESS: "process",
    Source.SERVER: "server's report",
    Source.LOG: "log",
}
