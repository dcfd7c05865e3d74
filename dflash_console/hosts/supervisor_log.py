"""The supervisor's log: what the engine prints, stored as JSON lines with journald's field names.

One file grows; past its limit it becomes ``log.1.jsonl`` and a new one begins, so the log is bounded. A cursor is the logical
offset of a line's first byte, counted over all files ever written, so it stays valid when the file is rotated.
Standard library only.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

LOG_NAME = "log.jsonl"
OLD_LOG_NAME = "log.1.jsonl"
LOG_LIMIT = 8 * 1024 * 1024
LINE_LIMIT = 128 * 1024
BAR_INTERVAL_S = 0.5
MANAGER = "supervisor"
"""SYSLOG_IDENTIFIER of the supervisor's own lines."""


def cursor_of(offset: int) -> str:
    """A cursor as text; equal width, so that cursors sort as their offsets do."""
    return f"o{offset:015x}"


def offset_of(cursor: str) -> int | None:
    """The logical offset of a cursor; ``None`` when it is not one of ours."""
    if len(cursor) != 16 or cursor[0] != "o":
        return None
    try:
        return int(cursor[1:], 16)
    except ValueError:
        return None


def first_offset(head: bytes) -> int | None:
    """The logical offset at which a log file begins, from its first line."""
    try:
        record = json.loads(head.partition(b"\n")[0])
        return offset_of(record["__CURSOR"])
    except (ValueError, KeyError, TypeError):
        return None


class LogWriter:
    """Appends lines; never raises and never blocks the engine: what cannot be written is counted and said later."""

    def __init__(self, folder: Path, *, limit: int = LOG_LIMIT) -> None:
        self._folder = folder
        self._limit = limit
        self._dropped = 0
        self._numbers = ("", 0)
        self._handle = -1
        self._offset = 0
        self._size = 0
        self._open()

    def _open(self) -> None:
        try:
            self._handle = os.open(self._folder / LOG_NAME, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._size = os.fstat(self._handle).st_size
            begin = first_offset(os.pread(self._handle, LINE_LIMIT, 0)) if self._size else 0
            self._offset = (begin or 0) + self._size
            if self._size and os.pread(self._handle, 1, self._size - 1) != b"\n":
                self._append(b"\n")
        except OSError:
            self._handle = -1

    @property
    def cursor(self) -> str:
        """Where the next line will stand."""
        return cursor_of(self._offset)

    def write(self, texts: list[str], *, invocation: str, pid: int, manager: bool = False, priority: int = 6) -> None:
        """Store lines of one process, in one write where possible."""
        stamp = time.time_ns() // 1000
        for text in texts:
            fields: dict[str, object] = {
                "__REALTIME_TIMESTAMP": str(stamp),
                "_SYSTEMD_INVOCATION_ID": invocation,
                "LINE_OF_START": str(self._number(invocation)),
                "_PID": str(pid),
                "PRIORITY": str(priority),
                "SYSLOG_IDENTIFIER": MANAGER if manager else "engine",
                "MESSAGE": text,
            }
            if self._dropped:
                self._gap(fields)
            if not self._record(fields):
                self._dropped += 1

    def _number(self, invocation: str) -> int:
        """The line's number within its start, from 1; a dropped line is counted too."""
        known, count = self._numbers
        self._numbers = (invocation, count + 1 if known == invocation else 1)
        return self._numbers[1]

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _gap(self, fields: dict[str, object]) -> None:
        dropped = {**fields, "N_DROPPED": str(self._dropped), "PRIORITY": "4", "SYSLOG_IDENTIFIER": MANAGER}
        dropped["MESSAGE"] = f"{self._dropped} lines are missing here: the log could not be written"
        if self._record(dropped):
            self._dropped = 0

    def _record(self, fields: dict[str, object]) -> bool:
        if self._handle < 0:
            self._open()
            if self._handle < 0:
                return False
        if self._size > self._limit:
            return self._rotate(fields)
        return self._append(_line(self._offset, fields))

    def _append(self, data: bytes) -> bool:
        try:
            written = os.write(self._handle, data)
        except OSError:
            return False
        if written < len(data):
            # A full disk took part of the line: take it back, so that no reader sees half of one.
            try:
                os.ftruncate(self._handle, self._size)
            except OSError:
                self._size += written
                self._offset += written
            return False
        self._size += written
        self._offset += written
        return True

    def _rotate(self, fields: dict[str, object]) -> bool:
        """Begin a new file with its first line already in it, so that a reader always finds the file's first offset."""
        data = _line(self._offset, fields)
        fresh = self._folder / (LOG_NAME + ".new")
        try:
            handle = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError:
            return False
        try:
            if os.write(handle, data) < len(data):
                raise OSError("short write")
            os.replace(self._folder / LOG_NAME, self._folder / OLD_LOG_NAME)
            os.replace(fresh, self._folder / LOG_NAME)
        except OSError:
            os.close(handle)
            return False
        os.close(self._handle)
        self._handle, self._size = handle, len(data)
        self._offset += len(data)
        return True


def _line(offset: int, fields: dict[str, object]) -> bytes:
    return json.dumps({"__CURSOR": cursor_of(offset), **fields}, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


@dataclass
class LineSplitter:
    """Bytes of one pipe → lines. A progress bar that redraws itself with carriage returns is passed on at most twice a second;
    the states between are not kept, as a terminal would not keep them."""

    _waiting: bytes = b""
    _bar_at: float = field(default=0.0)

    def feed(self, data: bytes, now: float) -> list[str]:
        """Complete lines in ``data`` and before it; ``now`` is any monotonic clock, in seconds."""
        *complete, self._waiting = (self._waiting + data).split(b"\n")
        lines = [_text(line) for line in complete]
        if b"\r" in self._waiting:
            lines += self._bar(now)
        if len(self._waiting) > LINE_LIMIT:
            lines.append(_text(self._waiting))
            self._waiting = b""
        return lines

    def rest(self) -> list[str]:
        """What was left without a newline when the pipe closed."""
        waiting, self._waiting = self._waiting, b""
        return [_text(waiting)] if waiting.strip() else []

    def _bar(self, now: float) -> list[str]:
        done, _, rest = self._waiting.rpartition(b"\r")
        states = [state for state in done.split(b"\r") if state.strip()]
        if states and now - self._bar_at >= BAR_INTERVAL_S:
            self._bar_at = now
            self._waiting = rest
            return [_text(states[-1])]
        self._waiting = (states[-1] + b"\r" if states else b"") + rest
        return []


def _text(line: bytes) -> str:
    return line[:LINE_LIMIT].rstrip(b"\r").decode("utf-8", "replace")
