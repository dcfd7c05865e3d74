"""Log lines drawn one by one: any length of log costs what is visible."""

from __future__ import annotations

import re
from collections.abc import Callable

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ...formats import clock
from ..log_book import Kind, Level, LogBook, LogEntry, LogFilter
from ..log_rows import LogRows, Row

MARGIN = 11
"""Cells before a line's text: its time and its mark."""


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
        self.lines = LogRows(book)
        self.search: re.Pattern[str] | None = None
        self.follow = True
        self.wrapped = False
        self.cursor: Row | None = None

    # What is shown

    @property
    def rows(self) -> int:
        """Rows that can be shown, folds counted as they are."""
        return len(self.lines)

    def row_text(self, index: int) -> str:
        """The text of a row as it is drawn, without number and time."""
        return self.lines.text(index)

    def cursor_text(self) -> str:
        """The whole entry under the cursor, its fold included."""
        if self.cursor is None or not len(self.lines):
            return ""
        entry = self.lines.entry(self.cursor)
        return "\n".join((entry.text, *entry.folded))

    def show_only(self, wanted: LogFilter) -> None:
        """Show the entries that pass ``wanted``."""
        self.lines.filter = wanted
        self.refresh_rows()

    def wrap(self, wrapped: bool) -> None:
        """Show long lines on as many rows as they take, or on one that scrolls sideways."""
        self.wrapped = wrapped
        if wrapped:
            self.scroll_to(x=0, animate=False, force=True)
        self.refresh_rows()

    def start_anew(self) -> None:
        """Another log is read from now on."""
        self.lines.opened.clear()
        self.refresh_rows()

    def take_lines(self) -> None:
        """Lines came."""
        self._show_rows(self.lines.read_on if self._wrap_width() == self.lines.wrap else self.lines.rebuild)

    def refresh_rows(self) -> None:
        """Read the book anew: the filter, a fold or the width changed."""
        self._show_rows(self.lines.rebuild)

    def _wrap_width(self) -> int | None:
        return max(10, self.scrollable_content_region.width - MARGIN) if self.wrapped else None

    def _show_rows(self, read: Callable[[], None]) -> None:
        lines = self.lines
        top = lines[round(self.scroll_y)] if round(self.scroll_y) < len(lines) else None
        lines.wrap = self._wrap_width()
        read()
        width = 0 if self.wrapped else lines.widest() + MARGIN
        self.virtual_size = Size(width, len(lines))
        if self.cursor is not None and lines.index_of(self.cursor) is None:
            self.cursor = self._nearest(self.cursor)
        if self.follow:
            self._to_end()
        elif top is not None and len(lines):
            # The same line stays on top, though older ones went away.
            self.scroll_to(y=min(lines.place(top), len(lines) - 1), animate=False, force=True)
        self.refresh()

    def _nearest(self, row: Row) -> Row | None:
        """The row itself at its first part, or the next one that is shown."""
        if not len(self.lines):
            return None
        return self.lines[min(self.lines.place(row._replace(part=0)), len(self.lines) - 1)]

    def on_resize(self) -> None:
        if self.wrapped:
            self.refresh_rows()

    def _to_end(self) -> None:
        self.cursor = self.lines[-1] if len(self.lines) else None
        self.scroll_to(y=max(0, len(self.lines) - self.scrollable_content_region.height), animate=False, force=True)

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
        end = max(0, len(self.lines) - self.scrollable_content_region.height)
        if self.follow and new < old and new < end:
            self.set_follow(False)

    def move(self, by: int) -> None:
        """Move the cursor by rows; upwards ends following."""
        if not len(self.lines):
            return
        if by < 0:
            self.set_follow(False)
        here = len(self.lines) - 1 if self.cursor is None else self.lines.place(self.cursor)
        self.go_to_row(max(0, min(len(self.lines) - 1, here + by)))

    def go_to_row(self, index: int) -> None:
        """Put the cursor on a row and bring it into view."""
        self.cursor = self.lines[index]
        self.scroll_to_region(Region(round(self.scroll_x), index, 1, 1), animate=False, force=True)
        self.refresh()

    def go_to_entry(self, index: int) -> bool:
        """Go to an entry of the book by its index; False when the filter hides it."""
        place = self.lines.index_of(Row(index + self.book.dropped))
        if place is None:
            return False
        self.set_follow(False)
        self.go_to_row(place)
        return True

    def find(self, direction: int) -> bool:
        """Go to the next (1) or previous (−1) line that matches the search, around the end; False when none does."""
        if self.search is None or not len(self.lines):
            return False
        here = 0 if self.cursor is None else self.lines.place(self.cursor._replace(part=0))
        index = self.lines.find(self.search, here, direction)
        if index is None:
            return False
        self.set_follow(False)
        self.go_to_row(index)
        return True

    def toggle_fold(self) -> None:
        """Open or close the traceback under the cursor."""
        if self.cursor is None or not self.lines.entry(self.cursor).folded:
            return
        self.lines.opened ^= {self.cursor.number}
        self.cursor = Row(self.cursor.number)
        self.refresh_rows()

    # Drawing

    def render_line(self, y: int) -> Strip:
        index = y + round(self.scroll_y)
        width = self.scrollable_content_region.width
        if index >= len(self.lines):
            return Strip.blank(width, self.rich_style)
        row = self.lines[index]
        entry = self.lines.entry(row)
        ground = self.rich_style
        if row == self.cursor and self.has_focus:
            ground = ground + Style(bgcolor=self._colour("boost") or self._colour("panel"))
        first = row.line == 0 and row.part == 0
        prefix = f"{clock(entry.at)} {_SYMBOLS.get(entry.kind, _LEVELS[entry.level])} " if first else ""
        segments = [Segment(prefix.ljust(MARGIN), ground + Style(dim=True))]
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
        if entry.level <= Level.BATCH or entry.kind in (Kind.MANAGER, Kind.PROGRESS):
            return Style(color=self._colour("quiet"))
        return Style()

    def _colour(self, name: str) -> str | None:
        value = self.app.theme_variables.get(name)
        return value if value and value.startswith("#") and len(value) == 7 else None


_LEVELS = {Level.REQUEST: " ", Level.BATCH: " ", Level.INFO: " ", Level.WARNING: "!", Level.ERROR: "✗"}
_SYMBOLS = {Kind.CONFIRMATION: "✓", Kind.MILESTONE: "●", Kind.PROGRESS: "▸", Kind.MANAGER: "#", Kind.GAP: "…"}
