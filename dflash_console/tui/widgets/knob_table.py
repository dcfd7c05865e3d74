"""Every setting: what it is now, what it would be, where it comes from and what changing it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text
from textual import events
from textual.message import Message

from ...formats import shorten
from .cursor_rows import CursorRows


@dataclass(frozen=True)
class KnobRow:
    """One setting as the table shows it."""

    name: str
    title: str
    now: str
    new: str
    remark: str
    """Where the present value comes from, or what applying the new one takes."""
    edited: bool = False
    hot: bool = False
    """The edit needs no restart."""


class KnobTable(CursorRows[KnobRow], can_focus=True, inherit_bindings=False):
    """Rows with a cursor; the keys that step a setting work on the dashboard too, ``enter`` only here."""

    topic = "settings"

    class Chosen(Message):
        """``enter`` or a second click on a row."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class Moved(Message):
        """The cursor is on another setting."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, *, id: str) -> None:  # noqa: A002
        super().__init__("Settings", id=id)

    def show_rows(self, rows: Sequence[KnobRow]) -> None:
        self._put(rows)
        self.redraw()

    def choose(self, name: str) -> None:
        """Put the cursor on a setting."""
        for index, row in enumerate(self._rows):
            if row.name == name and index != self._cursor:
                self._move_to(index)

    def move(self, by: int) -> None:
        if self._rows:
            self._move_to(self._within(self._cursor + by))

    def _move_to(self, index: int) -> None:
        self._cursor = index
        self.redraw()
        if not self.scroll_y <= index < self.scroll_y + self.scrollable_content_region.height - 1:
            self.scroll_to(y=max(0, index - 2), animate=False)
        self.post_message(self.Moved(self._rows[index].name))

    def on_click(self, event: events.Click) -> None:
        index = event.y + round(self.scroll_y) - 2
        if 0 <= index < len(self._rows):
            if index == self._cursor:
                self.post_message(self.Chosen(self._rows[index].name))
            else:
                self._move_to(index)

    def paint(self, width: int) -> list[Text]:
        title_width = min(28, max(23 if width >= 60 else 20, width // 3))
        value_width = min(16, max(8, width // 7))
        remark_width = max(0, width - title_width - 2 * value_width - 2)
        heading = "  " + "setting".ljust(title_width) + "now".ljust(value_width) + "new".ljust(value_width) + "from"
        lines = [Text(heading, style="dim", no_wrap=True)]
        variables = self.app.theme_variables
        for index, row in enumerate(self._rows):
            chosen = index == self._cursor
            line = Text(no_wrap=True)
            line.append("▸ " if chosen else "  ", style=f"bold {variables.get('accent', '')}")
            title = shorten(row.title, title_width - 1)
            line.append(title, style="bold" if chosen or row.edited else "")
            line.append(" " * (title_width - len(title)))
            line.append(shorten(row.now, value_width - 1, keep_end=True).ljust(value_width))
            new_style = f"bold {variables.get('accent', '')}" if row.edited else "dim"
            line.append(shorten(row.new, value_width - 1, keep_end=True).ljust(value_width), style=new_style)
            remark_style = "" if not row.edited else variables.get("success" if row.hot else "warning", "")
            line.append(shorten(row.remark, remark_width), style=remark_style or "dim")
            lines.append(line)
        return lines
