"""Which process is which: identities that survive a recycled pid, read from ``/proc``.

Standard library only, because the supervisor imports it and has to start fast.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class ProcessId:
    """A pid together with the moment the process began: the pair is never used twice between two boots."""

    pid: int
    ticks: int
    """Clock ticks between boot and the start of the process (field 22 of ``/proc/PID/stat``, proc(5))."""


@dataclass(frozen=True)
class ProcStat:
    """The fields of ``/proc/PID/stat`` that are needed here."""

    pid: int
    state: str
    ppid: int
    group: int
    ticks: int

    @property
    def gone(self) -> bool:
        """A zombie has ended and only waits to be noticed by its parent."""
        return self.state in "ZX"


def parse_stat(data: bytes) -> ProcStat | None:
    """Read ``/proc/PID/stat``; ``None`` when it is not one. The name in brackets may itself hold blanks and brackets."""
    head, bracket, tail = data.rpartition(b")")
    fields = tail.split()
    pid = head.partition(b" ")[0]
    if not bracket or len(fields) < 20 or not pid.isdigit():
        return None
    try:
        return ProcStat(int(pid), fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[19]))
    except (ValueError, UnicodeDecodeError):
        return None


def read_stat(pid: int) -> ProcStat | None:
    """The process's state now; ``None`` when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return parse_stat(file.read())
    except OSError:
        return None


def identify(pid: int) -> ProcessId | None:
    """The identity of a running process."""
    stat = read_stat(pid)
    return None if stat is None or stat.gone else ProcessId(pid, stat.ticks)


def alive(process: ProcessId) -> bool:
    """Whether this very process still runs (not another one with its pid)."""
    return identify(process.pid) == process


def boot_id() -> str:
    """The kernel's id of this boot: ticks count from it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def all_processes() -> Iterator[ProcStat]:
    """Every process on this machine that has not ended."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := read_stat(int(name))) is not None and not stat.gone:
            yield stat


def descendants(pid: int) -> list[ProcessId]:
    """All children of ``pid``, theirs, and so on."""
    children: dict[int, list[ProcStat]] = {}
    for stat in all_processes():
        children.setdefault(stat.ppid, []).append(stat)
    found: list[ProcessId] = []
    waiting = [pid]
    while waiting:
        for stat in children.get(waiting.pop(), ()):
            found.append(ProcessId(stat.pid, stat.ticks))
            waiting.append(stat.pid)
    return found


def started_with(variable: str, value: str) -> list[ProcessId]:
    """Processes whose starting environment holds ``variable=value``; those of other users cannot be looked into."""
    wanted = f"{variable}={value}".encode()
    found = []
    for stat in all_processes():
        try:
            with open(f"/proc/{stat.pid}/environ", "rb", buffering=0) as file:
                if wanted in file.read().split(b"\0"):
                    found.append(ProcessId(stat.pid, stat.ticks))
        except OSError:
            continue
    return found
