"""``nvidia-smi --query-gpu=… --format=csv`` and ``--query-compute-apps`` → rows. A cell that says nothing stays unknown.

The columns are those of :data:`QUERY`; output with a header line is read by its header. A GPU that the driver cannot reach has no
row but a line in words, which stands among the rows or in their place: it is a row here too, so that eight GPUs stay eight.
A process may call itself anything: cells are cleaned of escapes, its name of secrets too.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from engine_launch.spec.nvidia_smi import LOST, NEEDS_RESET, UNREACHED, slowdowns, whole

from .secrets import mask_text
from .terminal_text import clean_line
from .values import real

BASIC_QUERY = ("index", "uuid", "name", "utilization.gpu", "memory.used", "memory.total", "power.draw", "temperature.gpu")
"""Columns that every driver has."""
QUERY = (*BASIC_QUERY, "clocks_throttle_reasons.active", "ecc.errors.uncorrected.volatile.total", "mig.mode.current")
"""All columns that are asked for. Newer drivers take ``clocks_throttle_reasons`` too, and call it ``clocks_event_reasons`` in the
header (seen: driver 580)."""
QUERIES = (QUERY, tuple(name.replace("_throttle_", "_event_") for name in QUERY), BASIC_QUERY)
"""Asked in this order until the driver knows all the columns: it refuses the whole for one that it does not know."""
APPS_QUERY = ("pid", "process_name", "gpu_uuid", "used_gpu_memory")

_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*(%|[A-Za-z]+)?$")
_UNITS = {
    "utilization": {"%": 1.0},
    "memory": {"MiB": 1.0, "GiB": 1024.0, "KiB": 1 / 1024},
    "power": {"W": 1.0, "kW": 1000.0, "mW": 0.001},
    "temperature": {"C": 1.0},
}
"""What a figure may be given in, by the beginning of its column's name, as a multiple of what it is shown in."""
_DECIMAL_COMMA = re.compile(r"(?<=[, ])(\d+),(\d+ W)(?=\s*(?:,|$))")
"""``612,40 W``, from a wrapper that prints in its own locale. Of the figures only power has a fraction."""
_SEPARATOR = re.compile(r",\s*")
_SAYS_NOTHING = frozenset({"n/a", "not supported", "not found", "nan", "inf", "-", ""})
_REASON = re.compile(r"\[[A-Z][A-Za-z]* [A-Za-z ]+\]")
"""``[Insufficient Permissions]``: why there is no name."""
_FIGURES = {name: name.split(".")[0] for name in BASIC_QUERY[3:]}


@dataclass(frozen=True)
class GpuRow:
    """One GPU as ``nvidia-smi`` reports it; ``None`` = it could not say."""

    index: int | None
    """``None``: the driver cannot reach it, and does not say which one it is."""
    name: str = ""
    utilisation: float | None = None
    """%."""
    memory_used: float | None = None
    """MiB."""
    memory_total: float | None = None
    """MiB."""
    power: float | None = None
    """Watt."""
    temperature: float | None = None
    """°C."""
    note: str = ""
    """Why cells are unknown, when the driver gives a reason ("power: Unknown Error")."""
    uuid: str = ""
    lost: str = ""
    """Why the driver cannot reach it; empty when it can."""
    needs_reset: bool = False
    slowed: tuple[str, ...] = ()
    """What makes it run below its clocks (heat, power), in words; never the power cap, which is in order."""
    ecc_errors: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    mig: bool | None = None
    """It is split into instances; then the driver reports no utilisation of the whole."""
    bus: str = ""
    """PCI bus id, of a GPU that cannot be reached."""

    @property
    def called(self) -> str:
        """``GPU 3``; by its bus where no number is known."""
        return f"GPU {self.index}" if self.index is not None else f"the GPU at {self.bus}"


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
    """Rows of ``nvidia-smi --query-gpu`` by index; other lines (warnings, blank lines) are skipped."""
    rows = [row for cells in _table(text, QUERY) if (row := _row(cells)) is not None]
    unreached = [
        GpuRow(
            int(found["index"]) if found["index"] else None,
            lost=clean_line(found["why"]).strip() or "no reason given",
            bus=found["bus"],
        )
        for found in UNREACHED.finditer(text)
    ]
    return tuple(sorted(_numbered(rows, unreached), key=lambda row: (row.index is None, row.index or 0)))


def parse_compute_apps(text: str) -> tuple[GpuProcess, ...]:
    """Rows of ``nvidia-smi --query-compute-apps``."""
    found: list[GpuProcess] = []
    for cells in _table(text, APPS_QUERY, free="process_name"):
        pid = whole(cells.get("pid", ""))
        if not pid:
            continue
        name = cells.get("process_name", "")
        known = name.strip("[] ").lower() not in _SAYS_NOTHING and _REASON.fullmatch(name) is None
        found.append(
            GpuProcess(
                pid,
                mask_text(name) if known else "",
                cells.get("gpu_uuid", ""),
                _number(cells.get("used_gpu_memory", ""), "memory"),
            )
        )
    return tuple(found)


def _row(cells: dict[str, str]) -> GpuRow | None:
    index = whole(cells.get("index", ""))
    if index is None:
        return None
    reasons: dict[str, list[str]] = {}
    figures = {name: _figure(cells, name) for name in _FIGURES}
    for name, figure in _FIGURES.items():
        reason = cells.get(name, "").strip("[] ")
        if figures[name] is None and reason.lower().removesuffix(" w").removesuffix(" c") not in _SAYS_NOTHING:
            reasons.setdefault(reason, []).append(figure)
    said = {cell.strip("[] ").lower() for cell in cells.values()}
    clocks = cells.get("clocks_event_reasons.active") or cells.get("clocks_throttle_reasons.active", "")
    return GpuRow(
        index=index,
        name=cells.get("name", ""),
        utilisation=figures["utilization.gpu"],
        memory_used=figures["memory.used"],
        memory_total=figures["memory.total"],
        power=figures["power.draw"],
        temperature=figures["temperature.gpu"],
        note="; ".join(f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in reasons.items()),
        uuid=cells.get("uuid", ""),
        lost=LOST if LOST.lower() in said else "",
        needs_reset=NEEDS_RESET.lower() in said,
        slowed=slowdowns(clocks) or (),
        ecc_errors=whole(cells.get("ecc.errors.uncorrected.volatile.total", "")),
        mig={"enabled": True, "disabled": False}.get(cells.get("mig.mode.current", "").lower()),
    )


def _numbered(rows: list[GpuRow], unreached: list[GpuRow]) -> list[GpuRow]:
    """Give the GPUs that cannot be reached the numbers that no row has: the driver goes on counting them, in the bus's order."""
    known = {row.index for row in (*rows, *unreached) if row.index is not None}
    open_ones = [row for row in unreached if row.index is None]
    free = [number for number in range(len(rows) + len(unreached)) if number not in known]
    if len(free) != len(open_ones) or not rows:
        return [*rows, *unreached]
    numbers = dict(zip(sorted((row.bus for row in open_ones), key=str.upper), free, strict=True))
    return [*rows, *(replace(row, index=numbers.get(row.bus)) if row.index is None else row for row in unreached)]


def _table(text: str, columns: Sequence[str], *, free: str = "") -> Iterator[dict[str, str]]:
    """Rows as cells by column name, units in the header dropped (``memory.used [MiB]``).

    Args:
        free: the column whose text may hold commas; the tool does not quote.
    """
    names = list(columns)
    for line in text.splitlines():
        # Line by line: a quotation mark in a message must not swallow the rows after it.
        row = next(csv.reader([line], skipinitialspace=True), [])
        cells = [clean_line(cell).strip() for cell in row]
        if not any(cells):
            continue
        titles = [cell.split(" [")[0] for cell in cells]
        if columns[0] in titles and len(set(titles) & set(columns)) > 1:
            # A header; it may name the columns in another order.
            names = titles
            continue
        if not free and len(cells) > len(names):
            cells = [clean_line(cell).strip() for cell in _SEPARATOR.split(_DECIMAL_COMMA.sub(r"\1.\2", line))]
        if free in names and (more := len(cells) - len(names)) > 0:
            at = names.index(free)
            cells[at : at + more + 1] = [", ".join(cells[at : at + more + 1])]
        if len(cells) >= 2:
            yield dict(zip(names, cells, strict=False))


def has_header(text: str, columns: Sequence[str]) -> bool:
    """Whether a line of the text is the header of a table that begins with the first of ``columns``."""
    return any(line.split(",")[0].strip() == columns[0] for line in text.splitlines())


def _figure(cells: dict[str, str], name: str) -> float | None:
    """A figure of a GPU in the unit that it is shown in; ``None`` when it says nothing, is no figure, or cannot be."""
    number = _number(cells.get(name, ""), name.split(".")[0])
    return None if number is not None and name == "utilization.gpu" and number > 100 else number


def _number(cell: str, kind: str) -> float | None:
    match = _NUMBER.match(cell.strip())
    factor = None if match is None else 1.0 if match[2] is None else _UNITS[kind].get(match[2])
    number = real(match[1]) if match is not None else None
    if number is None or factor is None or (number < 0 and kind != "temperature"):
        return None
    return number * factor
