"""The GPUs of a host and who holds their memory, asked of ``nvidia-smi`` through the host's transport."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from ..evidence.gpu import APPS_QUERY, QUERY, GpuProcess, GpuRow, parse_compute_apps, parse_gpus
from .proc_table import ProcessTable, read_processes
from .transport import Completed, HostError, HostUnreachable, Transport

TIMEOUT_S = 10.0
"""A driver that has lost a GPU can let the tool hang for ever; a healthy one answers within a second or two."""


class NoGpuTool(HostError):
    """The host has no ``nvidia-smi``."""


class Owner(Enum):
    """Whose process holds GPU memory."""

    OURS = "this unit's"
    OTHER = "another's"
    UNKNOWN = "unknown"
    """It cannot be seen: it has ended and left its memory behind, is in another container, or hidden from this user."""


@dataclass(frozen=True)
class GpuHolder:
    """A process that holds GPU memory, and whose it is."""

    process: GpuProcess
    owner: Owner
    words: str
    """For a sentence: ``pid 4021 (sglang::scheduler, prod-sgl.service), 100998 MiB``."""


async def read_gpus(transport: Transport) -> tuple[GpuRow, ...]:
    """Every GPU; none on a host whose driver finds none.

    Raises:
        NoGpuTool: there is no ``nvidia-smi``.
        HostError: it fails or hangs; its own words are in the message.
    """
    return parse_gpus(await _ask(transport, f"--query-gpu={','.join(QUERY)}"))


async def read_holders(transport: Transport, main_pid: int | None) -> tuple[GpuHolder, ...]:
    """The processes that hold GPU memory, those of the unit with ``main_pid`` told from others.

    Raises:
        NoGpuTool, HostError: as :func:`read_gpus`.
    """
    processes = parse_compute_apps(await _ask(transport, f"--query-compute-apps={','.join(APPS_QUERY)}"))
    if not processes:
        return ()
    table = await read_processes(transport)
    family = table.family(main_pid)
    return tuple(_holder(process, table, family) for process in processes)


def _holder(process: GpuProcess, table: ProcessTable, family: frozenset[int]) -> GpuHolder:
    memory = f"{process.memory:.0f} MiB" if process.memory is not None else "an unknown amount"
    if process.pid in family:
        return GpuHolder(process, Owner.OURS, f"{table.named(process.pid)}, {memory}")
    if process.pid in table.processes:
        return GpuHolder(process, Owner.OTHER, f"{table.named(process.pid)}, {memory}")
    name = f" {process.name}" if process.name else ""
    why = "hidden from this user" if table.partial else "ended, or in a container of its own"
    return GpuHolder(process, Owner.UNKNOWN, f"pid {process.pid}{name} ({why}), {memory}")


async def _ask(transport: Transport, query: str) -> str:
    try:
        done = await transport.run(["nvidia-smi", query, "--format=csv"], timeout=TIMEOUT_S)
    except HostUnreachable:
        raise
    except HostError as error:
        if "could not be started" in str(error):
            raise NoGpuTool(f"there is no nvidia-smi on {transport.name}, so nothing is known of GPUs") from None
        raise HostError(f"{error}; the GPU driver may hang (dmesg tells)") from None
    if done.status == 127:
        raise NoGpuTool(f"there is no nvidia-smi on {transport.name}, so nothing is known of GPUs")
    said = done.stdout.decode("utf-8", "replace")
    if not done.ok and not _has_rows(said):
        raise HostError(f"nvidia-smi on {transport.name} failed: {_first_line(done, said)}")
    return said


def _has_rows(said: str) -> bool:
    """One GPU that fails makes the tool's status bad, and the others are still there."""
    return bool(parse_gpus(said) or parse_compute_apps(said))


def _first_line(done: Completed, said: str) -> str:
    lines: Sequence[str] = [line for line in (said + done.stderr.decode("utf-8", "replace")).splitlines() if line.strip()]
    return lines[0].strip() if lines else f"status {done.status} and not a word"
