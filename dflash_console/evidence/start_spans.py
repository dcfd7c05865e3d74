"""Which part of a log file is of which start, from looking at the file's size and at the start's id again and again. Pure.

A file says nothing of starts. But ids of starts never come back: when a unit shows the same id before some bytes were written and
after, it was that start, or what is left of its processes, that wrote them. What was written while the id changed is nobody's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class _Span:
    start: str | None
    begin: int
    """The first byte that is surely this start's."""
    sure: int
    """The end of the bytes that are surely this start's."""


class StartSpans:
    """Spans of one file, oldest first; bounded, because only newest starts are asked about."""

    KEPT = 16

    def __init__(self) -> None:
        self._spans: list[_Span] = []

    @property
    def any(self) -> bool:
        """Whether there was a look."""
        return bool(self._spans)

    @property
    def newest(self) -> str | None:
        return self._spans[-1].start if self._spans else None

    def seen(self, size: int, start: str | None, size_after: int) -> None:
        """One look.

        Args:
            size: of the file, seen first.
            start: the id that the unit showed then; ``None`` = none.
            size_after: of the file, seen last.
        """
        if self._spans and self._spans[-1].start == start:
            self._spans[-1].sure = max(self._spans[-1].sure, size)
            return
        self._spans = [*self._spans, _Span(start, size_after, size_after)][-self.KEPT :]

    def emptied(self, start: str | None) -> None:
        """The file was emptied by the start that the unit shows: all that is in it is of that start."""
        self._spans = [_Span(start, 0, 0)]

    def start_of(self, offset: int) -> str | None:
        """The start that wrote the byte at ``offset``; ``None`` = not known."""
        for span in self._spans:
            if span.begin <= offset < span.sure:
                return span.start
        return None
