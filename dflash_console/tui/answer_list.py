"""The answers of this run and those kept from before, a line each. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from ..formats import clock, shorten
from .answers import Answer
from .comparison import KeptAnswer
from .wrapping import wrapped

SHOWN = 12
"""Answers of one run that are listed."""


def answer_list(answers: Sequence[Answer], chosen: int, kept: Sequence[KeptAnswer], remarks: dict[int, str], width: int) -> Text:
    """The answer in view has all its figures, and how it compared, on as many lines as they take; ``width`` in cells."""
    lines: list[Text] = []
    for index, answer in enumerate(answers[:SHOWN]):
        if index == chosen:
            lines.append(Text(_folded(f"▸ {index + 1}  ", answer.figures(), width), style="bold"))
            if index in remarks:
                lines.append(Text(_folded("     ", remarks[index], width)))
        else:
            lines.append(Text(shorten(f"  {index + 1}  {answer.figures(brief=True)}", width), no_wrap=True))
    if len(answers) > SHOWN:
        lines.append(Text(f"  … {len(answers) - SHOWN} more: ← → walk through them", style="dim"))
    if kept:
        lines.append(Text("kept to compare with (C)", style="dim"))
    for answer_before in kept:
        figures = Answer(0, record=answer_before.record).figures(brief=True)
        lines.append(Text(shorten(f"  {answer_before.name}  {figures}", width), style="dim", no_wrap=True))
    return Text("\n").join(lines)


def _folded(first: str, words: str, width: int) -> str:
    """``words`` after ``first``, going on beneath themselves; a line ends with a dot rather than beginning with one."""
    lines = wrapped(words.replace(" · ", "\u00a0· "), width, first=first, rest=" " * len(first), hyphens=True)
    return "\n".join(lines).replace("\u00a0", " ")


def earlier_name(at: float, index: int, count: int) -> str:
    """``14:03:22`` or, of several parallel answers, ``14:03:22 #2``; ``at`` in seconds since the epoch."""
    return clock(at) + (f" #{index + 1}" if count > 1 else "")
