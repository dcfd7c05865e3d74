"""Processes that hold GPU memory: whose are they, and are there leftovers of a server that is gone?"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine_launch.doctor.check import Check, ok, warn
from engine_launch.spec.nvidia_smi import whole

ENGINE_WORDS = ("sglang::", "vllm::", "ray::")
"""What the titles of engines' workers begin with, in small letters."""
LAUNCHERS = ("launch_server", "sglang serve", "ddtree-launch", "engine_launch")
"""What stands in the command line of a process that starts an engine."""
REAPERS = ("systemd", "tini", "dumb-init", "catatonit", "docker-init", "containerd-shim", "containerd-shim-runc-v2", "conmon")
"""Programs that become the parent of a process whose own has ended."""


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
        listed = ", ".join(f"{pid} ({_shown(known[pid])}, {apps[pid]})" for pid in orphans)
        parts.append(f"left over from a server that is gone: {listed}. End them: kill {' '.join(map(str, orphans))}")
    if unseen:
        listed = ", ".join(f"{pid} ({apps[pid]})" for pid in unseen)
        parts.append(f"not to be seen from here (another container or user): {listed}")
    if parts:
        return warn("gpu processes", ". ".join(parts) + ".")
    listed = ", ".join(f"{pid} {_shown(known[pid])}" for pid in apps)
    return ok("gpu processes", f"{len(apps)}, each with its server: {listed}")


def is_orphan(process: Process, known: Mapping[int, Process]) -> bool:
    """An engine's worker that nobody is left for: the first of its ancestors that is no worker itself is where processes go whose
    parent has ended. A program that holds an engine without a server (``sglang.Engine``) is none of these."""
    if not _works(process):
        return False
    seen: set[int] = set()
    current = process
    while _works(current) and current.parent in known and current.parent not in seen:
        seen.add(current.parent)
        current = known[current.parent]
    return _works(current) or _takes_orphans(current)


def _works(process: Process) -> bool:
    """Whether it is an engine's worker, by its title."""
    return any(word in process.command.lower() for word in ENGINE_WORDS) and not _launches(process)


def _launches(process: Process) -> bool:
    return any(word in process.command for word in LAUNCHERS)


def _takes_orphans(process: Process) -> bool:
    """Process 1, unless it is itself the program that a container was made for, or a user's service manager."""
    program = process.command.split(" ", 1)[0].rpartition("/")[2]
    first = process.pid == 1 and not program.startswith("python") and not _launches(process)
    return first or program in REAPERS


def _shown(process: Process) -> str:
    """The program and its script or module: behind flags there may be a key."""
    words = process.command.split()
    end = next((place for place, word in enumerate(words) if word.startswith("-") and word != "-m"), len(words))
    return " ".join(words[:end])[:60]
