"""Words of ``nvidia-smi`` that several readers look for: why a GPU is slow, and that one cannot be reached.

Source of the bits: ``nvmlClocksEventReason*`` in nvml.h; of the words: the program itself, of driver 580.
"""

from __future__ import annotations

import re

SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Bits of the clock-event reasons that mean that something is wrong; idle and the power cap do not. The field is called
``clocks_event_reasons.active``, in older drivers ``clocks_throttle_reasons.active``."""
LOST = "GPU is lost"
NEEDS_RESET = "GPU requires reset"
REFUSED = "is not a valid field to query"
"""What the tool says, and nothing else, when it does not know a column."""
UNREACHED = re.compile(
    r"Unable to determine the device handle for GPU ?(?:(?P<index>\d{1,2}): )?"
    r"(?P<bus>[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F]): *(?P<why>.*)",
    re.IGNORECASE,
)
"""The line that stands among the rows, or in their place, for a GPU that the driver cannot reach: ``GPU%d: %s: %s``,
``GPU %s: %s`` and ``gpu %s: %s``; in older drivers ``GPU0000:9B:00.0: …``."""


_WHOLE = re.compile(r"[0-9]{1,9}")
_FIGURE = re.compile(r"([0-9]{1,12}(?:\.[0-9]+)?)(?: \S+)?")


def whole(cell: str) -> int | None:
    """A count or a number of a cell; ``None`` for anything else, as ``²``, which ``str.isdigit`` takes for a digit."""
    return int(cell) if _WHOLE.fullmatch(cell) else None


def figure(cell: str) -> float | None:
    """A figure, with its unit or without; ``None`` for words in its place (``[N/A]``), and for what cannot be one (``nan``)."""
    match = _FIGURE.fullmatch(cell)
    return float(match[1]) if match is not None else None


def slowdowns(cell: str) -> tuple[str, ...] | None:
    """The reasons that a cell such as ``0x0000000000000048`` names, in words; ``None`` when it names no bits (``[N/A]``)."""
    try:
        bits = int(cell, 16) if cell.lower().startswith("0x") else None
    except ValueError:
        return None
    return None if bits is None else tuple(words for bit, words in SLOWDOWNS.items() if bits & bit)
