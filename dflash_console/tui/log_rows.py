"""Which rows of a log are shown, and which text each of them holds: filtered, unfolded, wrapped. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import NamedTuple

from rich.cells import cell_len, chop_cells

from ..formats import clock
from .log_book import LogBook, LogEntry, LogFilter

FOLD_INDENT = "    "


class Row(NamedTuple):
    """One line of the screen."""

    number: int
    """Absolute number of the entry: dropped ones count, so it stays what it is when old entries are forgotten."""
    line: int = 0
    """Line inside the entry's fold; 0 is the entry itself."""
    part: int = 0
    """Part of that line where long lines are wrapped."""


class LogRows:
    """The rows of a book that pass a filter. :meth:`rebuild` reads the book anew, :meth:`read_on` what came since; everything
    else answers from that. A book has one such reader."""

    def __init__(self, book: LogBook) -> None:
        self.book = book
        self.filter = LogFilter()
        self.opened: set[int] = set()
        """Absolute numbers of the entries whose fold is open."""
        self.wrap: int | None = None
        """Cells a row has for its text; ``None`` leaves long lines whole."""
        self._rows: list[Row] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Row:
        return self._rows[index]

    def entry(self, row: Row) -> LogEntry:
        return self.book.entries[row.number - self.book.dropped]

    def rebuild(self) -> None:
        """Read the book anew: lines came, or the filter, a fold or the width changed."""
        self._rows = []
        self.book.changed_from = self.book.dropped
        self.read_on()

    def read_on(self) -> None:
        """Read what came, changed or went away. A full book has thousands of entries; lines come up to twenty times a second."""
        book, rows = self.book, self._rows
        del rows[: bisect_left(rows, Row(book.dropped))]
        first = max(book.changed_from, book.dropped)
        del rows[bisect_left(rows, Row(first)) :]
        book.changed_from = book.end
        for number in range(first, book.end):
            entry = book.entries[number - book.dropped]
            if not self.filter.passes(entry):
                continue
            lines = 1 + len(entry.folded) if number in self.opened else 1
            for line in range(lines):
                if self.wrap is None:
                    rows.append(Row(number, line))
                else:
                    rows.extend(Row(number, line, part) for part in range(len(self._parts(Row(number, line)))))

    def place(self, row: Row) -> int:
        """Index of a row, or of the first one after where it was."""
        return bisect_left(self._rows, row)

    def index_of(self, row: Row) -> int | None:
        """Index of a row; ``None`` when it is not shown."""
        index = self.place(row)
        return index if index < len(self._rows) and self._rows[index] == row else None

    def line_text(self, row: Row) -> str:
        """The whole line that a row is of, without number and time."""
        entry = self.entry(row)
        if row.line:
            return FOLD_INDENT + entry.folded[row.line - 1]
        folded = entry.folded and row.number not in self.opened
        return f"{entry.text}  ▸ {len(entry.folded)} lines folded" if folded else entry.text

    def text(self, index: int) -> str:
        """What the row at ``index`` shows, without number and time."""
        row = self._rows[index]
        return self.line_text(row) if self.wrap is None else self._parts(row)[row.part]

    def _parts(self, row: Row) -> list[str]:
        width = max(10, self.wrap or 0)
        text = self.line_text(row)
        if text.isascii():
            return [text[start : start + width] for start in range(0, len(text), width)] or [""]
        parts = chop_cells(text, width) or [""]
        # chop_cells leaves out an end that has no width of its own.
        parts[-1] += text[sum(map(len, parts)) :]
        return parts

    def widest(self, last: int = 300) -> int:
        """Cells of the longest of the ``last`` rows."""
        return max((cell_len(self.text(index)) for index in range(max(0, len(self) - last), len(self))), default=0)

    def plain(self) -> str:
        """All lines that pass the filter, for a file: time and text, folds that are closed left out."""
        lines = []
        for row in self._rows:
            if row.part == 0:
                entry = self.entry(row)
                lines.append(self.line_text(row) if row.line else f"{clock(entry.at)} {entry.text}")
        return "\n".join(lines)

    def find(self, pattern: re.Pattern[str], start: int, direction: int) -> int | None:
        """Index of the next row (1) or the one before (−1) whose line matches, around the end; ``None`` when none does."""
        for step in range(1, len(self._rows) + 1):
            index = (start + direction * step) % len(self._rows)
            row = self._rows[index]
            if row.part == 0 and (match := pattern.search(self.line_text(row))):
                return index + self._part_of(row, match.start())
        return None

    def _part_of(self, row: Row, position: int) -> int:
        if self.wrap is None:
            return 0
        for part, text in enumerate(self._parts(row)):
            if position < len(text):
                return part
            position -= len(text)
        return 0
