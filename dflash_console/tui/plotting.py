"""Line plots, drawn by plotext and handed on as styled text.

plotext keeps one figure for the process and draws in a native library. Everything here runs in the screen's own thread, one
plot at a time, so the figure is cleared and filled anew for each drawing: about 4 ms at 60 x 12 cells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from rich.style import Style
from rich.text import Text

from ..formats import clock
from .series import Curve, Mark, nice_ticks, time_ticks

if TYPE_CHECKING:
    from types import ModuleType

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class PlotColours:
    """RGB triples from the theme."""

    line: Colour
    baseline: Colour
    mark: Colour
    axis: Colour


@dataclass(frozen=True)
class PlotSpec:
    """Everything that one drawing needs."""

    curve: Curve
    start: float
    end: float
    """Seconds since the epoch at both edges of the time axis."""
    marks: tuple[Mark, ...] = ()
    baseline: float | None = None
    baseline_label: str = ""
    floor: float = 0.0
    """Lowest value of the axis: 0 for speeds, 1 for commit length (a verify commits at least one token)."""
    least_top: float = 1.0
    """The axis reaches at least so far, so that an idle engine's plot does not magnify noise."""


@cache
def _plotext() -> ModuleType:
    """The library, imported when the first plot is drawn: its import costs more than the whole first paint."""
    import plotext

    plotext.terminal.limit(False, False)
    library: ModuleType = plotext
    return library


def load_library() -> None:
    """Import plotext now (from a worker thread, after the first paint)."""
    _plotext()


def draw(spec: PlotSpec, colours: PlotColours, width: int, height: int) -> list[Text]:
    """The plot as ``height`` lines of ``width`` cells; empty when there is no room for one."""
    if width < 16 or height < 4:
        return []
    plotext = _plotext()
    pixel = plotext.pixel
    figure = plotext.figure
    figure.clear.all()
    figure.plot_size(width, height)
    figure.canvas("default")
    figure.axes(False)
    figure.axes(True, pixel=pixel(foreground=colours.axis, background="default"), axis=[0, 1], side=0)

    highest = max(spec.curve.top, spec.baseline or 0.0, spec.least_top) * 1.05 - spec.floor
    ticks = tuple(spec.floor + tick for tick in nice_ticks(highest, height - 2))
    top = ticks[-1]
    y_axis = figure.ruler("y")
    y_axis.lim(spec.floor, top)
    y_axis.ticks(list(ticks), [f"{tick:g}" for tick in ticks])
    y_axis.pixel(pixel(foreground=colours.axis, background="default"))
    x_axis = figure.ruler("x")
    x_axis.lim(spec.start, spec.end)
    moments = time_ticks(spec.start, spec.end, max(2, width // 16))
    x_axis.ticks(list(moments), [clock(moment, seconds=spec.end - spec.start <= 120) for moment in moments])
    x_axis.pixel(pixel(foreground=colours.axis, background="default"))

    if spec.baseline is not None:
        style = pixel(foreground=colours.baseline, background="default")
        figure.line(spec.baseline, orientation=0, pixel=style, style="dotted")
    visible = [mark for mark in spec.marks if spec.start <= mark.at <= spec.end]
    for mark in visible:
        style = pixel(foreground=colours.mark, background="default")
        figure.line(mark.at, orientation=1, pixel=style, style="dotted")
    line = plotext.marker("braille").fill(pixel(foreground=colours.line, background="default"))
    for xs, ys in spec.curve.runs:
        figure.draw(figure.signal(list(xs), list(ys), marker=line).lines(len(xs) > 1))
    if spec.baseline is not None:
        # After the curve, which would write over it.
        label = plotext.colorize(spec.baseline_label).fill(pixel(foreground=colours.baseline, background="default"))
        figure.draw(figure.text(spec.end, spec.baseline, label, alignment="right"))
    named = [replace(mark, label=brief_label(mark.label, width)) for mark in visible]
    for mark, place in _label_places(together(named, (spec.end - spec.start) / width), spec, width):
        style = pixel(foreground=colours.mark, background="default")
        figure.draw(figure.text(mark.at, top, plotext.colorize(mark.label).fill(style), alignment=place))
    return [from_ansi(row) for row in figure.build().string().split("\n")[:height]]


def brief_label(label: str, width: int) -> str:
    """A mark's words in a plot of ``width`` cells: where there is little room, a long name is cut to its last words."""
    return label.replace("compact draft cache", "draft cache") if width < 60 else label


def together(marks: list[Mark], seconds: float) -> list[Mark]:
    """Marks that fall into one cell of ``seconds`` as one, with all their words: two settings changed by one apply."""
    joined: list[Mark] = []
    for mark in marks:
        if joined and mark.at - joined[-1].at < seconds:
            words = joined[-1].label.split(", ")
            label = joined[-1].label if mark.label in words else f"{joined[-1].label}, {mark.label}"
            joined[-1] = Mark(joined[-1].at, label)
        else:
            joined.append(mark)
    return joined


def _label_places(marks: list[Mark], spec: PlotSpec, width: int) -> list[tuple[Mark, str]]:
    """The marks whose label fits beside its line without covering another's; the newest have the first choice."""
    seconds = (spec.end - spec.start) / width
    free_until = spec.end
    places: list[tuple[Mark, str]] = []
    for mark in reversed(marks):
        room = (free_until - mark.at) / seconds
        if room > len(mark.label) + 2:
            places.append((mark, "left"))
            free_until = mark.at
        elif (mark.at - spec.start) / seconds > len(mark.label) + 2 and free_until >= mark.at:
            places.append((mark, "right"))
            free_until = mark.at - (len(mark.label) + 1) * seconds
    return places


_SGR = re.compile(r"\x1b\[([0-9;]*)m")


def from_ansi(row: str) -> Text:
    """One row of plotext's output as styled text. Only foreground colours are kept: the panel's own background stays."""
    text = Text(no_wrap=True)
    style: Style | None = None
    position = 0
    for match in _SGR.finditer(row):
        if match.start() > position:
            text.append(row[position : match.start()], style)
        position = match.end()
        style = _sgr_style(match.group(1), style)
    if position < len(row):
        text.append(row[position:], style)
    return text


def _sgr_style(code: str, style: Style | None) -> Style | None:
    if code in ("", "0"):
        return None
    if code.startswith("38;2;"):
        return _rgb_style(code)
    return style


@cache
def _rgb_style(code: str) -> Style:
    red, green, blue = code.split(";")[2:5]
    return Style(color=f"rgb({red},{green},{blue})")
