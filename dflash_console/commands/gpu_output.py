"""The GPUs in ``status``: a line each, and what is wrong with them in sentences."""

from __future__ import annotations

from ..evidence.gpu_faults import Grade
from ..evidence.gpu_holders import Owner
from ..formats import MIB_PER_GIB, UNKNOWN
from ..gpu_report import GpuLine, GpuReport, gpu_report
from ..state import HostState
from .output import Cell, JsonValue, Output, Tone


def gpus_json(state: HostState) -> dict[str, JsonValue]:
    """``gpus``: ``null`` where they could not be read, empty on a host without one; ``ranks``: ``null`` while no server has been
    ready."""
    report = gpu_report(state)
    count = report.ranks
    return {
        "gpus": None if state.gpus is None else [_line_json(line) for line in report.lines],
        "ranks": None if count is None else {"asked": count.asked, "seen": count.seen, "missing": list(count.missing)},
        "gpu_faults": [{"grade": fault.grade.name.lower(), "message": fault.words} for fault in report.faults],
    }


def _line_json(line: GpuLine) -> dict[str, JsonValue]:
    row = line.row
    return {
        "index": row.index,
        "name": row.name or None,
        "uuid": row.uuid or None,
        "utilisation_percent": row.utilisation,
        "memory_used_mib": row.memory_used,
        "memory_total_mib": row.memory_total,
        "power_w": row.power,
        "temperature_c": row.temperature,
        "reachable": not row.lost,
        "needs_reset": row.needs_reset,
        "slowed": list(row.slowed),
        "uncorrected_ecc_errors": row.ecc_errors,
        "mig": row.mig,
        "faults": [fault.words for fault in line.faults],
        "processes": [
            {
                "pid": holder.process.pid,
                "name": holder.title or holder.process.name or None,
                "owner": _OWNERS[holder.owner],
                "rank": holder.rank,
                "memory_mib": holder.process.memory,
            }
            for holder in line.holders
        ],
    }


def print_gpus(output: Output, state: HostState) -> None:
    """Nothing on a host without a GPU."""
    report = gpu_report(state)
    if not report.lines:
        return
    output.line()
    output.line(_headline(report), Tone.STRONG)
    rows = [_cells(line) for line in report.lines]
    output.table(rows, header=["gpu", "", "use", "memory", "power", "temp", "on it"])
    faults = [[Cell(fault.grade.value, _TONES[fault.grade]), Cell(fault.words, _TONES[fault.grade])] for fault in report.findings]
    output.table(faults, wrap=True)


_OWNERS = {Owner.OURS: "unit", Owner.CONTAINED: "container", Owner.OTHER: "other", Owner.UNKNOWN: None}
_TONES = {Grade.BAD: Tone.BAD, Grade.CAUTION: Tone.CAUTION}


def _headline(report: GpuReport) -> str:
    each = f", {report.memory_each / MIB_PER_GIB:.0f} GiB each" if report.memory_each else ""
    ranks = f"; {report.ranks.words}" if report.ranks is not None and report.ranks.seen is not None else ""
    return f"GPUs: {report.kinds}{each}{ranks}"


def _cells(line: GpuLine) -> list[str | Cell]:
    row = line.row
    index = "?" if row.index is None else str(row.index)
    tone = _TONES[line.grade] if line.grade is not None else None
    mark = Cell(line.grade.value if line.grade is not None else "", tone)
    if row.lost:
        return [index, mark, *(f"{UNKNOWN:>{cells}}" for cells in (3, 5, 3, 3)), Cell("cannot be reached", tone)]
    on_it = filter(None, [line.on_it if line.ranks or not line.faults else "", *(fault.short for fault in line.faults)])
    return [
        index,
        mark,
        _figure(row.utilisation, "%"),
        f"{UNKNOWN:>5}" if row.memory_used is None else f"{row.memory_used / MIB_PER_GIB:5.1f} GiB",
        _figure(row.power, "W"),
        _figure(row.temperature, "°C"),
        Cell(", ".join(on_it), tone),
    ]


def _figure(value: float | None, unit: str) -> str:
    return f"{UNKNOWN:>3}" if value is None else f"{value:3.0f} {unit}"
