"""Who listens on an engine's port: an answer proves something only when it comes from the process that was started.

Between two starts the port is free for a moment, and another engine may take it: it would answer every question in the new
one's place. Linux tells who listens: ``/proc/net/tcp`` has the sockets (proc_net(5)), ``/proc/PID/fd`` their owners. Whose they
are only root and the owner may see; what this user may not see is unknown, never somebody else's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from ..evidence.secrets import mask_argv
from ..evidence.terminal_text import one_line
from ..evidence.values import whole
from ..formats import shorten
from .proc_table import ProcessTable, read_processes
from .transport import HostError, Transport

COMMAND_WIDTH = 160
"""Characters of a holder's command line that are shown."""
_LISTEN = "0A"
_CONTAINER_CLIENTS = frozenset({"docker", "podman", "nerdctl"})
"""Programs that ask a daemon, or a process of its own, to run the engine: what listens is not their child."""


class Listener(Enum):
    """Whose socket answers on a port."""

    OURS = "ours"
    OTHER = "another program's"
    UNKNOWN = "cannot be seen"
    """Nobody is seen to listen there (a network namespace of its own, no ``/proc``), this user may not see who it is, or the
    engine runs in a container, whose processes are not the unit's."""


@dataclass(frozen=True)
class ListeningSocket:
    """One line of ``/proc/net/tcp`` or ``tcp6`` in state LISTEN."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int
    inode: int
    uid: int | None = None
    """The user whose it is."""

    def nearness(self, address: str) -> int | None:
        """How near its address is to ``address``; ``None`` = no connection to there reaches it.

        Of the sockets of one port the kernel gives a connection to the nearest (``compute_score`` of inet_hashtables.c): 2 for
        that very address, 1 for every address of its family, 0 for every IPv6 address where an IPv4 one is asked for. The last
        takes IPv4 too only where it is not bound with ``IPV6_V6ONLY``, which ``/proc`` does not show.
        """
        if not self.address.is_unspecified:
            return 2 if str(self.address) == address else None
        if ":" in address:
            return 1 if self.address.version == 6 else None
        return 1 if self.address.version == 4 else 0


def answering(sockets: Iterable[ListeningSocket], address: str, port: int) -> set[ListeningSocket]:
    """Those that a connection to ``address:port`` on this machine reaches. ``localhost`` is tried on both loopback addresses."""
    found: set[ListeningSocket] = set()
    for each in ("127.0.0.1", "::1") if address == "localhost" else (address,):
        near = {socket: at for socket in sockets if socket.port == port and (at := socket.nearness(each)) is not None}
        found |= {socket for socket, at in near.items() if at == max(near.values())}
    return found


def parse_listeners(data: bytes) -> tuple[ListeningSocket, ...]:
    """The listening sockets of ``/proc/net/tcp`` or ``/proc/net/tcp6``; lines that cannot be read are left out."""
    return tuple(_sockets(data.decode("ascii", "replace").splitlines()[1:]))


def _sockets(lines: list[str]) -> Iterator[ListeningSocket]:
    for line in lines:
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN:
            continue
        words, _, port = fields[1].partition(":")
        try:
            # Each 32-bit word is printed in the machine's own byte order; Linux servers are little-endian.
            packed = b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8))
            address = ipaddress.ip_address(packed)
            mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
            yield ListeningSocket(mapped or address, int(port, 16), int(fields[9]), int(fields[7]))
        except ValueError:
            continue


@dataclass(frozen=True)
class PortHolder:
    """Who listens on a port."""

    pids: frozenset[int]
    """Empty where this user may not see them."""
    uids: frozenset[int]
    words: str
    """For a sentence: ``pid 4021 (python3, prod-sgl.service)``."""
    command: str = ""
    """How the first of them was started, with secrets masked, in one line; empty where that cannot be seen."""


async def listener_of(transport: Transport, address: str, port: int, main_pid: int) -> Listener:
    """Whether the process ``main_pid``, or one of its unit, is what listens on ``address:port``.

    Never raises: what cannot be seen is :attr:`Listener.UNKNOWN`.
    """
    return (await look_at_port(transport, address, port, main_pid))[0]


async def look_at_port(transport: Transport, address: str, port: int, main_pid: int) -> tuple[Listener, PortHolder | None]:
    """As :func:`listener_of`; and who it is, where it is another program. Never raises."""
    try:
        sockets = await _listening(transport, address, port)
        if not sockets:
            return Listener.UNKNOWN, None
        holders = await _holders(transport, sockets)
        if all(main_pid in holders[socket.inode] for socket in sockets):
            return Listener.OURS, None
        table = await read_processes(transport)
        strange = {socket for socket in sockets if not holders[socket.inode] & table.family(main_pid)}
        found = await _judge(transport, strange, holders, table, main_pid)
        if found is not Listener.OTHER:
            return found, None
        return found, _holder(strange, {socket.inode: holders[socket.inode] for socket in strange}, table)
    except HostError:
        return Listener.UNKNOWN, None


async def _judge(
    transport: Transport, strange: set[ListeningSocket], holders: dict[int, set[int]], table: ProcessTable, main_pid: int
) -> Listener:
    """Args: strange: the sockets that nobody of the unit is seen to hold."""
    if not strange:
        return Listener.OURS
    main = table.processes.get(main_pid)
    if main is not None and main.argv and main.argv[0].rpartition("/")[2] in _CONTAINER_CLIENTS:
        return Listener.UNKNOWN
    if any(holders[socket.inode] for socket in strange):
        return Listener.OTHER
    # Nobody is seen to hold it. A socket of another user than the engine's is not the engine's.
    uid = (await transport.stat(f"/proc/{main_pid}")).uid
    return Listener.OTHER if any(socket.uid != uid for socket in strange) else Listener.UNKNOWN


async def port_holder(transport: Transport, address: str, port: int) -> PortHolder | None:
    """Who listens on ``address:port``; ``None`` = nobody is seen to.

    Raises:
        HostError: the host cannot be asked.
    """
    sockets = await _listening(transport, address, port)
    if not sockets:
        return None
    holders = await _holders(transport, sockets)
    return _holder(sockets, holders, await read_processes(transport) if any(holders.values()) else None)


def _holder(sockets: set[ListeningSocket], holders: dict[int, set[int]], table: ProcessTable | None) -> PortHolder:
    pids = frozenset(pid for found in holders.values() for pid in found)
    uids = frozenset(socket.uid for socket in sockets if socket.uid is not None)
    if not pids or table is None:
        users = ", ".join(str(uid) for uid in sorted(uids))
        return PortHolder(pids, uids, f"a program of the user with number {users}, which this user may not look into")
    first = table.processes.get(min(pids))
    command = one_line(" ".join(mask_argv(first.argv))) if first is not None else ""
    named = ", ".join(table.named(pid) for pid in sorted(pids)[:3])
    return PortHolder(pids, uids, named, shorten(command, COMMAND_WIDTH))


async def _listening(transport: Transport, address: str, port: int) -> set[ListeningSocket]:
    found: set[ListeningSocket] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            found.update(parse_listeners(await transport.read(table)))
        except HostError:
            # A kernel without IPv6 has no tcp6.
            continue
    return answering(found, address, port)


async def _holders(transport: Transport, sockets: set[ListeningSocket]) -> dict[int, set[int]]:
    """The processes that have each socket open, as far as this user may look into them."""
    tests: list[str] = []
    for socket in sockets:
        tests += [*(["-o"] if tests else []), "-lname", rf"socket:\[{socket.inode}\]"]
    # The shell only fills in the names. Folders that may not be read, and processes that end, are complaints on standard error.
    script = 'exec find /proc/[0-9]*/fd -maxdepth 1 "(" "$@" ")" -printf "%h %l\\n"'
    done = await transport.run(["sh", "-c", script, "sh", *tests])
    found: dict[int, set[int]] = {socket.inode: set() for socket in sockets}
    for line in done.stdout.decode("ascii", "replace").splitlines():
        folder, _, link = line.partition(" ")
        pid, inode = whole(folder.split("/")[2]), whole(link.removeprefix("socket:[").removesuffix("]"))
        if pid is not None and inode in found:
            found[inode].add(pid)
    return found
