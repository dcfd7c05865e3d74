"""Sentences in the last column of a table: on a terminal they go on under themselves."""

from __future__ import annotations

import textwrap

LEAST_ROOM = 30
"""A column of fewer cells is left to the terminal's own wrapping: words would stand one under the other."""


def under_itself(text: str, room: int | None) -> list[str]:
    """``text`` as the lines of a column.

    Args:
        room: cells of the column; ``None`` for a pipe or a file, which take whole lines.
    """
    if room is None or room < LEAST_ROOM:
        return [text]
    return textwrap.wrap(text, room, break_on_hyphens=False) or [text]
