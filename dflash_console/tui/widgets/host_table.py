"""All hosts, one line each; under the chosen one, where it is and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.text import Text
from textual import events
from textual.message import Message

from ..facts import Tone
from ..fleet import HostView
from ..host_rows import HostRow, detail_lines, host_row
from ..series import Point
from ..sparkline import sparkline
from ..wrapping import in_column, wrapped
from .cursor_rows import CursorRows

COLOURS = {Tone.GOOD: "success", Tone.BUSY: "accent", Tone.BAD: "error", Tone.WARN: "warning", Tone.QUIET: "quiet"}
CURVE_S = 900.0
CURSOR_CELLS = 3
MORE_CURVE = 20
"""Cells that the throughput's curve takes of those that no column needs: half a minute a cell where there is room."""


@dataclass(frozen=True)
class _Column:
    title: str
    cells: int
    least: int
    """Width of the table from which the column has room."""


_COLUMNS = {
    "host": _Column("host", 16, 0),
    "state": _Column("state", 17, 0),
    "engine": _Column("engine", 24, 180),
    "settings": _Column("settings", 23, 110),
    "decode": _Column("tok/s", 7, 0),
    "decode curve": _Column("15 min", 10, 0),
    "commit": _Column("commit", 7, 0),
    "commit curve": _Column("15 min", 10, 120),
    "drift": _Column("drift", 15, 0),
    "link": _Column("link", 13, 150),
    "age": _Column("age", 10, 86),
}
"""75 cells and the cursor are what a terminal of 80 columns has room for."""


class HostTable(CursorRows[HostView], can_focus=True, inherit_bindings=False):
    """One host a row."""

    topic = "hosts"

    class Picked(Message):
        """A row was clicked twice."""

    def __init__(self, *, id: str) -> None:  # noqa: A002
        super().__init__("Hosts", id=id)
        self._open = ""
        self._placed = False
        self._now = self._wall = 0.0

    def show_hosts(self, views: Sequence[HostView], *, current: str, now: float, wall: float) -> None:
        """``current``: the host that the other screens show; the cursor begins there."""
        chosen = self.current
        self._rows, self._open, self._now, self._wall = tuple(views), current, now, wall
        names = [view.name for view in views]
        if not self._placed and current in names:
            self._cursor, self._placed = names.index(current), True
        elif chosen is not None and chosen.name in names:
            self._cursor = names.index(chosen.name)
        self._cursor = self._within(self._cursor)
        self.redraw()

    def choose(self, name: str) -> None:
        """Put the cursor on a host."""
        for index, view in enumerate(self._rows):
            if view.name == name:
                self._cursor = index
                self.redraw()

    def on_click(self, event: events.Click) -> None:
        """One click chooses a row, two open it."""
        line = event.y - 1 + int(self.scroll_y)
        rows = [index for index, top in enumerate(self._tops) if top <= line]
        if rows:
            self._cursor = rows[-1]
            self.redraw()
            if event.chain > 1:
                self.post_message(self.Picked())

    def paint(self, width: int) -> list[Text]:
        if not self._rows:
            return []
        shown = {name: column for name, column in _COLUMNS.items() if width >= column.least}
        curve = shown["decode curve"]
        spare = width - CURSOR_CELLS - sum(column.cells for column in shown.values())
        shown["decode curve"] = replace(curve, cells=curve.cells + max(0, min(MORE_CURVE, spare)))
        heading = Text("   ", style="dim", no_wrap=True)
        for column in shown.values():
            heading.append(column.title.ljust(column.cells))
        lines = [heading]
        self._tops = []
        for index, view in enumerate(self._rows):
            self._tops.append(len(lines))
            lines += self._row(view, shown, width, chosen=index == self._cursor)
        return lines

    def _row(self, view: HostView, shown: dict[str, _Column], width: int, *, chosen: bool) -> list[Text]:
        row = host_row(view, now=self._now, wall=self._wall)
        line = Text(no_wrap=True)
        line.append("▸" if chosen else " ", style=f"bold {self._colour('accent')}")
        line.append(f"{row.symbol} ", style=f"bold {self._colour(COLOURS[row.tone])}")
        for name, column in shown.items():
            words, style = self._cell(name, view, row, column.cells - 1)
            line.append(in_column(words, column.cells), style=style)
        line.rstrip()
        lines = [line]
        if chosen:
            for words, tone in detail_lines(view, now=self._now):
                lines += [
                    Text(f"     {part}", style=self._colour(COLOURS[tone]), no_wrap=True)
                    for part in wrapped(words, max(20, width - 6))
                ]
        return lines

    def _cell(self, name: str, view: HostView, row: HostRow, cells: int) -> tuple[str, str]:
        figure = "dim" if row.stale else "bold"
        here = view.name == self._open
        match name:
            case "host":
                return f"{view.name}{' ←' if here else ''}", "bold" if here else ""
            case "state":
                return row.state, self._colour(COLOURS[row.tone])
            case "decode curve":
                return self._curve(view.decode, cells), self._colour("plot-decode")
            case "commit curve":
                return self._curve(view.commit, cells), self._colour("plot-commit")
            case "drift":
                return row.drift.words, self._colour(COLOURS[row.drift.tone])
            case "decode":
                return row.decode, figure
            case "commit":
                return row.commit, figure
            case "engine":
                return row.engine, "dim"
            case "settings":
                return row.settings, ""
            case "link":
                return row.link, "dim"
        return row.age, self._colour("warning") if row.stale else "dim"

    def _curve(self, points: Sequence[Point], cells: int) -> str:
        return sparkline(points, self._wall - CURVE_S, self._wall, cells)

    def _colour(self, variable: str) -> str:
        return self.app.theme_variables.get(variable, "")
