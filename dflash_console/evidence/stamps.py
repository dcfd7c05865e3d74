"""The time that an engine prints before a line, against the time at which the line was stored.

A wrapper may show the log of an earlier start (``tail -n 200 sglang.log; exec …``): its lines are stored with this start's
invocation id and prove nothing of it. An engine prints local time without a zone, so a line of now differs from the host's
clock by a zone's offset, which is a multiple of a quarter of an hour (IANA's zones in use, -12:00 to +14:00), and by the moment
that it took.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

ZONE_STEP_S = 900.0
ZONE_MOST_S = 14 * 3600.0
EARLY_S = 5.0
"""A stamp may be ahead of the stored time by so much: clocks are read one after the other, and stamps are rounded."""
LATE_S = 90.0
"""How long a line may have been on its way (a container's log driver, a machine that swaps)."""
_STAMP = re.compile(r"(?:(\d{4}-\d\d-\d\d) )?(\d\d:\d\d:\d\d)(?:[.,](\d+))?")


def written_earlier(stamp: str, at: float | None) -> bool:
    """Whether a line with this stamp was written before it was stored: it is shown again, not said now.

    False when that cannot be told. An old line whose age is a multiple of a quarter of an hour is not found out.

    Args:
        stamp: ``2026-07-11 02:00:11``, ``02:00:11``, with or without a fraction.
        at: when the line was stored, seconds since the epoch by the host's clock.
    """
    match = _STAMP.fullmatch(stamp)
    if match is None or at is None:
        return False
    day, clock, fraction = match.groups()
    try:
        stored = datetime.fromtimestamp(at, UTC)
        printed = datetime.fromisoformat(f"{day or stored.date().isoformat()} {clock}").replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        # No day and no time, or a clock that is far out of any calendar.
        return False
    printed += timedelta(seconds=float(f"0.{fraction}") if fraction else 0.0)
    age = (stored - printed).total_seconds()
    if day is not None and not -ZONE_MOST_S - EARLY_S <= age <= ZONE_MOST_S + LATE_S:
        return True
    # Without a date the age is known but for whole days, which are whole steps.
    delay = (age + EARLY_S) % ZONE_STEP_S - EARLY_S
    return delay > LATE_S
