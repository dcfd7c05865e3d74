"""Processes that hold GPU memory: whose are they, and are there leftovers of a server that is gone?"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine_launch.doctor.check import Check, ok, warn
from engine_launch.spec.nvidia_smi import whole

ENGINE_WORDS = ("sglang", "vllm", "ray::")
LAUNCHERS = ("launch_server", "sglang serve", "ddtree-launch", "engine_launch")
"""What stands in the command line of a process that starts an engine."""


@dataclass(frozen=True)
class Process:
    """One process of this machine."""

    pid: int
    parent: int
    command: str


def read_apps(text: str) -> dict[int, str]:
    """Pid → memory in use as printed, of every process on a GPU."""
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    return {pid: f"{row[2].strip()} MiB" for row in rows if len(row) >= 3 and (pid := whole(row[0].strip())) is not None}


def check_processes(text: str, problem: str, processes: Sequence[Process]) -> Check:
    """Who is on the GPUs. An engine's worker whose launcher is gone is an orphan: it keeps its memory until it is killed."""
    if problem:
        return warn("gpu processes", f"not known: {problem}")
    apps, known = read_apps(text), {process.pid: process for process in processes}
    if not apps:
        return ok("gpu processes", "none on any GPU")
    orphans = [pid for pid in apps if pid in known and is_orphan(known[pid], known)]
    unseen = [pid for pid in apps if pid not in known]
    parts = []
    if orphans:
        listed = ", ".join(f"{pid} ({known[pid].command[:60]}, {apps[pid]})" for pid in orphans)
        parts.append(f"left over from a server that is gone: {listed}. End them: kill {' '.join(map(str, orphans))}")
    if unseen:
        listed = ", ".join(f"{pid} ({apps[pid]})" for pid in unseen)
        parts.append(f"not to be seen from here (another container or user): {listed}")
    if parts:
        return warn("gpu processes", ". ".join(parts) + ".")
    listed = ", ".join(f"{pid} {known[pid].command[:60]}" for pid in apps)
    return ok("gpu processes", f"{len(apps)}, each with its server: {listed}")


def is_orphan(process: Process, known: Mapping[int, Process]) -> bool:
    """An engine's worker, none of whose ancestors is a launcher."""
    if not any(word in process.command.lower() for word in ENGINE_WORDS) or _launches(process):
        return False
    seen: set[int] = set()
    current = process
    while current.parent in known and current.parent not in seen:
        seen.add(current.parent)
        current = known[current.parent]
        if _launches(current):
            return False
    return True


def _launches(process: Process) -> bool:
    return any(word in process.command for word in LAUNCHERS)
