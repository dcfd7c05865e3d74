"""``nvidia-smi --query-gpu=… --format=csv`` and ``--query-compute-apps`` → rows. A cell that says nothing stays unknown.

The columns are those of :data:`QUERY`; output with a header line is read by its header.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .values import real

QUERY = ("index", "uuid", "name", "utilization.gpu", "memory.used", "memory.total", "power.draw", "temperature.gpu")
APPS_QUERY = ("pid", "process_name", "gpu_uuid", "used_gpu_memory")

_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)(?:\s*(?:%|[A-Za-z]+))?$")
_SAYS_NOTHING = frozenset({"n/a", "not supported", "not found", ""})


@dataclass(frozen=True)
class GpuRow:
    """One GPU as ``nvidia-smi`` reports it; ``None`` = it could not say."""

    index: int
    name: str
    utilisation: float | None
    """%."""
    memory_used: float | None
    """MiB."""
    memory_total: float | None
    """MiB."""
    power: float | None
    """Watt."""
    temperature: float | None
    """°C."""
    note: str = ""
    """Why cells are unknown, when the driver gives a reason ("GPU requires reset")."""
    uuid: str = ""


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds GPU memory."""

    pid: int
    name: str
    """Empty when the driver cannot name it (a process of another container or of a dead parent)."""
    gpu_uuid: str
    memory: float | None
    """MiB."""


def parse_gpus(text: str) -> tuple[GpuRow, ...]:
    """Rows of ``nvidia-smi --query-gpu``; lines that are no GPU's (errors, blank lines) are skipped."""
    rows: list[GpuRow] = []
    for cells in _table(text, QUERY):
        index = _number(cells.get("index", ""))
        if index is None:
            continue
        reasons = [
            f"{name.split('.')[0]}: {cell.strip('[]')}"
            for name, cell in cells.items()
            if name not in ("index", "uuid", "name") and _number(cell) is None and cell.strip("[] ").lower() not in _SAYS_NOTHING
        ]
        rows.append(
            GpuRow(
                index=int(index),
                name=cells.get("name", ""),
                utilisation=_number(cells.get("utilization.gpu", "")),
                memory_used=_number(cells.get("memory.used", "")),
                memory_total=_number(cells.get("memory.total", "")),
                power=_number(cells.get("power.draw", "")),
                temperature=_number(cells.get("temperature.gpu", "")),
                note="; ".join(reasons),
                uuid=cells.get("uuid", ""),
            )
        )
    return tuple(rows)


def parse_compute_apps(text: str) -> tuple[GpuProcess, ...]:
    """Rows of ``nvidia-smi --query-compute-apps``."""
    found: list[GpuProcess] = []
    for cells in _table(text, APPS_QUERY):
        pid = _number(cells.get("pid", ""))
        if pid is None:
            continue
        name = cells.get("process_name", "")
        known = name.strip("[] ").lower() not in _SAYS_NOTHING
        found.append(
            GpuProcess(int(pid), name if known else "", cells.get("gpu_uuid", ""), _number(cells.get("used_gpu_memory", "")))
        )
    return tuple(found)


def _table(text: str, columns: Sequence[str]) -> Iterable[dict[str, str]]:
    """Rows as cells by column name, units in the header dropped (``memory.used [MiB]``)."""
    names = list(columns)
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        cells = [cell.strip() for cell in row]
        if not any(cells):
            continue
        if cells[0] == columns[0]:
            names = [cell.split(" [")[0] for cell in cells]
            continue
        if len(cells) >= 2:
            yield dict(zip(names, cells, strict=False))


def _number(cell: str) -> float | None:
    match = _NUMBER.match(cell.strip())
    return real(match[1]) if match is not None else None
