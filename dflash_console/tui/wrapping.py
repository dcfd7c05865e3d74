"""Sentences folded at a number of cells. Python's own folding counts characters, of which many (日本語) take two cells."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

_WORD = re.compile(r"([ \t\n\r\f\v]*)([^ \t\n\r\f\v]+)")
"""Blanks and the word behind them; a no-break space belongs to its word."""


def wrapped(text: str, width: int, *, first: str = "", rest: str = "", hyphens: bool = False) -> list[str]:
    """``text`` as lines of at most ``width`` cells; a word that is too long for a line is cut into several.

    Args:
        first: stands before the first line, and counts.
        rest: stands before each other line.
        hyphens: a line may end behind a hyphen too; a text with wide characters is folded at blanks only.
    """
    if cell_len(text) == len(text):
        return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=hyphens)
    lines: list[str] = []
    line, empty = first, True
    for gap, word in _WORD.findall(text):
        between = "" if empty else gap
        while word:
            if cell_len(line + between + word) <= width:
                line, empty = line + between + word, False
                break
            if cell_len(rest + word) > width:
                # One character at least goes on a line of its own, however narrow that is.
                taken = _fitting(word, width - cell_len(line + between)) or (1 if empty else 0)
                if taken:
                    line, word, empty = line + between + word[:taken], word[taken:], False
            lines.append(line)
            line, empty, between = rest, True, ""
    return lines if empty else [*lines, line]


LEAST_HUNG = 20
"""Cells that a line must have beneath its first one to be hung there."""
_HEAD = re.compile(r"(?:[✗!·✓] )? *")


def hung(text: Text, width: int, console: Console) -> Text:
    """Sentences with their styles, each folded at ``width`` cells and going on beneath its first word, not beneath its sign."""
    folded = Text()
    for number, line in enumerate(text.split("\n", allow_blank=True)):
        if number:
            folded.append("\n")
        match = _HEAD.match(line.plain)
        indent = match.end() if match is not None else 0
        if line.cell_len <= width or width - indent < LEAST_HUNG:
            folded.append_text(line)
            continue
        head, body = line.divide([indent])
        for row, part in enumerate(body.wrap(console, width - indent)):
            part.rstrip()
            folded.append_text(Text("\n" + " " * indent) if row else head).append_text(part)
    return folded


def _fitting(word: str, cells: int) -> int:
    """How many of the first characters of ``word`` take at most ``cells``."""
    used = 0
    for number, character in enumerate(word):
        used += cell_len(character)
        if used > cells:
            return number
    return len(word)


def in_column(text: str, cells: int, *, keep_end: bool = False) -> str:
    """``text`` in exactly ``cells``, of which the last one stays free, with an ellipsis where it was cut: at its beginning where
    the end is kept."""
    room = cells - 1
    if cell_len(text) > room:
        if keep_end:
            kept = text[len(text) - _fitting(text[::-1], room - 1) :]
            text = f"…{kept}"
        else:
            text = f"{text[: _fitting(text, room - 1)]}…"
    return text + " " * (cells - cell_len(text))
