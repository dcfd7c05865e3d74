"""Numbers, times and sizes as screens and commands write them. Unknown is an en dash, never zero."""

from __future__ import annotations

import time

UNKNOWN = "–"
MIB_PER_GIB = 1024


def tokens_per_second(value: float | None) -> str:
    """``150.2``; from 1,000 on without a decimal."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"


def commit_length(value: float | None) -> str:
    """Two decimals: the third is noise at the length of a span."""
    return UNKNOWN if value is None else f"{value:.2f}"


def milliseconds(seconds: float | None) -> str:
    """``212 ms``, and ``1.24 s`` from one second on."""
    if seconds is None:
        return UNKNOWN
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def percent(share: float | None) -> str:
    """A share from 0 to 1 as ``38 %``."""
    return UNKNOWN if share is None else f"{share * 100:.0f} %"


def count(value: float | None) -> str:
    """``41k`` and ``1.2M`` where a screen has little room."""
    if value is None:
        return UNKNOWN
    if value >= 999_500:
        return f"{value / 1e6:.1f}M"
    if value >= 10_000:
        return f"{value / 1e3:.0f}k"
    return f"{value:,.0f}"


def size(value: float | None) -> str:
    """Bytes in powers of 1,000: ``0.31 GB``, ``4.2 MB``."""
    if value is None:
        return UNKNOWN
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale / 4:
            amount = value / scale
            return f"{amount:.2f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"
    return f"{value:.0f} B"


def duration(seconds: float | None) -> str:
    """``41 s``, ``6m 41s``, ``2h 14m``, ``3d 4h``."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86_400}d {whole % 86_400 // 3600}h"


def short_seconds(seconds: float) -> str:
    """How long a step took: ``0.4 s``, ``12 s``, ``3m 02s``."""
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def age(seconds: float | None) -> str:
    """How old a value is: ``now``, ``4 s ago``, ``3m 02s ago``."""
    if seconds is None:
        return "no data yet"
    return "now" if seconds < 1.5 else f"{duration(seconds)} ago"


def clock(at: float | None, *, seconds: bool = True) -> str:
    """Time of day, local, of seconds since the epoch."""
    if at is None:
        return "--:--:--" if seconds else "--:--"
    return time.strftime("%H:%M:%S" if seconds else "%H:%M", time.localtime(at))


def span(seconds: float) -> str:
    """A span's name: ``1 min``, ``15 min``, ``24 h``."""
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.0f} h"


def bar(share: float | None, width: int) -> str:
    """A bar of eighth blocks, ``width`` cells when full, padded with spaces."""
    if share is None or width <= 0:
        return " " * max(0, width)
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    full, rest = divmod(eighths, 8)
    text = "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
    return text[:width].ljust(width)


def counted(number: int, thing: str) -> str:
    """``1 file``, ``2 files``, ``1,200 files``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def shorten(text: str, width: int, *, keep_end: bool = False) -> str:
    """``text`` in at most ``width`` characters with an ellipsis where it was cut."""
    if len(text) <= width:
        return text
    if width <= 1:
        return "…"[: max(0, width)]
    return "…" + text[-(width - 1) :] if keep_end else text[: width - 1] + "…"
