"""The host's GPUs, one row each, with what is wrong with them beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from ...formats import MIB_PER_GIB, UNKNOWN, bar
from ..wrapping import wrapped
from .panel import STALE, Panel

if TYPE_CHECKING:
    from ...gpu_report import GpuLine, GpuReport


ROOMY = 48
"""Cells from which a row has its bar and its units written out."""
LAST_COLUMN = 8
"""Cells of the last column: a rank's name (``DP1 TP1``), or a fault in a word."""
BAR = (3, 12)
"""Cells of the bar, at least and at most."""
_COLOURS = {"BAD": "error", "CAUTION": "warning"}
"""By the name of a grade: the module of grades is imported with the first GPU, not for the first paint."""


class GpuPanel(Panel):
    """Utilisation, memory, power and temperature; it hides itself on a host without a GPU.

    Memory is of one column where all GPUs have the same, which the title says. Where there is room below the rows, every fault
    is there in a sentence.
    """

    topic = "gpu"

    def __init__(self, title: str, *, id: str) -> None:  # noqa: A002
        super().__init__(title, id=id)
        self._title = title
        self._report: GpuReport | None = None
        self._problem = ""
        self.display = False

    def show_gpus(self, report: GpuReport | None, problem: str = "") -> None:
        """``None``: not read yet, or the host has none. ``problem``: why they cannot be read now."""
        self.display = bool(report or problem)
        self._report, self._problem = report, problem
        if problem and report:
            self.mark_stale(True)
        self.redraw()

    def redraw(self) -> None:
        gpus = self._report.lines if self._report is not None else ()
        width, height = self.inner_size()
        self.show_title(Text(self._heading()), Text(self._footing()))
        if width < 8:
            return
        lines = [self._row(line, width) for line in gpus]
        if len(lines) > height > 1:
            kept = height - 1
            wrong = sum(bool(line.faults) for line in gpus[kept:])
            more = f"… {len(lines) - kept} more{f', {wrong} bad' if wrong else ''}: z"
            lines = [*lines[:kept], Text(more, style="dim")]
        lines += self._sentences(width, height - len(lines))
        self.show_lines(lines)

    def mark_stale(self, stale: bool) -> None:
        super().mark_stale(stale)
        # The mark in the title comes before what else stands in it.
        self.redraw()

    def _heading(self) -> str:
        report = self._report
        if report is None:
            return self._title
        each = f"{report.memory_each / MIB_PER_GIB:.0f} GiB" if report.memory_each else ""
        whole = " · ".join(filter(None, (self._title, report.kinds, each)))
        brief = f"{self._title} · {len(report.lines)}{f' × {each}' if each else ''}"
        room = self.label_room - (len(STALE) if self._stale_figures else 0)
        return next((words for words in (whole, brief) if len(words) <= room), self._title)

    def _footing(self) -> str:
        report = self._report
        if report is None:
            return ""
        if self._problem:
            return "not read now: z tells"
        if report.faults:
            return f"{report.faulty} of {len(report.lines)} to look at" if report.faulty else report.faults[0].short
        ranks = report.ranks
        return ranks.words if ranks is not None and ranks.seen is not None else ""

    def _sentences(self, width: int, room: int) -> list[Text]:
        """What is wrong, in sentences, in the rows that are left; the last one says where it was cut."""
        said = [(f"✗ {self._problem}", self.colour(_COLOURS["BAD"]))] if self._problem else []
        faults = self._report.findings if self._report is not None else ()
        said += [(f"{fault.grade.value} {fault.words}", self.colour(_COLOURS[fault.grade.name])) for fault in faults]
        # A figure and its degree stay on one line.
        said = [(words.replace(" °", "\u00a0°"), style) for words, style in said]
        lines = [Text(part, style=style) for words, style in said for part in wrapped(words, width, rest="  ", hyphens=True)]
        if room < 2 and self._report is not None:
            return []
        if len(lines) < room and self._report is not None:
            lines.insert(0, Text())
        if len(lines) > room:
            lines = lines[: max(0, room)]
            if lines:
                lines[-1].truncate(max(1, width - 1))
                lines[-1].append("…")
        return lines

    def _row(self, line: GpuLine, width: int) -> Text:
        row, fault = line.row, line.faults[0] if line.faults else None
        text = Text(no_wrap=True)
        colour = self.colour(_COLOURS[fault.grade.name]) if fault is not None else ""
        text.append("?" if row.index is None else str(row.index), style="bold")
        roomy = width >= ROOMY
        text.append(f"{' ' if roomy else ''}{fault.grade.value if fault is not None else ' '}", style=f"bold {colour}".strip())
        last = [fault.short for fault in line.faults] or [line.on_it]
        if row.lost:
            text.append(f" cannot be reached{f': {row.lost}' if roomy else ''}", style=colour)
        elif roomy:
            self._roomy(text, line, width)
            text.append(f"  {_fitting(last, LAST_COLUMN)}", style=colour or "dim")
        else:
            self._tight(text, line)
            # A fault takes the place of power and temperature: those are what is wrong, or do not matter then.
            figures = f" {_whole(row.power, 'W', 4)} {_whole(row.temperature, '°', 4)}"
            text.append(f" {_fitting(last, len(figures))}" if fault is not None else figures, style=colour)
            on_it = f" {line.on_it}" if fault is None and line.on_it else ""
            text.append(on_it if text.cell_len + len(on_it) <= width else "", style="dim")
        text.truncate(width, overflow="ellipsis")
        return text

    def _roomy(self, text: Text, line: GpuLine, width: int) -> None:
        row = line.row
        memory = "" if row.memory_used is None else f"{row.memory_used / MIB_PER_GIB:.1f}"
        if not self._one_size() and row.memory_total:
            memory = f"{memory or UNKNOWN}/{row.memory_total / MIB_PER_GIB:.0f}"
        figures = (_whole(row.utilisation, " %", 5), f"{memory} GiB" if memory else UNKNOWN, _whole(row.power, " W", 6))
        rest = f" {figures[0]}  {figures[1]:>9}  {figures[2]}  {_whole(row.temperature, '°', 4)}"
        cells = min(BAR[1], max(BAR[0], width - len(rest) - text.cell_len - LAST_COLUMN - 3))
        share = None if row.utilisation is None else row.utilisation / 100
        text.append(" ")
        text.append(bar(share, cells), style=self.colour("plot-decode"))
        text.append(rest)

    def _one_size(self) -> bool:
        """All GPUs have the same memory, so that the title says how much."""
        return self._report is not None and self._report.memory_each is not None

    def _tight(self, text: Text, line: GpuLine) -> None:
        row = line.row
        memory = UNKNOWN if row.memory_used is None else f"{row.memory_used / MIB_PER_GIB:.0f}G"
        if not self._one_size() and row.memory_total:
            memory = f"{memory.removesuffix('G')}/{row.memory_total / MIB_PER_GIB:.0f}G"
        text.append(f"{_whole(row.utilisation, '%', 5)} {memory:>4}")


def _fitting(words: list[str], room: int) -> str:
    """As many of the words as fit, and a plus sign for those that do not."""
    if not words:
        return ""
    joined = " ".join(words)
    return joined if len(joined) <= room else words[0] if len(words) == 1 else f"{words[0]} +"


def _whole(value: float | None, unit: str, width: int) -> str:
    """Right in ``width`` cells; what is unknown has no unit."""
    return f"{UNKNOWN if value is None else f'{value:.0f}{unit}':>{width}}"
