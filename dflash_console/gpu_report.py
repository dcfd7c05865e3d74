"""The GPUs of a host as screens and commands show them: each with whose processes it has and what is wrong with it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .evidence.gpu import GpuRow
from .evidence.gpu_faults import GpuFault, Grade, row_faults
from .evidence.gpu_holders import GpuHolder, Owner, RankCount, count_ranks, ranks_asked
from .state import HostState, RunState

OTHERS = "others'"
"""Stands for what uses a GPU that the unit does not use."""
STRANGERS = 3
"""Processes that one sentence names."""


@dataclass(frozen=True)
class GpuLine:
    """One GPU."""

    row: GpuRow
    holders: tuple[GpuHolder, ...] = ()
    faults: tuple[GpuFault, ...] = ()
    """Gravest first."""

    @property
    def ranks(self) -> tuple[str, ...]:
        """Names of the unit's ranks on it."""
        names = (holder.rank for holder in self.holders if holder.ours)
        return tuple(dict.fromkeys(name for name in names if name))

    @property
    def on_it(self) -> str:
        """What uses it where it has no fault: the unit's ranks, or somebody else; empty when nothing does."""
        return " ".join(self.ranks) or (OTHERS if self.holders else "")

    @property
    def grade(self) -> Grade | None:
        return self.faults[0].grade if self.faults else None


@dataclass(frozen=True)
class GpuReport:
    """All GPUs of a host, beside what its server asks for."""

    lines: tuple[GpuLine, ...] = ()
    ranks: RankCount | None = None
    """``None``: no server runs here, it is still loading, or its processes have not been looked at."""
    remarks: tuple[GpuFault, ...] = ()
    """What is wrong with no single GPU."""

    @property
    def faults(self) -> tuple[GpuFault, ...]:
        """Everything that is wrong, gravest first."""
        found = [*self.remarks, *(fault for line in self.lines for fault in line.faults)]
        return tuple(sorted(found, key=lambda fault: fault.grade is not Grade.BAD))

    @property
    def findings(self) -> tuple[GpuFault, ...]:
        """The same, one sentence for what several GPUs have alike (``GPUs 0–7 are split by MIG``)."""
        found = list(self.remarks)
        for fault, indices in self._alike().items():
            words = f"GPUs {_numbers(indices)}{fault.together}" if len(indices) > 1 else fault.words
            found.append(replace(fault, words=words))
        return tuple(sorted(found, key=lambda fault: fault.grade is not Grade.BAD))

    def _alike(self) -> dict[GpuFault, list[int]]:
        """One fault of each kind, in the order of the GPUs, with the numbers of those that have it."""
        first: dict[tuple[Grade, str], GpuFault] = {}
        having: dict[GpuFault, list[int]] = {}
        for line in self.lines:
            for fault in line.faults:
                same = fault
                if fault.together and line.row.index is not None:
                    same = first.setdefault((fault.grade, fault.together), fault)
                having.setdefault(same, []).append(-1 if line.row.index is None else line.row.index)
        return having

    @property
    def faulty(self) -> int:
        """GPUs that want a look."""
        return sum(bool(line.faults) for line in self.lines)

    @property
    def kinds(self) -> str:
        """``8 × NVIDIA H200``; a GPU that cannot be reached is taken for one of the others' kind."""
        names = [line.row.name for line in self.lines if line.row.name]
        kinds = list(dict.fromkeys(names))
        if len(kinds) <= 1:
            return f"{len(self.lines)} × {kinds[0] if kinds else 'GPU'}"
        return ", ".join(f"{names.count(kind)} × {kind}" for kind in kinds)

    @property
    def memory_each(self) -> float | None:
        """MiB of every GPU; ``None`` where they differ or it is not known of any."""
        totals = {line.row.memory_total for line in self.lines if line.row.memory_total}
        return totals.pop() if len(totals) == 1 else None


def gpu_report(state: HostState) -> GpuReport:
    """What is known of the GPUs in a snapshot."""
    rows = state.gpus.value if state.gpus is not None else ()
    holders = state.gpu_holders.value if state.gpu_holders is not None else ()
    asked = asked_ranks(state)
    ranks = count_ranks(holders, asked) if asked is not None and state.gpu_holders is not None and state.been_ready else None
    without = _gpus_without_rank(rows, holders, ranks)
    strangers = _strangers(holders)
    lines = []
    for row in rows:
        here = tuple(holder for holder in holders if row.uuid and holder.process.gpu_uuid == row.uuid)
        faults = [*row_faults(row), *_stranger([holder for holder in strangers if holder in here], row.called)]
        if row in without:
            faults.append(_no_rank(row))
        faults.sort(key=lambda fault: fault.grade is not Grade.BAD)
        lines.append(GpuLine(row, here, tuple(faults)))
    known = {row.uuid for row in rows}
    elsewhere = [holder for holder in strangers if holder.process.gpu_uuid not in known]
    remarks = (*_missing(rows, ranks, asked), *_stranger(elsewhere, "a part of a GPU"), *_processes_unread(state))
    return GpuReport(tuple(lines), ranks, remarks)


def asked_ranks(state: HostState) -> int | None:
    """Rank processes that the unit's server has, or would have, on this host; ``None`` for the embedded engine."""
    if state.embedded or state.config is None:
        return None
    fields = state.server.value.fields if state.server is not None else {}
    running = state.process is not None and state.service is not None and state.service.value.state is RunState.RUNNING
    argv = state.process.value.argv if running and state.process is not None and state.process.value.argv else None
    return ranks_asked(fields, argv or state.config.value.command)


def missing_ranks(state: HostState) -> RankCount | None:
    """The count, when the running server has fewer rank processes than it was started with."""
    asked = asked_ranks(state)
    if asked is None or state.gpu_holders is None or not state.been_ready:
        return None
    count = count_ranks(state.gpu_holders.value, asked)
    return count if count.short else None


def rank_words(count: RankCount) -> str:
    """``7 of 8 ranks hold GPU memory, TP5 does not``, and what that comes to."""
    names = f", {', '.join(count.missing)} {'does' if len(count.missing) == 1 else 'do'} not" if count.missing else ""
    return (
        f"{count.words} hold GPU memory{names}: the others wait for what is gone. The log tells why it ended; restart the server"
    )


def _missing(rows: tuple[GpuRow, ...], ranks: RankCount | None, asked: int | None) -> list[GpuFault]:
    found = []
    if ranks is not None and ranks.short:
        found.append(GpuFault(Grade.BAD, ranks.words, rank_words(ranks)))
    if rows and asked is not None and asked > len(rows):
        words = (
            f"the command asks for {asked} GPUs, the driver lists {len(rows)}: one that fell off the bus is gone until a reboot"
        )
        found.append(GpuFault(Grade.BAD, f"{len(rows)} of {asked}", words))
    return found


def _gpus_without_rank(rows: tuple[GpuRow, ...], holders: tuple[GpuHolder, ...], ranks: RankCount | None) -> frozenset[GpuRow]:
    """The GPUs whose rank is missing; none where more GPUs are without one than ranks are missing, as it may be any of them."""
    if ranks is None or not ranks.short or ranks.seen is None:
        return frozenset()
    used = {holder.process.gpu_uuid for holder in holders if holder.ours and holder.rank is not None}
    if not used:
        used = {holder.process.gpu_uuid for holder in holders if holder.ours}
    free = frozenset(row for row in rows if row.uuid not in used)
    return frozenset(row for row in free if not row.lost) if len(free) == ranks.asked - ranks.seen else frozenset()


def _no_rank(row: GpuRow) -> GpuFault:
    words = "no rank of the server's, the others have one each"
    return GpuFault(Grade.BAD, "no rank", f"{row.called} has {words}", f" have {words}")


def _numbers(indices: Sequence[int]) -> str:
    """``0–3, 5, 7``."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    parts = (str(run[0]) if len(run) == 1 else f"{run[0]}{'–' if len(run) > 2 else ', '}{run[-1]}" for run in runs)
    return ", ".join(parts)


def _processes_unread(state: HostState) -> list[GpuFault]:
    """What is known of the processes stays from the last time, and is not taken for news."""
    why = state.problems.get("gpu processes", "")
    if state.gpu_holders is None or not (why or "gpus" in state.problems):
        return []
    words = "which processes hold GPU memory cannot be read now, and what is shown of them is old"
    return [GpuFault(Grade.CAUTION, "processes old", f"{words}: {why}" if why else words)]


def _strangers(holders: tuple[GpuHolder, ...]) -> list[GpuHolder]:
    """Processes of others that are in the unit's way: on the GPUs that it uses, or anywhere while it uses none.

    What cannot be seen counts where the unit's own are seen: then it is no container's view.
    """
    used = {holder.process.gpu_uuid for holder in holders if holder.ours}
    others = [holder for holder in holders if holder.owner is Owner.OTHER or (used and holder.owner is Owner.UNKNOWN)]
    return [holder for holder in others if not used or holder.process.gpu_uuid in used]


def _stranger(holders: list[GpuHolder], where: str) -> list[GpuFault]:
    """One fault for all of them: another server may have a dozen processes there."""
    if not holders:
        return []
    said = "; ".join(holder.words for holder in holders[:STRANGERS])
    if len(holders) == 1:
        return [GpuFault(Grade.CAUTION, "stranger", f"{where}: {said}, is not this unit's")]
    more = f"; and {len(holders) - STRANGERS} more" if len(holders) > STRANGERS else ""
    short = f"{len(holders)} others" if len(holders) < 100 else ">99 other"
    return [GpuFault(Grade.CAUTION, short, f"{where}: {len(holders)} processes are not this unit's: {said}{more}")]
