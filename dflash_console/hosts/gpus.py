"""The GPUs of a host and who holds their memory, asked of ``nvidia-smi`` through the host's transport."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence

from engine_launch.spec.nvidia_smi import REFUSED

from ..evidence.command import find_engine
from ..evidence.gpu import APPS_QUERY, QUERIES, GpuProcess, GpuRow, has_header, parse_compute_apps, parse_gpus
from ..evidence.gpu_holders import GpuHolder as GpuHolder
from ..evidence.gpu_holders import Owner as Owner
from ..evidence.terminal_text import clean_line
from .proc_table import ProcessTable, read_processes
from .transport import Completed, HostError, HostUnreachable, Transport

TIMEOUT_S = 10.0
"""A driver that has lost a GPU can let the tool hang for ever; a healthy one answers within a second or two."""


NOT_EXECUTABLE = 126
"""A shell's exit status for a program that is there and cannot be run."""
NOT_FOUND = 127
"""A shell's exit status for a program that it does not find, and a loader's for a library; also where a script's interpreter is
what is missing."""
NO_DEVICES = "No devices were found"
NO_PROCESSES = "No running processes found"
SHOWN = 60
"""Characters of an answer that is not understood."""


class NoGpuTool(HostError):
    """The host has no ``nvidia-smi``."""


async def read_gpus(transport: Transport) -> tuple[GpuRow, ...]:
    """Every GPU, those that the driver cannot reach too; none on a host whose driver finds none.

    Raises:
        NoGpuTool: there is no ``nvidia-smi``.
        HostError: it fails or hangs; its own words are in the message.
    """
    *more, last = QUERIES
    for columns in more:
        with contextlib.suppress(_Refused):
            return _gpus(transport, await _ask(transport, f"--query-gpu={','.join(columns)}"))
    # An older driver than these columns: without them what is slowed down or has memory errors is not known.
    return _gpus(transport, await _ask(transport, f"--query-gpu={','.join(last)}"))


def _gpus(transport: Transport, said: str) -> tuple[GpuRow, ...]:
    """The rows of an answer. Raises: HostError: it is none, whatever its exit status was."""
    rows = parse_gpus(said)
    if not rows and NO_DEVICES not in said and not has_header(said, QUERIES[0]):
        raise _not_understood(transport, said)
    numbers = [row.index for row in rows if row.index is not None]
    twice = next((number for number in numbers if numbers.count(number) > 1), None)
    if twice is not None:
        raise _not_understood(transport, said, f" (it has GPU {twice} twice)")
    return rows


async def read_holders(transport: Transport, main_pid: int | None, unit: str = "") -> tuple[GpuHolder, ...]:
    """The processes that hold GPU memory, those of the unit with ``main_pid`` told from others.

    Args:
        unit: the systemd unit in whose control group the main process is known to be. Then only the processes in question are
            looked at, for somebody who asks every few seconds; otherwise all of the host's.

    Raises:
        NoGpuTool, HostError: as :func:`read_gpus`.
    """
    said = await _ask(transport, f"--query-compute-apps={','.join(APPS_QUERY)}")
    processes = parse_compute_apps(said)
    if not processes:
        if not has_header(said, APPS_QUERY) and NO_PROCESSES not in said and NO_DEVICES not in said:
            raise _not_understood(transport, said)
        return ()
    few = [process.pid for process in processes] if main_pid is not None and unit.endswith(".service") else None
    table = await read_processes(transport, None if few is None or main_pid is None else (1, main_pid, *few))
    family = table.family(main_pid)
    main = table.processes.get(main_pid or 0)
    engine = find_engine(main.argv) if main is not None else None
    contained = engine is not None and engine.container
    return tuple(_holder(process, table, family, contained=contained) for process in processes)


def _holder(process: GpuProcess, table: ProcessTable, family: frozenset[int], *, contained: bool) -> GpuHolder:
    memory = f"{process.memory:.0f} MiB" if process.memory is not None else "an unknown amount"
    known = table.processes.get(process.pid)
    title = "" if known is None else known.called
    named = f"{table.named(process.pid)}, {memory}"
    if process.pid in family:
        return GpuHolder(process, Owner.OURS, named, title)
    if known is not None and contained and known.container:
        # The unit's main process is the container's client, and its control group is not the container's.
        return GpuHolder(process, Owner.CONTAINED, named, title)
    if known is not None:
        return GpuHolder(process, Owner.OTHER, named, title)
    name = f" {process.name}" if process.name else ""
    why = "hidden from this user" if table.partial else "ended, or in a container of its own"
    return GpuHolder(process, Owner.UNKNOWN, f"pid {process.pid}{name} ({why}), {memory}")


class _Refused(HostError):
    """The tool does not know a column that it was asked for."""


async def _ask(transport: Transport, query: str) -> str:
    try:
        done = await transport.run(["nvidia-smi", query, "--format=csv"], timeout=TIMEOUT_S)
    except HostUnreachable:
        raise
    except HostError as error:
        if "could not be started" in str(error):
            reason = str(error).rpartition(": ")[2]
            if reason != os.strerror(errno.ENOENT):
                raise _not_executable(transport, reason) from None
            raise await _not_found(transport, reason) from None
        raise HostError(f"{error}; the GPU driver may hang (dmesg tells)") from None
    said = done.stdout.decode("utf-8", "replace")
    if done.status == NOT_FOUND:
        raise await _not_found(transport, _first_line(done, said))
    if done.status == NOT_EXECUTABLE:
        raise _not_executable(transport, _first_line(done, said))
    if not done.ok and REFUSED in said:
        raise _Refused(f"nvidia-smi on {transport.name} failed: {_first_line(done, said)}")
    if not done.ok and not _has_rows(said):
        raise HostError(f"nvidia-smi on {transport.name} failed: {_first_line(done, said)}")
    return said


async def _not_found(transport: Transport, reason: str) -> HostError:
    """The tool is absent, or it is there and what it needs to run is: the system says the same of both."""
    try:
        found = (await transport.run(["sh", "-c", "command -v nvidia-smi"], timeout=TIMEOUT_S)).ok
    except HostUnreachable:
        raise
    except HostError:
        found = False
    if found:
        return _not_executable(transport, f"{reason}: an interpreter, a loader or a library that it needs is missing")
    return NoGpuTool(f"there is no nvidia-smi on {transport.name}, so nothing is known of GPUs")


def _not_understood(transport: Transport, said: str, why: str = "") -> HostError:
    words = " ".join(clean_line(said.replace("\n", " ")).split())
    begins = f"it begins: {words[:SHOWN]}{'…' if len(words) > SHOWN else ''}" if words else "it is empty"
    return HostError(f"the answer of nvidia-smi on {transport.name} is not understood{why}; {begins}")


def _not_executable(transport: Transport, reason: str) -> HostError:
    return HostError(f"nvidia-smi on {transport.name} cannot be executed ({reason}), so nothing is known of GPUs")


def _has_rows(said: str) -> bool:
    """One GPU that fails makes the tool's status bad, and the others are still there; or it keeps the tool from listing any."""
    return any(not row.lost for row in parse_gpus(said)) or bool(parse_compute_apps(said))


def _first_line(done: Completed, said: str) -> str:
    lines: Sequence[str] = [line for line in (said + done.stderr.decode("utf-8", "replace")).splitlines() if line.strip()]
    return clean_line(lines[0]).strip() if lines else f"status {done.status} and not a word"
