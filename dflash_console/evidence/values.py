"""Numbers and JSON as a stranger wrote them: what cannot be held is unknown, and nothing here raises anything but ValueError.

Python's own readers raise on a number of five thousand digits, on deep nesting, give infinities that no count can be, and halves
of characters that no terminal and no file takes.
"""

from __future__ import annotations

import json
import math
import re

_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""As JSON writes half of a character beyond U+FFFF: two make one, and one alone is none."""
_DIGITS = 18
"""A longer number fits no counter of any engine."""


def whole(text: str | None) -> int | None:
    """A number written in ASCII digits alone; ``None`` for anything else."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def whole_of(value: float | None) -> int | None:
    """A finite figure without its fraction."""
    return int(value) if value is not None and math.isfinite(value) else None


def real(text: str | None) -> float | None:
    """A finite number in any form that Python reads."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def read_json(data: bytes | str) -> object:
    """A JSON document; numbers in it that are not finite or too long are ``None``, half a character is U+FFFD.

    Raises:
        ValueError: it is no JSON, or nested too deeply to be an answer.
    """
    text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
    try:
        document: object = _DECODER.decode(text)
        return _whole_text(document) if _HALF.search(text) is not None else document
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _whole_text(value: object) -> object:
    """The same with U+FFFD in the place of halves of characters (``"\\ud83d"``), which cannot be printed, stored or sent."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole_text(item) for item in value]
    if isinstance(value, dict):
        return {_whole_text(name): _whole_text(item) for name, item in value.items()}
    return value


def _integer(text: str) -> int | None:
    value = whole(text.removeprefix("-"))
    return -value if value is not None and text.startswith("-") else value


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=real, parse_constant=lambda _: None)
