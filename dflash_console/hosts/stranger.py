"""Another program where a unit's engine should be: whoever speaks to its address then speaks to that program.

It is seen only where the host lets it be seen. An engine in a container, a port that nobody is seen to hold and a process that
this user may not look into are not known to be strangers, and are not called so.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..evidence.command import find_engine
from .address import EngineAddress, engine_address
from .listener import Listener, PortHolder, look_at_port, port_holder
from .service import ENDED, ServiceConfig, ServiceState
from .transport import HostError, Transport
from .wrapped import engine_argv


@dataclass(frozen=True)
class Stranger:
    """A program on a unit's port that is not the unit's."""

    port: int
    pids: tuple[int, ...]
    """Who listens there; empty where this user may not see it."""
    holder: str
    """The same in words: ``pid 4021 (python3, prod-sgl.service)``; empty where nothing is known."""
    command: str = ""
    """How it was started, with secrets masked; empty where that cannot be seen."""
    beside: bool = True
    """The unit's own process runs too, and does not have its port. Otherwise nothing of the unit runs."""

    @property
    def words(self) -> str:
        """Who it is and how it was started, for the end of a sentence."""
        return ", started as: ".join(part for part in (self.holder, self.command) if part)

    @property
    def sentence(self) -> str:
        """What is wrong."""
        if self.beside:
            said = f"another program listens on port {self.port} and answers in the engine's place"
        else:
            said = f"another program listens on port {self.port}, which is this unit's"
        return f"{said}: {self.words}" if self.words else said


async def find_stranger(transport: Transport, config: ServiceConfig, state: ServiceState) -> Stranger | None:
    """Who listens where the unit's engine should and is none of its processes; ``None`` = nobody is seen to."""
    if state.main_pid is not None:
        return await stranger_beside(transport, config, state.main_pid)
    address = own_address(config.command)
    if state.state not in ENDED or address is None:
        return None
    try:
        holder = await port_holder(transport, address.host, address.port)
    except HostError:
        return None
    return None if holder is None else _stranger(address, holder, beside=False)


async def stranger_beside(transport: Transport, config: ServiceConfig, main_pid: int) -> Stranger | None:
    """The same while the unit's main process runs."""
    command = config.loaded if config.loaded is not None else config.command
    # Where a wrapper starts the engine, only that one's own words tell its port.
    address = own_address(command if find_engine(command) is not None else await engine_argv(transport, main_pid))
    if address is None:
        return None
    listener, holder = await look_at_port(transport, address.host, address.port, main_pid)
    return _stranger(address, holder, beside=True) if listener is Listener.OTHER else None


def own_address(command: tuple[str, ...]) -> EngineAddress | None:
    """Where the unit's own processes would listen with this command; ``None`` where that is not known, and for an engine in a
    container, whose processes are not the unit's and may outlive its start."""
    engine = find_engine(command)
    return None if engine is None or engine.container else engine_address(command)


def _stranger(address: EngineAddress, holder: PortHolder | None, *, beside: bool) -> Stranger:
    if holder is None:
        return Stranger(address.port, (), "", beside=beside)
    return Stranger(address.port, tuple(sorted(holder.pids)), holder.words, holder.command, beside)
