"""What a setting's value is: one canonical form whatever its source wrote, and the readers that make it.

=============  ========================================  ============================================
setting        canonical value                           what sources write
=============  ========================================  ============================================
draft_window   tokens, or ``"off"``                      ``2048``, ``None``, ``null``, ``0``, no flag
layers_window  tokens, ``"off"``, ``"config"``           ``config``, ``2048``, ``None``
algorithm      ``"DDTREE"``, ``"DFLASH"``, ``"PLAIN"`` …  any case; ``None`` or no flag = ``PLAIN``
speculation    ``True``, ``False``                       ``1``, ``0``, ``on``, ``off``
tree_budget    nodes (root not counted), ``"auto"``      ``16``, ``auto``, ``auto(max 64)``
=============  ========================================  ============================================
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from enum import Enum

Value = int | float | str | bool
"""A setting's canonical value."""

OFF = "off"
CONFIG = "config"
AUTO = "auto"
PLAIN = "PLAIN"

_NOTHING = frozenset({"", "none", "null", "off", "false", "no", "disabled"})
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


class KnobError(ValueError):
    """A value that the setting cannot take; the message says what it takes."""


class KnobKind(Enum):
    """How a setting's text is read and shown."""

    COUNT = "count"
    WINDOW = "window"
    LAYERS_WINDOW = "layers window"
    BUDGET = "budget"
    ALGORITHM = "algorithm"
    SWITCH = "switch"
    FRACTION = "fraction"
    TEXT = "text"


def show_value(value: Value | None) -> str:
    """A value as the screens and the command line write it."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def same_value(left: Value | None, right: Value | None) -> bool:
    """Whether two canonical values mean the same. Unknown (``None``) equals nothing."""
    if left is None or right is None:
        return False
    if isinstance(left, str) and isinstance(right, str):
        return left.casefold() == right.casefold()
    return left == right and isinstance(left, str) == isinstance(right, str)


def read_value(kind: KnobKind, name: str, raw: str) -> Value:
    """The canonical value of ``raw``, whatever its bounds.

    Args:
        name: the setting's, for the message.

    Raises:
        KnobError: a setting of this kind cannot take it.
    """
    return _READERS[kind](name, raw)


_WHOLE = re.compile(r"[0-9]{1,18}")
"""Digits of a number that every engine can hold; Python itself refuses to read several thousand of them."""


LARGEST = 10**18 - 1
"""The largest number that is read."""
_LONGER = re.compile(r"[+-]?[0-9]{19,}")


def is_too_long(raw: str) -> bool:
    """Whether ``raw`` is a whole number of more digits than are read."""
    return _LONGER.fullmatch(raw) is not None


def _count(name: str, raw: str) -> Value:
    sign, digits = (raw[:1], raw[1:]) if raw[:1] in ("+", "-") else ("", raw)
    if not _WHOLE.fullmatch(digits):
        raise KnobError(f"{name} takes a whole number, not {quoted(raw)}")
    return int(sign + digits)


def quoted(raw: str) -> str:
    """What was written, short enough for a message."""
    return f"{raw[:40]}…" if len(raw) > 40 else raw or "nothing"


def _window(name: str, raw: str) -> Value:
    if raw.casefold() in _NOTHING or raw == "0":
        return OFF
    if not _WHOLE.fullmatch(raw):
        raise KnobError(f"{name} takes a number of tokens or 'off', not {quoted(raw)}")
    return int(raw)


def _layers_window(name: str, raw: str) -> Value:
    if raw.casefold() in (CONFIG, "trained"):
        return CONFIG
    if raw.casefold() in _NOTHING or raw == "0":
        return OFF
    if not _WHOLE.fullmatch(raw):
        raise KnobError(f"{name} takes 'config', 'off' or a number of tokens, not {quoted(raw)}")
    return int(raw)


def _budget(name: str, raw: str) -> Value:
    if raw.casefold() == AUTO or re.fullmatch(r"auto\(max \d+\)", raw):
        return AUTO
    try:
        return _count(name, raw)
    except KnobError:
        raise KnobError(f"{name} takes a whole number or 'auto', not {quoted(raw)}") from None


def _algorithm(name: str, raw: str) -> Value:
    algorithm = raw.upper()
    if algorithm.casefold() in _NOTHING or algorithm == PLAIN:
        return PLAIN
    if not re.fullmatch(r"[A-Z][A-Z0-9_-]*", algorithm):
        raise KnobError(f"{name} takes an algorithm's name (DDTREE, DFLASH, PLAIN …), not {quoted(raw)}")
    return algorithm


def _switch(name: str, raw: str) -> Value:
    word = raw.casefold()
    if word in _YES:
        return True
    if word in _NO:
        return False
    raise KnobError(f"{name} takes on or off, not {quoted(raw)}")


def _fraction(name: str, raw: str) -> Value:
    try:
        value = float(raw)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise KnobError(f"{name} takes a number, not {quoted(raw)}")
    return value


_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters, line ends, and bytes of a command line that were no UTF-8."""


def _text(name: str, raw: str) -> Value:
    if not raw:
        raise KnobError(f"{name} needs a value")
    if raw.startswith("--"):
        raise KnobError(f"{name} cannot begin with --: the engine would take that for another flag")
    if _UNWRITABLE.search(raw):
        raise KnobError(f"{name} takes one line of plain text, without control characters")
    return raw


_READERS: dict[KnobKind, Callable[[str, str], Value]] = {
    KnobKind.COUNT: _count,
    KnobKind.WINDOW: _window,
    KnobKind.LAYERS_WINDOW: _layers_window,
    KnobKind.BUDGET: _budget,
    KnobKind.ALGORITHM: _algorithm,
    KnobKind.SWITCH: _switch,
    KnobKind.FRACTION: _fraction,
    KnobKind.TEXT: _text,
}
