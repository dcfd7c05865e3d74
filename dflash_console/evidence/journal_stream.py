"""A stream of exported journal records → lines, across cuts of the stream and across journald's own cuts.

The stream may end anywhere and begin again at the last record that was read; journald splits lines longer than its LineMax
(48 KiB unless configured) into several records; journald itself may be started anew. None of this loses, doubles or tears a line
unseen.
"""

from __future__ import annotations

from dataclasses import replace

from .journal import STARTED, TOO_LONG, JournalEntry, LogLine, decode_lines, mask_lines, parse_entry, parse_record
from .journal_cursor import JournalCursor, parse_cursor

MAX_PENDING = 4 * 1024 * 1024
"""Bytes of an unfinished record that are kept; one that grows longer is given up as a gap."""
MAX_JOINED = 1024 * 1024
"""Bytes of a line in several records; what is longer is given in pieces."""
SHORTENED = "[lines may be missing here: the journal was shortened (vacuumed, or out of space) before they were read]"
RESTARTED = "[the host's journal was started anew here; lines printed at that moment may be missing]"


class JournalReader:
    """Turns a stream of exported bytes into lines; an unfinished line waits for its rest.

    Something that is no journal record (a warning that the tool printed, a torn line) becomes a gap, so that it is seen.
    """

    def __init__(self) -> None:
        self._pending = b""
        self._torn = b""
        """A record that ended too early: the next line may hold its rest."""
        self._cursor = ""
        self._expected: JournalCursor | None = None
        self._gap_if_other = True
        self._overtaken: JournalCursor | None = None
        """The stream still has to bring what was read up to here by :meth:`overtake`."""
        self._parts: dict[str, list[JournalEntry]] = {}
        """By stream: the beginning of a line that goes on."""
        self._invocation: str | None = None

    @property
    def pending(self) -> int:
        """Bytes of the unfinished record."""
        return len(self._torn) + len(self._pending)

    @property
    def cursor(self) -> str:
        """The newest record that was read whole, or where the stream began."""
        return self._cursor

    def expect(self, cursor: str, *, gap_if_other: bool = True) -> None:
        """A new stream begins, with the record at ``cursor`` if that still exists: it was given before and is left out.

        Args:
            gap_if_other: another first record means that those between are gone. Not so when the record at ``cursor`` is
                none that the stream selects.
        """
        self._pending = self._torn = b""
        self._overtaken = None
        self._cursor = cursor
        self._expected = parse_cursor(cursor)
        self._gap_if_other = gap_if_other

    def overtake(self, data: bytes, *, selected: bool = True) -> list[LogLine]:
        """Whole records from the one at :attr:`cursor` on, got in another way than the stream, which will bring them too.

        Args:
            selected: the record at :attr:`cursor` is among those that are selected, if it still exists.
        """
        before, awaited = self._cursor, (self._expected, self._gap_if_other, self._overtaken)
        self._expected, self._gap_if_other, self._overtaken = parse_cursor(before), selected, None
        lines = [line for raw in data.split(b"\n")[:-1] for line in self._complete(raw)]
        if self._cursor == before:
            self._expected, self._gap_if_other, self._overtaken = awaited
        else:
            # The stream's own first record is among those that it brings late.
            self._expected, self._overtaken = None, parse_cursor(self._cursor)
        return lines

    def feed(self, data: bytes) -> list[LogLine]:
        """The lines that ``data`` completes."""
        *whole, self._pending = (self._pending + data).split(b"\n") if self._pending else data.split(b"\n")
        lines = [line for raw in whole for line in self._complete(raw)]
        if len(self._pending) > MAX_PENDING:
            self._pending = b""
            lines.append(LogLine(TOO_LONG, origin="gap"))
        return lines

    def _complete(self, raw: bytes) -> tuple[LogLine, ...]:
        torn, self._torn = self._torn, b""
        if torn and (joined := parse_entry(torn + raw)) is not None:
            return self._take(joined)
        entry = parse_entry(raw)
        if entry is not None:
            return (*parse_record(torn), *self._take(entry))
        if raw.startswith(b"{"):
            self._torn = raw
            return parse_record(torn)
        return (*parse_record(torn), *parse_record(raw))

    def _take(self, entry: JournalEntry) -> tuple[LogLine, ...]:
        if self._overtaken is not None and self._is_old(entry, self._overtaken):
            return ()
        before = self._begin(entry)
        if before is None:
            return ()
        if entry.message_id == STARTED:
            same_boot = _boot(self._cursor) == _boot(entry.cursor)
            self._cursor = entry.cursor or self._cursor
            return (*before, self._note(RESTARTED, "console", entry)) if same_boot else before
        self._cursor = entry.cursor or self._cursor
        if entry.lines:
            self._invocation = entry.lines[0].invocation_id or self._invocation
        return (*before, *mask_lines(self._joined(entry)))

    def _is_old(self, entry: JournalEntry, overtaken: JournalCursor) -> bool:
        found = parse_cursor(entry.cursor)
        if found is None:
            return False
        if overtaken.before(found) or overtaken.same(found):
            self._overtaken = None
        return not overtaken.before(found)

    def _begin(self, entry: JournalEntry) -> tuple[LogLine, ...] | None:
        """What goes before the first record of a stream; ``None`` when the record itself was given already."""
        expected, self._expected = self._expected, None
        if expected is None:
            return ()
        found = parse_cursor(entry.cursor)
        if found is not None and found.same(expected):
            self._cursor = entry.cursor
            return None
        if not self._gap_if_other:
            return ()
        unfinished = tuple(line for parts in self._parts.values() for line in _line_of(parts))
        self._parts.clear()
        return (*mask_lines(unfinished), self._note(SHORTENED, "gap", entry))

    def _note(self, text: str, origin: str, entry: JournalEntry) -> LogLine:
        at = entry.lines[0].at if entry.lines else None
        return LogLine(text, cursor=entry.cursor, at=at, invocation_id=self._invocation, priority=4, origin=origin)

    def _joined(self, entry: JournalEntry) -> tuple[LogLine, ...]:
        """The lines of a record together with the earlier records of the same line."""
        if not entry.goes_on and not self._parts:
            return entry.lines
        parts = [*self._parts.pop(entry.stream, ()), entry]
        if entry.goes_on and sum(len(part.message) for part in parts) < MAX_JOINED:
            self._parts[entry.stream] = parts
            return ()
        return entry.lines if len(parts) == 1 else _line_of(parts)


def _line_of(parts: list[JournalEntry]) -> tuple[LogLine, ...]:
    last = parts[-1]
    if not last.lines:
        return ()
    return tuple(replace(last.lines[0], text=text) for text in decode_lines(b"".join(part.message for part in parts)))


def _boot(cursor: str) -> str | None:
    found = parse_cursor(cursor)
    return found.boot if found is not None else None
