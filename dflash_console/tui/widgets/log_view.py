"""Log lines drawn one by one: any length of log costs what is visible."""

from __future__ import annotations

import re
from bisect import bisect_left

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...formats import clock
from ..log_book import Kind, Level, LogBook, LogEntry, LogFilter

Row = tuple[int, int]
"""Absolute number of an entry (dropped ones count) and the line inside its fold (0 = the entry itself)."""


class LogView(ScrollView, can_focus=True, inherit_bindings=False):
    """The entries of a :class:`LogBook` that pass a filter.

    While it follows, the newest line stays in view. Any upward movement ends that for good, and what is in view then stays
    where it is, however many lines come and however many old ones are forgotten.
    """

    topic = "log"
    ALLOW_MAXIMIZE = True

    class FollowChanged(Message):
        """Following began or ended."""

    def __init__(self, book: LogBook, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id, classes="framed")
        self.border_title = "Log"
        self.book = book
        self.filter = LogFilter()
        self.search: re.Pattern[str] | None = None
        self.follow = True
        self.opened: set[int] = set()
        self._rows: list[Row] = []
        self.cursor: Row | None = None

    # What is shown

    @property
    def rows(self) -> int:
        """Visible rows, folds counted as they are."""
        return len(self._rows)

    def row_text(self, index: int) -> str:
        """The text of a row as it is drawn, without number and time."""
        number, line = self._rows[index]
        entry = self._entry(number)
        if line:
            return "    " + entry.folded[line - 1]
        fold = f"  ▸ {len(entry.folded)} lines folded" if entry.folded and number not in self.opened else ""
        return entry.text + fold

    def shown_text(self) -> str:
        """All rows that pass the filter, as text for a file: time, line, text."""
        return "\n".join(self._plain(index) for index in range(len(self._rows)))

    def _plain(self, index: int) -> str:
        number, line = self._rows[index]
        entry = self._entry(number)
        stamp = f"{clock(entry.at)} " if line == 0 else ""
        return stamp + self.row_text(index).split("  ▸ ")[0]

    def cursor_text(self) -> str:
        """The whole entry under the cursor, its fold included."""
        if self.cursor is None or not self._rows:
            return ""
        entry = self._entry(self.cursor[0])
        return "\n".join((entry.text, *entry.folded))

    def _entry(self, number: int) -> LogEntry:
        return self.book.entries[number - self.book.dropped]

    def refresh_rows(self) -> None:
        """Read the book anew: lines came, or the filter or a fold changed."""
        top = self._rows[round(self.scroll_y)] if self._rows and round(self.scroll_y) < len(self._rows) else None
        rows: list[Row] = []
        for index, entry in enumerate(self.book.entries):
            if not self.filter.passes(entry):
                continue
            number = index + self.book.dropped
            rows.append((number, 0))
            if number in self.opened:
                rows.extend((number, line) for line in range(1, len(entry.folded) + 1))
        self._rows = rows
        width = max((len(self.row_text(index)) for index in range(max(0, len(rows) - 300), len(rows))), default=0)
        self.virtual_size = Size(width + 16, len(rows))
        if self.cursor is not None and self.cursor not in rows:
            self.cursor = rows[min(bisect_left(rows, self.cursor), len(rows) - 1)] if rows else None
        if self.follow:
            self._to_end()
        elif top is not None and rows:
            # The same line stays on top, though older ones went away.
            self.scroll_to(y=min(bisect_left(rows, top), len(rows) - 1), animate=False, force=True)
        self.refresh()

    def _to_end(self) -> None:
        self.cursor = self._rows[-1] if self._rows else None
        self.scroll_to(y=max(0, len(self._rows) - self.scrollable_content_region.height), animate=False, force=True)

    # Moving

    def set_follow(self, follow: bool) -> None:
        """Begin or end following."""
        if follow != self.follow:
            self.follow = follow
            self.post_message(self.FollowChanged())
        if follow:
            self._to_end()

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        end = max(0, len(self._rows) - self.scrollable_content_region.height)
        if self.follow and new < old and new < end:
            self.set_follow(False)

    def move(self, by: int) -> None:
        """Move the cursor by rows; upwards ends following."""
        if not self._rows:
            return
        if by < 0:
            self.set_follow(False)
        here = len(self._rows) - 1 if self.cursor is None else bisect_left(self._rows, self.cursor)
        self.go_to_row(max(0, min(len(self._rows) - 1, here + by)))

    def go_to_row(self, index: int) -> None:
        """Put the cursor on a row and bring it into view."""
        self.cursor = self._rows[index]
        self.scroll_to_region(Region(round(self.scroll_x), index, 1, 1), animate=False, force=True)
        self.refresh()

    def go_to_entry(self, index: int) -> bool:
        """Go to an entry of the book by its index; False when the filter hides it."""
        row = (index + self.book.dropped, 0)
        place = bisect_left(self._rows, row)
        if place == len(self._rows) or self._rows[place] != row:
            return False
        self.set_follow(False)
        self.go_to_row(place)
        return True

    def find(self, direction: int) -> bool:
        """Go to the next (1) or previous (−1) row that matches the search, around the end; False when none does."""
        if self.search is None or not self._rows:
            return False
        here = bisect_left(self._rows, self.cursor) if self.cursor is not None else 0
        for step in range(1, len(self._rows) + 1):
            index = (here + direction * step) % len(self._rows)
            if self.search.search(self.row_text(index)):
                self.set_follow(False)
                self.go_to_row(index)
                return True
        return False

    def toggle_fold(self) -> None:
        """Open or close the traceback under the cursor."""
        if self.cursor is None or not self._entry(self.cursor[0]).folded:
            return
        self.opened ^= {self.cursor[0]}
        self.cursor = (self.cursor[0], 0)
        self.refresh_rows()

    # Drawing

    def render_line(self, y: int) -> Strip:
        index = y + round(self.scroll_y)
        width = self.scrollable_content_region.width
        if index >= len(self._rows):
            return Strip.blank(width, self.rich_style)
        number, line = self._rows[index]
        entry = self._entry(number)
        ground = self.rich_style
        if self._rows[index] == self.cursor and self.has_focus:
            ground = ground + Style(bgcolor=self._colour("boost") or self._colour("panel"))
        prefix = "" if line else f"{clock(entry.at)} {_SYMBOLS.get(entry.kind, _LEVELS[entry.level])} "
        segments = [Segment(prefix.ljust(11), ground + Style(dim=True))]
        segments += self._marked(self.row_text(index), ground + self._style(entry))
        strip = Strip(segments)
        return strip.crop_extend(round(self.scroll_x), round(self.scroll_x) + width, ground)

    def _marked(self, text: str, style: Style) -> list[Segment]:
        if self.search is None:
            return [Segment(text, style)]
        found = style + Style(reverse=True)
        segments: list[Segment] = []
        position = 0
        for match in self.search.finditer(text):
            if match.end() == match.start():
                continue
            segments += [Segment(text[position : match.start()], style), Segment(match.group(), found)]
            position = match.end()
        return [*segments, Segment(text[position:], style)]

    def _style(self, entry: LogEntry) -> Style:
        if entry.level is Level.ERROR:
            return Style(color=self._colour("error"))
        if entry.level is Level.WARNING:
            return Style(color=self._colour("warning"))
        if entry.kind in (Kind.CONFIRMATION, Kind.MILESTONE):
            return Style(color=self._colour("success"), bold=entry.kind is Kind.CONFIRMATION)
        if entry.level <= Level.BATCH or entry.kind is Kind.MANAGER:
            return Style(color=self._colour("quiet"))
        return Style()

    def _colour(self, name: str) -> str | None:
        value = self.app.theme_variables.get(name)
        return value if value and value.startswith("#") and len(value) == 7 else None


_LEVELS = {Level.REQUEST: " ", Level.BATCH: " ", Level.INFO: " ", Level.WARNING: "!", Level.ERROR: "✗"}
_SYMBOLS = {Kind.CONFIRMATION: "✓", Kind.MILESTONE: "●", Kind.PROGRESS: "▸", Kind.MANAGER: "#", Kind.GAP: "…"}
