"""What is wrong with a GPU, each fault in a word for a column and in a sentence that says what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from engine_launch.spec.nvidia_smi import LOST, NEEDS_RESET

from .gpu import GpuRow


class Grade(Enum):
    """How grave a fault is. The symbol stands beside the words, so that colour is never needed."""

    BAD = "✗"
    """The GPU cannot do its part."""
    CAUTION = "!"
    """It does, slowly or at a risk."""


@dataclass(frozen=True)
class GpuFault:
    """One thing that is wrong."""

    grade: Grade
    short: str
    """At most nine characters, for a column."""
    words: str
    """A sentence: what it is, and what to do."""
    together: str = ""
    """The sentence for several GPUs that have it, without their names before it; empty where each needs its own."""


def row_faults(row: GpuRow) -> tuple[GpuFault, ...]:
    """What the driver itself says of one GPU, gravest first."""
    return tuple(_faults(row))


_REBOOT = "The kernel's log has the XID (dmesg); it takes a reboot of the host"
_PARTS = "a rank that counts on the whole GPU gets a part"


def _faults(row: GpuRow) -> Iterator[GpuFault]:
    if row.lost:
        where = f" ({row.bus})" if row.bus and row.index is not None else ""
        why = row.lost.rstrip(".")
        yield GpuFault(
            Grade.BAD,
            "lost",
            f"{row.called}{where} cannot be reached: {why}. {_REBOOT}",
            f" cannot be reached: {why}. {_REBOOT}",
        )
        return
    if row.needs_reset:
        yield GpuFault(
            Grade.BAD,
            "reset",
            f"{row.called} requires a reset: end what runs on it, then nvidia-smi --gpu-reset -i {row.index}, or reboot the host",
        )
    if row.ecc_errors:
        errors = f"{row.ecc_errors} uncorrected memory error{'' if row.ecc_errors == 1 else 's'}"
        yield GpuFault(
            Grade.BAD,
            _short("ECC", row.ecc_errors),
            f"{row.called} has {errors} since the driver was loaded: drain it and reset it",
        )
    if row.slowed:
        why = ", ".join((*row.slowed, *([] if row.temperature is None else [f"{row.temperature:.0f} °C"])))
        yield GpuFault(
            Grade.CAUTION,
            "slowed" if row.temperature is None else f"slow {row.temperature:.0f}°",
            f"{row.called} is slowed down ({why}), as is each rank that works with it: check cooling and power",
            f" are slowed down ({', '.join(row.slowed)}), as is each rank that works with them: check cooling and power",
        )
    if row.mig:
        yield GpuFault(
            Grade.CAUTION,
            "MIG",
            f"{row.called} is split by MIG: {_PARTS}, and its utilisation is not reported",
            f" are split by MIG: {_PARTS}, and their utilisation is not reported",
        )
    if row.note and NEEDS_RESET not in row.note and LOST not in row.note:
        said = f": the driver does not tell {_told(row.note)}"
        yield GpuFault(Grade.CAUTION, "error", row.called + said, said)


def _short(word: str, number: int) -> str:
    return f"{word} {number}" if number < 100_000 else f"{word} >99k"


def _told(note: str) -> str:
    """``power: Unknown Error`` as ``power (Unknown Error)``."""
    parts = (part.partition(": ") for part in note.split("; "))
    return ", ".join(f"{figure} ({reason})" for figure, _, reason in parts)
