"""The newest things the log said, in plain words."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.text import Text
from textual.widgets import Static

from ...formats import clock
from ..event_words import EventWords
from .panel import Panel

_BETWEEN = "  ·  "
LEAST_CELLS = 30
"""A further event that does not fit is begun only where it has so much room: the time and its first words."""


class EventLine(Static):
    """The newest events in one line, where the panel's room is needed for something else."""

    def __init__(self, *, id: str) -> None:  # noqa: A002
        super().__init__("", markup=False, id=id)
        self._events: Sequence[EventWords] = ()

    def show_events(self, events: Sequence[EventWords]) -> None:
        """``events`` in the order in which they happened."""
        self._events = events
        self.redraw()

    def redraw(self) -> None:
        """Write the text anew, for another theme."""
        line = Text(" ", no_wrap=True, overflow="ellipsis")
        width = self.size.width or sys.maxsize
        for event in list(self._events)[-1:-5:-1]:
            words = _words(event, self.app.theme_variables.get(event.tone, ""))
            room = width - line.cell_len - len(_BETWEEN)
            if line.cell_len > 1 and words.cell_len > room < LEAST_CELLS:
                break
            line.append(_BETWEEN if line.cell_len > 1 else "", style="dim")
            line.append_text(words)
        line.truncate(width, overflow="ellipsis")
        self.update(line)

    def on_resize(self) -> None:
        self.redraw()


class EventPanel(Panel):
    """Newest first; as many as fit."""

    topic = "events"

    def __init__(self, title: str, *, id: str) -> None:  # noqa: A002
        super().__init__(title, id=id)
        self._events: Sequence[EventWords] = ()

    def show_events(self, events: Sequence[EventWords]) -> None:
        """``events`` in the order in which they happened."""
        self._events = events
        self.redraw()

    def redraw(self) -> None:
        width, height = self.inner_size()
        lines: list[Text] = []
        for event in list(self._events)[::-1][: max(1, height)]:
            line = _words(event, self.colour(event.tone) if event.tone else "")
            line.truncate(max(1, width), overflow="ellipsis")
            lines.append(line)
        self.show_lines(lines or [Text("nothing yet", style="dim")])


def _words(event: EventWords, style: str) -> Text:
    line = Text(no_wrap=True)
    line.append(f"{clock(event.at)} ", style="dim")
    symbol = {"warning": "! ", "error": "✗ ", "success": "✓ "}.get(event.tone, "")
    return line.append(symbol + event.words, style=style)
