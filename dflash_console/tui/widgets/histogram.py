"""How many drafts each verify accepted."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.text import Text

from ...formats import bar, count
from .panel import Panel


def histogram_lines(counts: Sequence[int], width: int, rows: int, colour: str) -> list[Text]:
    """One line per number of accepted drafts, with its share of all verifies.

    When there are more numbers than ``rows``, the last line gathers the rest (``4+``).
    """
    total = sum(counts)
    if not total or rows < 1 or width < 10:
        return []
    shown = list(counts)
    while shown and not shown[-1]:
        shown.pop()
    gathered = len(shown) > rows
    if gathered:
        shown = [*shown[: rows - 1], sum(shown[rows - 1 :])]
    highest = max(shown)
    label_width = max(2, len(str(len(shown) - 1)) + (1 if gathered else 0))
    room = width - label_width - 7
    lines = []
    for accepted, number in enumerate(shown):
        label = f"{accepted}+" if gathered and accepted == len(shown) - 1 else str(accepted)
        line = Text(no_wrap=True)
        line.append(label.rjust(label_width) + " ", style="dim")
        line.append(bar(number / highest, room), style=colour)
        line.append(f" {number / total * 100:3.0f} %")
        lines.append(line)
    return lines


class HistogramPanel(Panel):
    """Accepted drafts per verify."""

    topic = "histogram"

    def __init__(self, empty: str, *, id: str) -> None:  # noqa: A002
        """``empty`` is said while there is nothing to show."""
        super().__init__(_HEADING, id=id)
        self._empty = empty
        self._counts: Sequence[int] = ()
        self._span: Sequence[str] = ()

    def show_counts(self, counts: Sequence[int], span: Sequence[str] = (), empty: str = "") -> None:
        """``counts[n]`` verifies accepted ``n`` drafts.

        Args:
            span: when those were, in words that follow their number; of several the first that there is room for.
            empty: what is said when there are none; without it, what was said before.
        """
        self._counts, self._span, self._empty = counts, span, empty or self._empty
        self.redraw()

    def redraw(self) -> None:
        width, height = self.inner_size()
        total = sum(self._counts)
        if not total:
            self.show_title(Text(_HEADING))
            self.show_lines([Text(line, style="dim") for line in textwrap.wrap(self._empty, max(1, width))])
            return
        number = f"{total:,} {'verify' if total == 1 else 'verifies'}"
        numbers = (number, f"{total:,}", count(total))
        said = [*(number + words for words in self._span for number in numbers), number]
        self.show_title(Text(_HEADING), *map(Text, said))
        self.show_lines(histogram_lines(self._counts, width, height, self.colour("plot-commit")))


_HEADING = "Accepted per verify"
