"""The engine behind a wrapper: where a unit's main process is a script, a child of it may be the engine whose words count."""

from __future__ import annotations

from ..evidence.command import find_engine
from ..evidence.process import parse_process
from .proc_table import read_processes
from .transport import HostError, HostFileError, HostUnreachable, Transport


async def read_argv(transport: Transport, pid: int) -> tuple[str, ...]:
    """The command line of a process as the kernel has it; empty when it cannot be read."""
    try:
        return parse_process(pid, cmdline=await transport.read(f"/proc/{pid}/cmdline")).argv
    except HostFileError:
        return ()


async def engine_argv(transport: Transport, main_pid: int, argv: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """The command line of a unit's engine: of its main process, or of the one process that this started and that names one.

    Where none does, or several do that did not start one another, it is the main process's own.

    Args:
        argv: the main process's, where it was read already.

    Raises:
        HostUnreachable
    """
    own = await read_argv(transport, main_pid) if argv is None else argv
    if not own or find_engine(own) is not None:
        return own
    try:
        table = await read_processes(transport)
    except HostUnreachable:
        raise
    except HostError:
        return own
    family = [table.processes[pid] for pid in table.family(main_pid) if pid in table.processes]
    engines = {process.pid: process for process in family if _is_engine(process.argv)}
    # A server's own children may have its command line too.
    first = [process for process in engines.values() if process.parent not in engines]
    return first[0].argv if len(first) == 1 else own


def _is_engine(argv: tuple[str, ...]) -> bool:
    found = find_engine(argv)
    return found is not None and not found.container and not found.nested
