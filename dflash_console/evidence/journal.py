"""Log lines with their origin."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LogLine:
    """One line of an engine's log, as the service manager stored it."""

    text: str
    """Without its newline; ANSI sequences and carriage returns as written."""
    cursor: str = ""
    at: float | None = None
    """Seconds since the epoch, by the host's clock."""
    invocation_id: str | None = None
    pid: int | None = None
    priority: int = 6
    """syslog priority: 3 error, 4 warning, 6 info."""
    origin: str = "engine"
    """``engine``, ``manager`` (the service manager's own line) or ``gap`` (lines are missing here)."""
    number: int | None = None
    """Line number within this start, from 1."""
