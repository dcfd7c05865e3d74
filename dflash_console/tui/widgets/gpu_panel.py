"""The host's GPUs, one row each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from ...formats import UNKNOWN, bar
from .panel import Panel

if TYPE_CHECKING:
    from ...evidence.gpu import GpuRow


ROOMY = 40
"""Cells from which a row has its bar and its units written out."""


class GpuPanel(Panel):
    """Utilisation, memory, power and temperature; it hides itself on a host without a GPU."""

    topic = "gpu"

    def __init__(self, title: str, *, id: str) -> None:  # noqa: A002
        super().__init__(title, id=id)
        self._rows: tuple[GpuRow, ...] = ()
        self.display = False

    def show_gpus(self, rows: tuple[GpuRow, ...] | None) -> None:
        """``None``: not read yet; empty: the host has none."""
        self.display = bool(rows)
        self._rows = rows or ()
        self.redraw()

    def redraw(self) -> None:
        rows = self._rows
        width, height = self.inner_size()
        lines = [_line(row, width, self.colour("plot-decode")) for row in rows]
        if rows and len(lines) > height > 1:
            lines = [*lines[: height - 1], Text(f"… {len(rows) - height + 1} more: z maximises", style="dim")]
        self.show_lines(lines)


def _line(row: GpuRow, width: int, colour: str) -> Text:
    line = Text(no_wrap=True)
    line.append(f"{row.index} ", style="bold")
    if width < ROOMY:
        memory = UNKNOWN if row.memory_used is None or not row.memory_total else _short_memory(row.memory_used, row.memory_total)
        note = f" ! {row.note}" if row.note else ""
        line.append(f"{_whole(row.utilisation):>3}% {memory} {_whole(row.power)}W {_whole(row.temperature)}°{note}")
        line.truncate(width, overflow="ellipsis")
        return line
    line.append(bar(None if row.utilisation is None else row.utilisation / 100, 7), style=colour)
    line.append(f" {_whole(row.utilisation):>3} %")
    if row.memory_used is not None and row.memory_total:
        line.append(f"  {row.memory_used / 1024:5.1f}/{row.memory_total / 1024:.0f} GB")
    else:
        line.append(f"  {UNKNOWN}", style="dim")
    line.append(f"  {_whole(row.power):>4} W  {_whole(row.temperature):>3}°")
    if row.note:
        line.append(f"  ! {row.note}", style="bold")
    line.truncate(width, overflow="ellipsis")
    return line


def _short_memory(used: float, total: float) -> str:
    return f"{used / 1024:.0f}/{total / 1024:.0f}G"


def _whole(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}"
