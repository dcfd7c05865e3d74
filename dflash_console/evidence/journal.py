"""Log lines with their origin, and the JSON form in which service managers hand them out.

``journalctl -o json`` and the supervisor of local processes write one JSON object a line with the same field names
(systemd.journal-fields(7), systemd journal export formats). A message may be a text, bytes as a list of numbers (binary or
with escapes), several values, or null (longer than the exporter's limit).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .secrets import mask_text
from .values import read_json, whole

TOO_LONG = "[a line that was too long for the journal's export; read it with --all or from the log file]"
MANAGERS = frozenset({"systemd", "systemd-journald", "supervisor"})
"""SYSLOG_IDENTIFIER of service managers: their lines are about the engine, not from it."""
MAX_PENDING = 4 * 1024 * 1024
"""Bytes of an unfinished line that are kept; one that grows longer is given up as a gap."""


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


class JournalReader:
    """Turns a stream of exported bytes into lines; an unfinished line waits for its rest.

    Something that is no journal record (a warning that the tool printed, a torn line) becomes a gap, so that it is seen.
    """

    def __init__(self) -> None:
        self._pending = b""
        self._torn = b""
        """A record that ended too early: the next line may hold its rest."""

    @property
    def pending(self) -> int:
        """Bytes of the unfinished record."""
        return len(self._torn) + len(self._pending)

    def feed(self, data: bytes) -> list[LogLine]:
        """The lines that ``data`` completes."""
        *whole, self._pending = (self._pending + data).split(b"\n")
        lines = [line for raw in whole for line in self._complete(raw)]
        if len(self._pending) > MAX_PENDING:
            self._pending = b""
            lines.append(LogLine(TOO_LONG, origin="gap"))
        return lines

    def _complete(self, raw: bytes) -> tuple[LogLine, ...]:
        torn, self._torn = self._torn, b""
        if torn and _record(torn + raw) is not None:
            return parse_record(torn + raw)
        if raw.startswith(b"{") and _record(raw) is None:
            self._torn = raw
            return parse_record(torn)
        return (*parse_record(torn), *parse_record(raw))


def parse_export(lines: Iterable[bytes]) -> list[LogLine]:
    """All lines of exported records, one record a line. A last line that was cut off is left out: its rest is still to come."""
    records = [raw.rstrip(b"\r\n") for raw in lines]
    if records and _record(records[-1]) is None:
        records.pop()
    return [line for raw in records for line in parse_record(raw)]


def parse_record(raw: bytes) -> tuple[LogLine, ...]:
    """The log lines of one record: none for a blank line, several for a message with several values or newlines."""
    if not raw.strip():
        return ()
    fields = _record(raw)
    if fields is None:
        return (LogLine("[a record of the journal that cannot be read]", origin="gap"),)
    texts, gap = _texts(fields.get("MESSAGE"))
    if "N_DROPPED" in fields:
        gap = True
        texts = texts or [f"[{_text(fields['N_DROPPED'])} lines were dropped here]"]
    origin = "gap" if gap else "manager" if _text(fields.get("SYSLOG_IDENTIFIER")) in MANAGERS else "engine"
    microseconds = _int(fields.get("__REALTIME_TIMESTAMP"))
    number = _int(fields.get("LINE_OF_START"))
    priority = _int(fields.get("PRIORITY"))
    return tuple(
        LogLine(
            text=mask_text(text),
            cursor=_text(fields.get("__CURSOR")),
            at=microseconds / 1e6 if microseconds is not None else None,
            invocation_id=_text(fields.get("_SYSTEMD_INVOCATION_ID")) or _text(fields.get("INVOCATION_ID")) or None,
            pid=_int(fields.get("_PID")),
            priority=priority if priority is not None else 6,
            origin=origin,
            number=number,
        )
        for text in texts
    )


def _record(raw: bytes) -> dict[str, object] | None:
    try:
        fields = read_json(raw)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _texts(message: object) -> tuple[list[str], bool]:
    """The message's lines, and whether something is missing in its place."""
    if isinstance(message, str):
        return message.removesuffix("\n").split("\n"), False
    if message is None:
        return [TOO_LONG], True
    if isinstance(message, list):
        if message and all(isinstance(value, int) and 0 <= value < 256 for value in message):
            decoded = bytes(value for value in message if isinstance(value, int)).decode("utf-8", errors="replace")
            return decoded.removesuffix("\n").split("\n"), False
        lines: list[str] = []
        missing = not message
        for value in message:
            more, gap = _texts(value) if isinstance(value, (str, list)) or value is None else ([str(value)], False)
            lines += more
            missing = missing or gap
        return lines, missing
    return [str(message)], False


def _text(value: object) -> str:
    """A field's text; of a field with several values the first."""
    if isinstance(value, list) and value:
        return _text(value[0])
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def _int(value: object) -> int | None:
    return whole(_text(value))
