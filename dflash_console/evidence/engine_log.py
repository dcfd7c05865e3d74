"""What an engine's log proves of a setting, and which lines come near to proof.

The fold over the lines is :mod:`start_log`, the events of one line :mod:`log_lines`; their public names are found here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from ..knobs import OFF, PLAIN, Knob, KnobError, Value, show_value
from .journal import LogLine
from .log_events import DecodeBatch as DecodeBatch
from .log_events import EngineEvent as EngineEvent
from .log_events import HotChange as HotChange
from .log_events import PrefillBatch as PrefillBatch
from .log_events import WarningKind as WarningKind
from .log_lines import read_event as read_event
from .log_lines import read_events as read_events
from .reading import Known, Reading, absent, unknown, valued
from .secrets import mask_text
from .start_log import ChangePoint as ChangePoint
from .start_log import DecodePoint as DecodePoint
from .start_log import LogRemark as LogRemark
from .start_log import LogValue as LogValue
from .start_log import Phase as Phase
from .start_log import PhaseMark as PhaseMark
from .start_log import StartLog as StartLog

REPLACED = "a wrapper of the unit started another engine"
"""How the remark of :func:`log_reading` begins where an earlier engine of the same start had a confirmation line."""
COMPACT_CACHE = "compact_cache"
"""The log key that follows from the size of the compact draft cache."""


_SWITCH = {
    **dict.fromkeys(("true", "1", "on", "yes", "enabled"), True),
    **dict.fromkeys(("false", "0", "off", "no", "none"), False),
}
_NO_SWITCH = "neither on nor off"


def log_reading(log: StartLog | None, knob: Knob) -> Reading:
    """What the log of this start proves of ``knob``: a later hot change over the confirmation line over nothing.

    A key that the confirmation line does not name is *absent*, a line that was not seen is *unknown*; neither is a value.
    """
    if log is None:
        return unknown("the log has not been read")
    for point in reversed(log.hot_changes):
        if point.change.accepted and knob.hot_name is not None and point.change.name == knob.hot_name:
            return _parsed(knob, point.change.new, point.number, f"changed while running, was {point.change.old}")
    found = next((log.values[key] for key in knob.log_keys if key in log.values), None)
    ignored = ignored_flag(log, knob)
    # A warning that follows the line takes it back. After the start is ready it may be quoted from a request.
    taken_back = ignored is not None and (found is None or found.number < ignored.number <= _end_of_start(log))
    if found is not None and not taken_back:
        return _parsed(knob, found.text, found.number, "")
    if ignored is not None:
        return valued(OFF, "ignored", f"log line {ignored.number}", ignored.text)
    if knob.name == "algorithm" and _started_plain(log):
        return valued(PLAIN, "", f"log line {log.server_args_line}", "no drafter was started")
    if not knob.log_keys:
        return absent("engines do not print it")
    if log.confirmation is None and log.replaced is not None:
        return unknown(f"{REPLACED} at log line {log.replaced}, and that one has printed no confirmation line")
    if log.confirmation is None:
        return unknown("the confirmation line has not been seen in this start")
    return absent("the confirmation line does not name it", f"log line {log.confirmation.number}")


def _end_of_start(log: StartLog) -> int:
    ready = log.phases.get(Phase.READY)
    return ready.number if ready is not None else log.lines


def ignored_flag(log: StartLog, knob: Knob) -> LogRemark | None:
    """The engine's own warning that a flag of ``knob`` has no effect."""
    for flag in knob.flags:
        remark = log.warning(WarningKind.NO_EFFECT, flag)
        if remark is not None:
            return remark
    return None


def _started_plain(log: StartLog) -> bool:
    return log.ready and log.confirmation is None and log.server_args.get("speculative_algorithm") == "None"


def compact_cache_reading(log: StartLog | None, window: Knob) -> Reading:
    """Whether the compact draft cache is on, as printed; a hot change of its size (``window``'s knob) decides it anew."""
    if log is None:
        return unknown("the log has not been read")
    found = log_reading(log, window)
    changed = found.known is Known.VALUE and (found.why or COMPACT_CACHE not in log.values)
    if changed:
        return valued(found.value != OFF, "", found.where, found.why or "follows from the row above")
    if COMPACT_CACHE in log.values:
        printed = log.values[COMPACT_CACHE]
        said = _SWITCH.get(printed.text.lower())
        where = f"log line {printed.number}"
        return (
            valued(said, "", where)
            if said is not None
            else Reading(Known.UNKNOWN, text=printed.text, where=where, why=_NO_SWITCH)
        )
    return unknown(found.why)


def _parsed(knob: Knob, text: str, number: int, remark: str) -> Reading:
    where = f"log line {number}"
    try:
        value: Value = knob.parse(text)
    except KnobError as error:
        return Reading(Known.UNKNOWN, text=text, where=where, why=str(error))
    return valued(value, show_value(value) if text == "None" else text, where, remark)


_LIKENESS = (
    (re.compile(r"draft runner", re.IGNORECASE), 3),
    (re.compile(r"\bInitialized\b"), 1),
    (re.compile(r"\bDDTREE|\bDFLASH", re.IGNORECASE), 2),
    (re.compile(r"compact_cache|draft_window|draft window", re.IGNORECASE), 2),
    (re.compile(r"tree_budget|max_tree_nodes"), 2),
    (re.compile(r"speculative", re.IGNORECASE), 1),
    (re.compile(r"has no effect|mismatch|[Ff]alling back"), 2),
)


def lines_like_confirmation(lines: Iterable[LogLine], limit: int = 3) -> tuple[LogLine, ...]:
    """The lines that come nearest to a confirmation line, best first, for the message that none was seen.

    The ``server_args=`` line names every setting and confirms none, so it does not count. Secrets are masked.
    """
    scored: list[tuple[int, int, LogLine]] = []
    for position, line in enumerate(lines):
        if line.origin != "engine" or "server_args=" in line.text[:200]:
            continue
        score = sum(weight for pattern, weight in _LIKENESS if pattern.search(line.text))
        if score >= 2:
            scored.append((-score, -position, line))
    scored.sort(key=lambda item: item[:2])
    return tuple(replace(line, text=mask_text(line.text)) for _, _, line in scored[:limit])
