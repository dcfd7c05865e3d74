"""All processes of a host at one look, through its transport: three commands, however many processes there are.

Reading ``/proc`` file by file takes a round trip each; over SSH a thousand processes would take a minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..evidence.process import ProcessEvidence, parse_process, split_by_process
from ..evidence.terminal_text import one_line
from ..formats import shorten
from .transport import HostError, Transport

_TIMEOUT_S = 20.0
_NAME_WIDTH = 60
"""Characters of a process's name that are shown."""


@dataclass(frozen=True)
class ProcessTable:
    """The processes that this user may see."""

    processes: Mapping[int, ProcessEvidence]
    partial: bool = False
    """The host hides other users' processes (``/proc`` mounted with ``hidepid``), so one that is missing may run."""

    def family(self, main_pid: int | None) -> frozenset[int]:
        """A unit's main process, all that descends from it, and all that is in its unit's control group: a process whose
        parent ended is nobody's descendant any more."""
        main = self.processes.get(main_pid or 0)
        if main is None:
            return frozenset()
        children: dict[int, list[int]] = {}
        for process in self.processes.values():
            if process.parent is not None:
                children.setdefault(process.parent, []).append(process.pid)
        waiting = [main.pid]
        if main.unit.endswith(".service"):
            # A unit may delegate groups of its own under its group.
            waiting += [process.pid for process in self.processes.values() if f"{process.cgroup}/".startswith(f"{main.cgroup}/")]
        found: set[int] = set()
        while waiting:
            pid = waiting.pop()
            if pid not in found:
                found.add(pid)
                waiting += children.get(pid, ())
        return frozenset(found)

    def named(self, pid: int) -> str:
        """How a process is called in a sentence: ``pid 4021 (python3, prod-sgl.service)``."""
        process = self.processes.get(pid)
        if process is None:
            return f"pid {pid} (it cannot be seen: it has ended, or is another user's)"
        command = shorten(process.called.rpartition("/")[2], _NAME_WIDTH)
        where = process.container or one_line(process.unit)
        return f"pid {pid} ({', '.join(word for word in (command, where) if word)})"


async def read_processes(transport: Transport, pids: Sequence[int] | None = None) -> ProcessTable:
    """Every process with its command line, parent, start and control group; with ``pids`` those alone.

    Raises:
        HostError: the host has no ``/proc``, or cannot be reached.
    """

    async def look(name: str, *options: str) -> bytes:
        # The shell only fills in the names; a process that ends meanwhile is no error.
        which = " ".join(f"/proc/{pid}/{name}" for pid in dict.fromkeys(pids)) if pids is not None else f"/proc/[0-9]*/{name}"
        script = f'exec grep -as -H "$@" "" {which}'
        return (await transport.run(["sh", "-c", script, "sh", *options], timeout=_TIMEOUT_S)).stdout

    stat_data, cmdline_data, cgroup_data = await asyncio.gather(look("stat"), look("cmdline", "-z"), look("cgroup"))
    stats = split_by_process(stat_data, "stat", b"\n")
    if not stats:
        raise HostError(f"the processes of {transport.name} cannot be listed: /proc shows none")
    cmdlines = split_by_process(cmdline_data, "cmdline", b"\0")
    cgroups = split_by_process(cgroup_data, "cgroup", b"\n")
    processes = {
        pid: parse_process(pid, cmdline=cmdlines.get(pid, b""), cgroup=cgroups.get(pid), stat=stat) for pid, stat in stats.items()
    }
    return ProcessTable(processes, partial=1 not in processes)
