"""Rows of text with a cursor: what the tables of settings, of truth and of hosts have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

Row = TypeVar("Row")
LEAST_WIDTH = 30
"""Cells under which nothing is painted: the first layout of a screen may give any width."""


class CursorRows(VerticalScroll, Generic[Row], can_focus=True, inherit_bindings=False):
    """A framed panel that keeps its rows, the cursor and its text, and repaints only when a word of it changed.

    A subclass gives :meth:`paint`; it may note in ``_tops`` at which line each row begins.
    """

    ALLOW_MAXIMIZE = True

    def __init__(self, title: str, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id, classes="framed")
        self.border_title = title
        self._static = Static("", markup=False)
        self._rows: tuple[Row, ...] = ()
        self._cursor = 0
        self._text = Text()
        self._tops: list[int] = []

    def compose(self) -> ComposeResult:
        yield self._static

    @property
    def text(self) -> str:
        return self._text.plain

    @property
    def current(self) -> Row | None:
        """The row under the cursor."""
        return self._rows[self._cursor] if self._cursor < len(self._rows) else None

    def paint(self, width: int) -> list[Text]:
        """The lines for a panel that is ``width`` cells wide inside."""
        raise NotImplementedError

    def move(self, by: int) -> None:
        """Move the cursor, and show the row that it comes to with the heading or the row before it."""
        if self._rows:
            self._cursor = self._within(self._cursor + by)
            self.redraw()
            self.scroll_to(y=max(0, self._tops[self._cursor] - 2), animate=False)

    def redraw(self) -> None:
        """Write the text anew, for another size or another theme."""
        region = self.scrollable_content_region
        if region.width < LEAST_WIDTH:
            return
        lines = self.paint(region.width)
        if len(lines) > region.height and not self.show_vertical_scrollbar:
            # The scroll bar comes with these lines, and takes its columns from them.
            lines = self.paint(region.width - self.styles.scrollbar_size_vertical)
        text = Text("\n").join(lines)
        if text != self._text:
            self._text = text
            self._static.update(text)

    def on_resize(self) -> None:
        self.redraw()
        # A field that opens beneath makes the panel smaller; the row that it is for stays in sight.
        self.call_after_refresh(self._keep_in_sight)

    def _keep_in_sight(self) -> None:
        """Scroll to the row under the cursor where it is not shown."""
        if not self._rows:
            return
        line = self._top(self._cursor)
        if not self.scroll_y <= line < self.scroll_y + self.scrollable_content_region.height:
            self.scroll_to(y=max(0, line - 2), animate=False)

    def _top(self, index: int) -> int:
        """At which line a row begins; without other word, rows of one line stand under one of headings."""
        return self._tops[index] if index < len(self._tops) else index + 1

    def _put(self, rows: Sequence[Row]) -> None:
        self._rows = tuple(rows)
        self._cursor = self._within(self._cursor)

    def _within(self, index: int) -> int:
        return max(0, min(len(self._rows) - 1, index))
