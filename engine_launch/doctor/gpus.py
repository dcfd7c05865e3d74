"""GPUs as ``nvidia-smi`` lists them: what there is, whether memory is free, and whether they are well.

Field names: ``nvidia-smi --help-query-gpu``. A field that a GPU does not have is printed as ``[N/A]`` or in other words in
brackets; it is unknown here, never zero.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine_launch.doctor.check import Check, fail, ok, warn
from engine_launch.spec.nvidia_smi import LOST, NEEDS_RESET, UNREACHED, figure, slowdowns, whole
from engine_launch.spec.ranks import ranks_on_a_host
from engine_launch.spec.sglang_checks import number

GPU_QUERY = "index,name,driver_version,memory.total,memory.free,compute_cap,uuid,mig.mode.current"
_HEALTH = (
    "index,temperature.gpu,clocks_{}_reasons.active,ecc.errors.uncorrected.volatile.total,ecc.errors.uncorrected.aggregate.total"
)
HEALTH_QUERIES = (_HEALTH.format("event"), _HEALTH.format("throttle"))
APPS_QUERY = "pid,process_name,used_memory"
RANK_FLAGS = ("--tp-size", "--pp-size", "--dp-size", "--nnodes")
MIB = 1 << 20
MOSTLY_FREE = 0.9
"""SGLang takes a share of what is free at its start: a card in use gives it less room than planned."""

XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9A-Fa-f:.]+)\): (?P<number>[0-9]{1,6})(?:, (?P<text>.*))?")
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


_NO_DRIVER = "Install or load NVIDIA's driver."
NOT_SEEN: tuple[tuple[str, str], ...] = (
    (
        "did not answer",
        "The driver hangs, as with a GPU that fell off the bus: see gpu errors; it takes a reboot of the host.",
    ),
    (
        "version mismatch",
        "The driver was updated and the old one still runs: reboot the host, or unload it.",
    ),
    ("Failed to initialize NVML: Unknown Error", "A container that has lost its devices says this: restart it."),
    ("No devices were found", "The driver runs and reaches no GPU: see gpu errors, and lspci | grep -i nvidia."),
    ("lists none", "The driver runs and reaches no GPU: see gpu errors, and lspci | grep -i nvidia."),
    ("Insufficient Permissions", "Run the doctor as a user who may see the GPUs (the groups video and render, or root)."),
)
"""Words of nvidia-smi for GPUs that are not seen, and what helps."""
_LOST_ADVICE = "The kernel's log has the XID (see gpu errors); it takes a reboot of the host."


@dataclass(frozen=True)
class Gpu:
    """One row of :data:`GPU_QUERY`; ``None`` is unknown."""

    index: int
    name: str
    driver: str
    total_mib: float | None
    free_mib: float | None
    capability: tuple[int, int] | None
    uuid: str = ""
    sliced: bool = False
    """Whether it is cut into slices (MIG)."""


def read_gpus(text: str) -> tuple[Gpu, ...]:
    """Rows that can be read; others are left out."""
    found = []
    for row in _rows(text, 6):
        index = whole(row[0])
        if index is not None:
            major, minor = (whole(part) for part in row[5].partition(".")[::2])
            capability = None if major is None or minor is None else (major, minor)
            uuid, mig = (*row[6:8], "", "")[:2]
            found.append(Gpu(index, row[1], row[2], figure(row[3]), figure(row[4]), capability, uuid, mig == "Enabled"))
    return tuple(found)


def check_gpus(text: str, problem: str) -> Check:
    """What GPUs there are, and those that the driver cannot reach: for these nvidia-smi has a line among the rows, and a bad
    exit status although it lists the others."""
    gpus = read_gpus(text)
    lost = [f"{_unreached_name(found)}: {found['why'].strip() or 'no reason given'}" for found in UNREACHED.finditer(text)]
    if not gpus:
        said = next((line.strip() for line in text.splitlines() if line.strip()), "")
        why = "; ".join(lost) or problem or (f"nvidia-smi says {said[:200]}" if said else "nvidia-smi lists none")
        advice = _LOST_ADVICE if lost else next((advice for words, advice in NOT_SEEN if words in why), _NO_DRIVER)
        return fail("gpus", f"none to be seen: {why.rstrip('.')}. {advice}")
    kinds = ", ".join(f"{sum(gpu.name == name for gpu in gpus)} × {name}" for name in dict.fromkeys(gpu.name for gpu in gpus))
    capabilities = ", ".join(dict.fromkeys(_capability(gpu) for gpu in gpus))
    said = f"{kinds}, compute capability {capabilities}, driver {gpus[0].driver}"
    if lost:
        return fail("gpus", f"{said}; not to be reached: {'; '.join(lost)}. {_LOST_ADVICE}")
    return warn("gpus", f"{said}; but {problem}") if problem else ok("gpus", said)


def check_ranks(flags: Mapping[str, str], gpus: Sequence[Gpu], hidden: int = 0) -> Check | None:
    """Whether there is a GPU for each rank that the flags ask for; ``None`` for flags of a server with one.

    Args:
        gpus: those that a server sees.
        hidden: how many are listed beside them.
    """
    below = [f"{name} {value}" for name in RANK_FLAGS if (value := number(flags, name)) is not None and value < 1]
    if below:
        return fail("ranks", f"{', '.join(below)}: at least 1 is needed")
    asked, first = asked_ranks(flags), number(flags, "--base-gpu-id") or 0
    if (asked == 1 and not first) or not gpus:
        return None
    needed = first + (asked - 1) * (number(flags, "--gpu-id-step") or 1) + 1
    if needed > len(gpus):
        lists = "none that fell off the bus is listed until the host was restarted"
        if hidden:
            lists = f"CUDA_VISIBLE_DEVICES hides {hidden} more"
        begin = f", beginning with the one numbered {first}" if first else ""
        return fail(
            "ranks",
            f"the flags ask for {asked} GPUs on this host{begin}, and {len(gpus)} are {'seen' if hidden else 'listed'} ({lists})",
        )
    return ok("ranks", f"{asked} of {len(gpus)} GPUs")


def asked_ranks(flags: Mapping[str, str]) -> int:
    """GPUs that the flags ask for on this host."""
    return ranks_on_a_host(
        *(number(flags, name) or 1 for name in ("--tp-size", "--pp-size", "--dp-size")),
        data_attention="--enable-dp-attention" in flags,
        hosts=number(flags, "--nnodes") or 1,
    )


def check_gpu_memory(gpus: Sequence[Gpu]) -> Check:
    """Whether each card's memory is free for a start."""
    told = [gpu for gpu in gpus if gpu.free_mib is not None and gpu.total_mib]
    if not told:
        return warn("gpu memory", "nvidia-smi does not say how much is free (unified memory?): look at the host's own memory")
    unknown = [str(gpu.index) for gpu in gpus if gpu not in told]
    busy = [gpu for gpu in told if (gpu.free_mib or 0) < MOSTLY_FREE * (gpu.total_mib or 0)]
    least = min(gpu.free_mib or 0 for gpu in told)
    listed = [_free_words(same) for same in _alike(busy)]
    if unknown:
        listed.append(f"not known of GPU {', '.join(unknown)}")
    if not listed:
        return ok("gpu memory", f"free on every GPU; the least is {least * MIB / 1e9:.0f} GB")
    advice = " Stop what runs there (see gpu processes), or give --mem-fraction-static for what is left." if busy else ""
    return warn("gpu memory", f"{', '.join(listed)}.{advice}")


def check_health(text: str, problem: str) -> Check:
    """Throttling and uncorrected memory errors, as the driver counts them; of GPUs without a row :func:`check_gpus` speaks."""
    rows = [row for row in _rows(text, 5) if whole(row[0]) is not None]
    if not rows:
        return warn("gpu health", f"not known: {problem or 'nvidia-smi tells nothing of it'}")
    troubles, unknown, grave, counted = [], [], False, False
    slowed: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for row in rows:
        index, temperature, slow = row[0], row[1], slowdowns(row[2])
        volatile, aggregate = figure(row[3]), figure(row[4])
        counted = counted or volatile is not None
        said = {cell.strip("[]").lower() for cell in row}
        if NEEDS_RESET.lower() in said or LOST.lower() in said:
            grave = True
            what = (
                "requires a reset: nvidia-smi --gpu-reset -i" if NEEDS_RESET.lower() in said else "is lost: reboot the host; GPU"
            )
            troubles.append(f"GPU {index} {what} {index}")
            continue
        if slow is None:
            unknown.append(index)
        if slow:
            slowed.setdefault(slow, []).append((index, temperature))
        if volatile:
            troubles.append(
                f"GPU {index} has {volatile:.0f} uncorrected ECC errors since the driver was loaded: drain it and reset it"
            )
        elif aggregate:
            troubles.append(
                f"GPU {index} has had {aggregate:.0f} uncorrected ECC errors in its life: see nvidia-smi -q -d ECC,ROW_REMAPPER"
            )
    troubles[:0] = [_slowed_words(why, same) for why, same in slowed.items()]
    if troubles:
        return (fail if grave else warn)("gpu health", ". ".join(troubles) + ".")
    # Consumers' GPUs have no ECC memory, and it can be switched off.
    errors = "no uncorrected ECC errors" + ("" if counted else " known")
    if unknown and len(unknown) < len(rows):
        return warn("gpu health", f"no throttling of the others, {errors}; not known of GPU {', '.join(unknown)}")
    return ok("gpu health", "no throttling" + (" known" if unknown else "") + f", {errors}")


def _slowed_words(why: Sequence[str], same: Sequence[tuple[str, str]]) -> str:
    """GPUs, by number and temperature, that the same reasons slow down."""
    degrees = sorted({degree for _, temperature in same if (degree := whole(temperature)) is not None})
    warm = [f"{degrees[0]} to {degrees[-1]} °C" if len(degrees) > 1 else f"{degrees[0]} °C"] if degrees else []
    named = f"GPU {', '.join(index for index, _ in same)} {'are' if len(same) > 1 else 'is'}"
    return f"{named} slowed down ({', '.join([*why, *warm])}): check cooling, power and nvidia-smi -q -d PERFORMANCE"


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


def _unreached_name(found: re.Match[str]) -> str:
    return f"GPU {found['index']} on {found['bus']}" if found["index"] else f"the GPU on {found['bus']}"


def _alike(gpus: Sequence[Gpu]) -> list[list[Gpu]]:
    """GPUs with the same figures to the GB, together: eight ranks of one server are one line."""
    groups: dict[tuple[str, str], list[Gpu]] = {}
    for gpu in gpus:
        groups.setdefault((_gigabytes(gpu.free_mib), _gigabytes(gpu.total_mib)), []).append(gpu)
    return list(groups.values())


def _free_words(same: Sequence[Gpu]) -> str:
    free, total = _gigabytes(same[0].free_mib), _gigabytes(same[0].total_mib)
    return f"GPU {', '.join(str(gpu.index) for gpu in same)}: {free} of {total} GB free{' each' if len(same) > 1 else ''}"


def _gigabytes(mib: float | None) -> str:
    return f"{(mib or 0) * MIB / 1e9:.0f}"


def _advice(number: int) -> str:
    if number in APPLICATION_XIDS:
        return "a program's fault, not the GPU's, unless many programs cause it"
    return XID_ADVICE.get(number, "see NVIDIA's XID catalogue")


def _capability(gpu: Gpu) -> str:
    return "unknown" if gpu.capability is None else f"{gpu.capability[0]}.{gpu.capability[1]}"


def _rows(text: str, least: int) -> list[list[str]]:
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return [[cell.strip() for cell in row] for row in rows if len(row) >= least]
