"""Log lines with their origin, and the JSON form in which service managers hand them out.

``journalctl -o json`` and the supervisor of local processes write one JSON object a line with the same field names
(systemd.journal-fields(7), systemd journal export formats). A message may be a text, bytes as a list of numbers (binary or
with escapes), several values, or null (longer than the exporter's limit). What joins records to a stream is in
``journal_stream.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from .secrets import mask_text
from .values import read_json, whole

TOO_LONG = "[a line that was too long for the journal's export; read it with --all or from the log file]"
MANAGERS = frozenset({"systemd", "systemd-journald", "supervisor"})
"""SYSLOG_IDENTIFIER of service managers: their lines are about the engine, not from it."""
STARTED = "f77379a8490b408bbe5f6940505a777b"
"""MESSAGE_ID of journald's own line when it starts (``sd-messages(3)``)."""
FIELDS = (
    *("MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "_PID", "_SYSTEMD_INVOCATION_ID", "INVOCATION_ID", "USER_INVOCATION_ID"),
    *("OBJECT_SYSTEMD_INVOCATION_ID", "N_DROPPED", "MESSAGE_ID", "_TRANSPORT", "_STREAM_ID", "_LINE_BREAK"),
)
"""The fields that are read here, for ``journalctl --output-fields``; cursor and time always come."""


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
    """``engine``, ``manager`` (the service manager's own line), ``gap`` (lines are missing here), ``console`` (what the console
    has to say about the log) or ``unseen`` (why a part of what the engine prints does not come)."""
    number: int | None = None
    """Line number within this start, from 1."""
    stream: str = field(default="", compare=False, repr=False)
    """journald's id of the output stream that it came through: one start has streams of its own. Empty = through none."""


@dataclass(frozen=True)
class JournalEntry:
    """One record of a journal, its secrets not masked yet."""

    cursor: str
    lines: tuple[LogLine, ...]
    message: bytes = field(default=b"", repr=False)
    """The message as bytes, where it is one text."""
    goes_on: bool = False
    """The line was longer than journald's LineMax and goes on in the next record of its stream."""
    stream: str = ""
    """Which output of which process it came from."""
    message_id: str = ""


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
    entry = parse_entry(raw)
    if entry is None:
        return (LogLine("[a record of the journal that cannot be read]", origin="gap"),)
    return mask_lines(entry.lines)


def mask_lines(lines: Iterable[LogLine]) -> tuple[LogLine, ...]:
    """The same lines with secret values masked."""
    return tuple(line if (text := mask_text(line.text)) == line.text else replace(line, text=text) for line in lines)


def parse_entry(raw: bytes) -> JournalEntry | None:
    """One exported record; ``None`` when it is none."""
    fields = _record(raw)
    if fields is None:
        return None
    message = fields.get("MESSAGE")
    data = _bytes(message)
    texts, gap = (decode_lines(data), False) if data is not None else _texts(message)
    if "N_DROPPED" in fields:
        gap = True
        texts = texts or [f"[{_text(fields['N_DROPPED'])} lines were dropped here]"]
    microseconds = _int(fields.get("__REALTIME_TIMESTAMP"))
    priority = _int(fields.get("PRIORITY"))
    cursor = _text(fields.get("__CURSOR"))
    pid = _int(fields.get("_PID"))
    manager = _text(fields.get("SYSLOG_IDENTIFIER")) in MANAGERS
    first = LogLine(
        text=texts[0] if texts else "",
        cursor=cursor,
        at=microseconds / 1e6 if microseconds is not None else None,
        invocation_id=_invocation(fields, manager),
        pid=pid,
        priority=priority if priority is not None else 6,
        origin="gap" if gap else "manager" if manager else "engine",
        number=_int(fields.get("LINE_OF_START")),
        stream="" if manager else _text(fields.get("_STREAM_ID")),
    )
    return JournalEntry(
        cursor,
        (first, *(replace(first, text=text) for text in texts[1:])) if texts else (),
        data or b"",
        goes_on=_text(fields.get("_LINE_BREAK")) == "line-max",
        stream=_text(fields.get("_STREAM_ID")) or str(pid),
        message_id=_text(fields.get("MESSAGE_ID")),
    )


def _invocation(fields: dict[str, object], manager: bool) -> str | None:
    """The start that a record belongs to. A manager's own fields name the manager; which start it speaks of is said beside."""
    told = ("OBJECT_SYSTEMD_INVOCATION_ID", "INVOCATION_ID", "USER_INVOCATION_ID") if manager else ()
    for name in (*told, "_SYSTEMD_INVOCATION_ID"):
        if found := _text(fields.get(name)):
            return found
    return None


def decode_lines(data: bytes) -> list[str]:
    """A message's bytes as lines."""
    return data.decode("utf-8", errors="replace").removesuffix("\n").split("\n")


def _record(raw: bytes) -> dict[str, object] | None:
    try:
        fields = read_json(raw)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None


def _bytes(message: object) -> bytes | None:
    """A message that is one text; ``None`` when it is something else."""
    if isinstance(message, str):
        return message.encode("utf-8", "replace")
    if isinstance(message, list) and message and all(isinstance(value, int) and 0 <= value < 256 for value in message):
        return bytes(value for value in message if isinstance(value, int))
    return None


def _texts(message: object) -> tuple[list[str], bool]:
    """The lines of any message, and whether something is missing in its place."""
    if (data := _bytes(message)) is not None:
        return decode_lines(data), False
    if message is None:
        return [TOO_LONG], True
    if isinstance(message, list):
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
