"""GPUs as ``nvidia-smi`` lists them: what there is, whether memory is free, and whether they are well.

Field names: ``nvidia-smi --help-query-gpu``. A field that a GPU does not have is printed as ``[N/A]`` or in other words in
brackets; it is unknown here, never zero.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass

from engine_launch.doctor.check import Check, fail, ok, warn

GPU_QUERY = "index,name,driver_version,memory.total,memory.free,compute_cap"
_HEALTH = (
    "index,temperature.gpu,clocks_{}_reasons.active,ecc.errors.uncorrected.volatile.total,ecc.errors.uncorrected.aggregate.total"
)
HEALTH_QUERIES = (_HEALTH.format("event"), _HEALTH.format("throttle"))
APPS_QUERY = "pid,process_name,used_memory"
MIB = 1 << 20
MOSTLY_FREE = 0.9
"""SGLang takes a share of what is free at its start: a card in use gives it less room than planned."""

SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
"""Bits of NVML's clock-event reasons that mean that something is wrong; idle and the power cap do not."""
XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9A-Fa-f:.]+)\): (?P<number>\d+)(?:, (?P<text>.*))?")
APPLICATION_XIDS = {13, 31, 43, 45}
"""Faults of a program on the GPU rather than of the GPU (NVIDIA's XID catalogue)."""
XID_ADVICE = {
    48: "an uncorrectable memory error: drain the host and reset the GPU; if it comes back, replace it",
    63: "a memory row was remapped: it takes effect with a reset of the GPU",
    64: "a memory row could not be remapped: replace the GPU",
    74: "an NVLink error: look at nvidia-smi nvlink --status, and reseat or replace",
    79: "the GPU has fallen off the bus: power-cycle the host; if it comes back, check power and slot",
    94: "a contained memory error: restart what ran there",
    95: "an uncontained memory error: reset the GPU",
    119: "the GPU's own processor does not answer: reset the GPU or reboot",
    120: "the GPU's own processor failed: reset the GPU or reboot",
}


@dataclass(frozen=True)
class Gpu:
    """One row of :data:`GPU_QUERY`; ``None`` is unknown."""

    index: int
    name: str
    driver: str
    total_mib: float | None
    free_mib: float | None
    capability: tuple[int, int] | None


def read_gpus(text: str) -> tuple[Gpu, ...]:
    """Rows that can be read; others are left out."""
    found = []
    for row in _rows(text, 6):
        if row[0].isdigit():
            major, _, minor = row[5].partition(".")
            capability = (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
            found.append(Gpu(int(row[0]), row[1], row[2], _number(row[3]), _number(row[4]), capability))
    return tuple(found)


def check_gpus(text: str, problem: str) -> Check:
    """What GPUs there are."""
    gpus = read_gpus(text)
    if problem or not gpus:
        return fail("gpus", f"none to be seen: {problem or 'nvidia-smi lists none'}. Install or load NVIDIA's driver.")
    kinds = ", ".join(f"{sum(gpu.name == name for gpu in gpus)} × {name}" for name in dict.fromkeys(gpu.name for gpu in gpus))
    capabilities = ", ".join(dict.fromkeys(_capability(gpu) for gpu in gpus))
    return ok("gpus", f"{kinds}, compute capability {capabilities}, driver {gpus[0].driver}")


def check_gpu_memory(gpus: Sequence[Gpu]) -> Check:
    """Whether each card's memory is free for a start."""
    if not gpus or any(gpu.free_mib is None or not gpu.total_mib for gpu in gpus):
        return warn("gpu memory", "nvidia-smi does not say how much is free (unified memory?): look at the host's own memory")
    busy = [gpu for gpu in gpus if gpu.free_mib is not None and gpu.total_mib and gpu.free_mib < MOSTLY_FREE * gpu.total_mib]
    least = min(gpu.free_mib or 0 for gpu in gpus)
    if not busy:
        return ok("gpu memory", f"free on every GPU; the least is {least * MIB / 1e9:.0f} GB")
    listed = ", ".join(
        f"GPU {gpu.index}: {(gpu.free_mib or 0) * MIB / 1e9:.0f} of {(gpu.total_mib or 0) * MIB / 1e9:.0f} GB free"
        for gpu in busy
    )
    return warn(
        "gpu memory", f"{listed}. Stop what runs there (see gpu processes), or give --mem-fraction-static for what is left."
    )


def check_health(text: str, problem: str) -> Check:
    """Throttling and uncorrected memory errors, as the driver counts them."""
    if problem:
        return warn("gpu health", f"not known: {problem}")
    troubles, unknown = [], 0
    for row in _rows(text, 5):
        index, temperature, reasons = row[0], row[1], _bits(row[2])
        volatile, aggregate = _number(row[3]), _number(row[4])
        unknown += reasons is None
        slow = [words for bit, words in SLOWDOWNS.items() if reasons is not None and reasons & bit]
        if slow:
            why = f"{', '.join(slow)}, {temperature} °C"
            troubles.append(f"GPU {index} is slowed down ({why}): check cooling, power and nvidia-smi -q -d PERFORMANCE")
        if volatile:
            troubles.append(
                f"GPU {index} has {volatile:.0f} uncorrected ECC errors since the driver was loaded: drain it and reset it"
            )
        elif aggregate:
            troubles.append(
                f"GPU {index} has had {aggregate:.0f} uncorrected ECC errors in its life: see nvidia-smi -q -d ECC,ROW_REMAPPER"
            )
    if troubles:
        return warn("gpu health", ". ".join(troubles) + ".")
    return ok("gpu health", "no throttling" + (" known" if unknown else "") + ", no uncorrected ECC errors")


def check_xids(text: str, problem: str) -> Check:
    """XID errors in the kernel's log of this boot."""
    if problem:
        return warn("gpu errors", f"the kernel's log cannot be read: {problem}")
    counts: dict[tuple[int, str], int] = {}
    for match in XID.finditer(text):
        key = (int(match["number"]), match["bus"])
        counts[key] = counts.get(key, 0) + 1
    if not counts:
        return ok("gpu errors", "no XID error in the kernel's log of this boot")
    listed = "; ".join(f"{count} × XID {number} on {bus}: {_advice(number)}" for (number, bus), count in sorted(counts.items()))
    grave = any(number not in APPLICATION_XIDS for number, _ in counts)
    return fail("gpu errors", f"{listed}.") if grave else warn("gpu errors", f"{listed}.")


def _advice(number: int) -> str:
    if number in APPLICATION_XIDS:
        return "a program's fault, not the GPU's, unless many programs cause it"
    return XID_ADVICE.get(number, "see NVIDIA's XID catalogue")


def _capability(gpu: Gpu) -> str:
    return "unknown" if gpu.capability is None else f"{gpu.capability[0]}.{gpu.capability[1]}"


def _rows(text: str, least: int) -> list[list[str]]:
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [[cell.strip() for cell in row] for row in rows if len(row) >= least]


def _number(cell: str) -> float | None:
    try:
        return float(cell.split()[0]) if cell else None
    except ValueError:
        return None


def _bits(cell: str) -> int | None:
    try:
        return int(cell, 16) if cell.lower().startswith("0x") else None
    except ValueError:
        return None
