"""What hosts and models say is text to the terminal, never commands: the last door, through which every painted line goes.

Readers clean what they show of hosts, but text comes from many: unit files, models, another user's process. Textual (8.2.8)
writes out whatever a widget holds, so that one that was forgotten would move the cursor or set the terminal's title.
"""

from __future__ import annotations

import re

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class EscapeFilter(LineFilter):
    """Drops control characters, which take no cell: nothing else in a line moves. What is left of a sequence is seen as text."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        search = _CONTROLS.search
        if not any(search(segment.text) for segment in segments if not segment.control):
            return segments
        return [segment if segment.control else Segment(_CONTROLS.sub("", segment.text), segment.style) for segment in segments]
