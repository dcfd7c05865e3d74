"""When two readings of one setting ask for different things, and how a reading is written in a sentence."""

from __future__ import annotations

from ..evidence.reading import Known, Reading
from ..knobs import CONFIG, Knob, Value, same_value, show_value


def wanted(reading: Reading, knob: Knob) -> Value | None:
    """The value that a command line asks for; without the flag, what the engine does then (``None`` = its own choice)."""
    if reading.known is Known.VALUE:
        return reading.value
    return knob.default if reading.known is Known.ABSENT else None


def expected_in_effect(asked: Reading, trained: Reading, knob: Knob) -> Value | None:
    """What should be in effect: as asked, and "as trained" in tokens."""
    value = wanted(asked, knob)
    if value == CONFIG:
        return trained.value if trained.known is Known.VALUE else None
    return value


def differ(left: Reading, right: Reading, knob: Knob) -> bool:
    """Whether two command lines ask for different things. What was not read differs from nothing."""
    if Known.UNKNOWN in (left.known, right.known):
        return False
    one, other = wanted(left, knob), wanted(right, knob)
    if one is None or other is None:
        return left.known is not right.known
    return not same_value(one, other)


def shown(reading: Reading) -> str:
    return show_value(reading.value)


def said(reading: Reading) -> str:
    if reading.known is Known.VALUE:
        return reading.words
    return "no flag" if reading.known is Known.ABSENT else "unknown"
