"""A live plot with its newest value in large type above it."""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.text import Text
from textual.color import Color

from ...formats import UNKNOWN
from ..plotting import PlotColours, PlotSpec, draw
from ..series import Mark, Series, resample
from .panel import Panel


class PlotPanel(Panel):
    """One series over the span that the dashboard shows.

    Drawing waits for :meth:`enable`: the plotting library is loaded after the first paint.
    """

    def __init__(
        self,
        title: str,
        series: Series,
        *,
        id: str,  # noqa: A002
        unit: str,
        colour: str,
        write: Callable[[float | None], str],
        topic: str,
        floor: float = 0.0,
        least_top: float = 1.0,
    ) -> None:
        super().__init__(title, id=id)
        self.topic = topic
        self._title = title
        self._series = series
        self._unit = unit
        self._colour = colour
        self._write = write
        self._floor = floor
        self._least_top = least_top
        self._enabled = False
        self._span = 900.0
        self._end = 0.0
        self._marks: tuple[Mark, ...] = ()
        self._baseline: float | None = None
        self._value: float | None = None
        self._stale = False
        self._remark = ""
        self._drawn_from: tuple[PlotSpec, PlotColours, int, int] | None = None
        self._drawn: list[Text] = []

    def enable(self) -> None:
        """From now on plots are drawn."""
        self._enabled = True
        self.redraw()

    def show_value(
        self,
        value: float | None,
        *,
        end: float,
        span: float,
        marks: tuple[Mark, ...],
        baseline: float | None = None,
        stale: bool = False,
        source: str = "",
        remark: str = "",
    ) -> None:
        """Show the newest value and the series up to ``end``.

        Args:
            value: the newest value, or the last known one when ``stale``.
            end: right edge of the time axis, seconds since the epoch.
            source: where the value comes from, shown in the frame's lower edge.
            remark: a few words beside the value (a gauge that differs, "last known").
        """
        self._value, self._end, self._span, self._marks = value, end, span, marks
        self._baseline, self._stale, self._remark = baseline, stale, remark
        self.show_title(Text(self._title), Text(source))
        self.redraw()

    def redraw(self) -> None:
        """Draw again; nothing is repainted when the picture is the same."""
        width, height = self.inner_size()
        if width < 8 or height < 1:
            return
        lines = [self._headline(width)]
        if self._enabled and self._end:
            # The axis moves on by whole dots, so that an idle plot is repainted when a dot has passed and not every second.
            dots = 2 * max(1, width - 5)
            dot = self._span / dots
            end = math.ceil(self._end / dot) * dot
            start = end - self._span
            curve = resample(self._series.since(start), start, end, dots, gap=5.0)
            spec = PlotSpec(
                curve,
                start,
                end,
                self._marks,
                self._baseline,
                "" if self._baseline is None else f"plain {self._baseline:.0f}",
                self._floor,
                self._least_top,
            )
            wanted = (spec, self._plot_colours(), width, height - 1)
            if wanted != self._drawn_from:
                # A drawing takes milliseconds, and an idle plot is the same for several seconds.
                self._drawn_from, self._drawn = wanted, draw(*wanted)
            lines += self._drawn
        self.show_lines(lines)

    def _headline(self, width: int) -> Text:
        """The value with what belongs to it. Where that is too long the unit goes first, which F1 tells, then what explains the
        remark."""
        if self._value is None:
            line = Text(f"{UNKNOWN} {self._remark or 'no value yet'}", style="dim", no_wrap=True)
        else:
            brief = self._remark.partition(", ")[0]
            tries = ((self._unit, self._remark), ("", self._remark), (self._unit, brief), ("", brief))
            lines = [self._value_line(self._value, unit, remark) for unit, remark in tries]
            line = next((line for line in lines if line.cell_len <= width), lines[-1])
        line.truncate(width, overflow="ellipsis")
        return line

    def _value_line(self, value: float, unit: str, remark: str) -> Text:
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(self._write(value), style="dim" if self._stale else f"bold {self.colour(self._colour)}")
        line.append(f" {unit}" if unit else "", style="dim")
        if self._baseline and value and not self._stale:
            line.append(f"   {value / self._baseline:.2f}×", style="bold")
            line.append(" plain", style="dim")
        line.append(f"   {remark}" if remark else "", style="dim")
        return line

    def _plot_colours(self) -> PlotColours:
        return PlotColours(
            self._rgb(self._colour),
            self._rgb("plot-baseline"),
            self._rgb("plot-mark"),
            self._rgb("plot-axis"),
        )

    def _rgb(self, variable: str) -> tuple[int, int, int]:
        parsed = Color.parse(self.colour(variable) or "#808080")
        return parsed.r, parsed.g, parsed.b
