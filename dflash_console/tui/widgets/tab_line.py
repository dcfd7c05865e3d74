"""The numbered screens in one line, and the plots' span at its end."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static


class TabLine(Static):
    """Shows which screen is open; a click opens another."""

    class Picked(Message):
        """A screen's name was clicked."""

        def __init__(self, pane: str) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, names: dict[str, str], numbers: dict[str, int]) -> None:
        """``names``: pane id → title, in the order of their ``numbers``."""
        super().__init__("", markup=False, id="tabs")
        self._names = names
        self._numbers = numbers
        self._open = next(iter(names))
        self._right = ""
        self._spans: list[tuple[int, int, str]] = []

    def show_tabs(self, pane: str, right: str) -> None:
        """``pane`` is open; ``right`` stands at the end of the line."""
        if (pane, right) != (self._open, self._right) or not self._spans:
            self._open, self._right = pane, right
            self.redraw()

    def on_resize(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        """Write the text anew, for another size or another theme."""
        variables = self.app.theme_variables
        line = Text(no_wrap=True, end="")
        self._spans = []
        for pane, title in self._names.items():
            number = self._numbers[pane]
            start = line.cell_len
            active = pane == self._open
            style = f"bold reverse {variables.get('primary', '')}" if active else ""
            line.append(f" {number} ", style=style or f"bold {variables.get('accent', '')}")
            line.append(f"{title} ", style=style or "")
            line.append(" ")
            self._spans.append((start, line.cell_len - 1, pane))
        room = self.size.width - line.cell_len - 1
        if len(self._right) <= room:
            line.append(" " * (room - len(self._right)))
            line.append(self._right, style=variables.get("quiet", ""))
        self.update(line)

    def on_click(self, event: events.Click) -> None:
        for start, end, pane in self._spans:
            if start <= event.x < end:
                self.post_message(self.Picked(pane))
                return
