"""A framed piece of a screen: focusable, explained by F1, maximised by one key, repainted only when its text changes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from rich.console import Group
from rich.text import Text
from textual.geometry import Region, Size
from textual.widget import Widget

STALE = " · stale"
"""Stands behind the title of a panel whose figures are old."""


@runtime_checkable
class Recoloured(Protocol):
    """A widget that writes its text anew, for another size or another theme."""

    def redraw(self) -> None: ...


class Panel(Widget, can_focus=True):
    """The frame that all panels share.

    ``topic`` names the entry of :mod:`dflash_console.tui.topics` that F1 shows for it.
    """

    ALLOW_MAXIMIZE = True
    topic = "console"

    def __init__(self, title: str, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id, classes=classes)
        self._lines: list[Text] = []
        self._drawn_for: Size | None = None
        self._drawing = False
        self._stale_figures = False
        self._titles: tuple[Text, ...] = (Text(title),)
        self._edges = (Text(title), Text())
        """What stands in the frame's upper and lower edge."""
        self._label_room = 0
        self.border_title = self._edges[0]

    def show_lines(self, lines: list[Text]) -> None:
        """Show these lines; only rows that differ are painted, since each one travels over the user's own SSH connection."""
        self._drawn_for = self.content_size
        if lines != self._lines:
            before, self._lines = self._lines, lines
            if not self._drawing:
                self.refresh(*self._changed_rows(before))

    def render(self) -> Group:
        # A layout can change the size without a Resize event reaching the widget; what is painted must fit all the same.
        if self.content_size != self._drawn_for:
            self._drawn_for = self.content_size
            self._drawing = True
            try:
                self.redraw()
            finally:
                self._drawing = False
            # The frame is being painted with the words that it had; those for this size come with the next paint.
            self.call_later(self._put_titles)
        return Group(*self._lines)

    def _changed_rows(self, before: list[Text]) -> list[Region]:
        """Where the lines differ from ``before``, a region a row; none stands for all, where lines do not match rows."""
        width = self.content_size.width
        if len(before) != len(self._lines) or any(line.cell_len > width for line in (*before, *self._lines)):
            return []
        return [Region(0, row, width, 1) for row, pair in enumerate(zip(before, self._lines, strict=True)) if pair[0] != pair[1]]

    def show_title(self, title: Text, *subtitles: Text) -> None:
        """Texts in the frame's upper and lower edge, never read as markup; of several for the lower edge the first that it has
        room for, else the last."""
        titles = (title, *subtitles)
        if titles != self._titles:
            self._titles = titles
            if not self._drawing:
                self._put_titles()

    def mark_stale(self, stale: bool) -> None:
        """Say in the frame, and by fading, that what stands in it is old."""
        if stale != self._stale_figures:
            self._stale_figures = stale
            self.set_class(stale, "-stale")
            self._put_titles()

    def _put_titles(self) -> None:
        title, *subtitles = self._titles
        room = self.label_room
        upper = title + Text(STALE) if self._stale_figures else title
        lower = next((words for words in subtitles if words.cell_len <= room), subtitles[-1] if subtitles else Text())
        if (upper, lower) != self._edges:
            self._edges = (upper, lower)
            self.border_title, self.border_subtitle = upper, lower

    @property
    def label_room(self) -> int:
        """Cells that a text in the frame's edge may take: inside the corners, a blank and a piece of the edge stand on either
        side of it. Of a hidden panel, which has no size, as many as it had last."""
        if self.content_size.width:
            self._label_room = max(0, self.content_size.width - 2)
        return self._label_room

    def redraw(self) -> None:
        """Build the lines anew from what was shown last; called when the size changes."""

    def on_resize(self) -> None:
        self.redraw()
        self._put_titles()

    def on_show(self) -> None:
        # A panel that comes back with the size that it had is sent no Resize.
        self.on_resize()

    def inner_size(self) -> tuple[int, int]:
        """Columns and rows inside the frame."""
        return self.content_size.width, self.content_size.height

    def colour(self, variable: str) -> str:
        """A theme variable's value, for Rich styles."""
        return self.app.theme_variables.get(variable, "")

    @property
    def text(self) -> str:
        """The plain text of the panel as it is shown, its title first."""
        upper, lower = self._edges
        return "\n".join((upper.plain, *(line.plain for line in self._lines), lower.plain))
