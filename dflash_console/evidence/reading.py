"""What one source says about one setting: the record that every reader answers with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..knobs import Value, show_value


class Known(Enum):
    """How much a reading says."""

    VALUE = "value"
    ABSENT = "absent"
    """The source was read and does not name the setting (a flag that is not given, a key that is not logged)."""
    UNKNOWN = "unknown"
    """The source could not be read."""


@dataclass(frozen=True)
class Reading:
    """One setting as one source gives it."""

    known: Known
    value: Value | None = None
    text: str = ""
    """As the source wrote it, or a short phrase for the screen ("5 of 6 layers, 2048")."""
    where: str = ""
    """File and line, endpoint and field, or log line number."""
    why: str = ""
    """For ``UNKNOWN`` and ``ABSENT``: why; for a value: a remark."""

    @property
    def words(self) -> str:
        """The text for people: where the source wrote ``null``, ``None`` or ``0`` for a value that has a word, that word."""
        return show_value(self.value) if self.value is not None and self.text.lower() in _NOTHING else self.text


_NOTHING = frozenset({"null", "none", "0", "0.0"})
"""How sources write that a setting is off."""


UNREAD = Reading(Known.UNKNOWN, why="not read yet")


def unknown(why: str, where: str = "") -> Reading:
    return Reading(Known.UNKNOWN, why=why, where=where)


def absent(why: str = "", where: str = "") -> Reading:
    return Reading(Known.ABSENT, why=why, where=where)


def valued(value: Value, text: str = "", where: str = "", why: str = "") -> Reading:
    """A reading with a canonical value; the text to show defaults to the value's own."""
    return Reading(Known.VALUE, value, text or show_value(value), where, why)
