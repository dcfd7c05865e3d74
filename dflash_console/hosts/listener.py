"""Who listens on an engine's port: an answer proves something only when it comes from the process that was started.

Between two starts the port is free for a moment, and another engine may take it: it would answer every question in the new
one's place. Linux tells who listens: ``/proc/net/tcp`` has the sockets (proc_net(5)), ``/proc/PID/fd`` their owners.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from . import proc
from .transport import HostError, Transport

_LISTEN = "0A"


class Listener(Enum):
    """Whose socket answers on a port."""

    OURS = "ours"
    OTHER = "another program's"
    UNKNOWN = "cannot be seen"
    """Nobody is seen to listen there: a network namespace of its own, or no ``/proc``."""


@dataclass(frozen=True)
class ListeningSocket:
    """One line of ``/proc/net/tcp`` or ``tcp6`` in state LISTEN."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    port: int
    inode: int

    def answers(self, address: str, port: int) -> bool:
        """Whether a connection to ``address:port`` on this machine may reach it."""
        if self.port != port:
            return False
        if self.address.is_unspecified:
            return True
        return str(self.address) in ({"127.0.0.1", "::1"} if address == "localhost" else {address})


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
            yield ListeningSocket(mapped or address, int(port, 16), int(fields[9]))
        except ValueError:
            continue


async def listener_of(transport: Transport, address: str, port: int, main_pid: int) -> Listener:
    """Whether the process ``main_pid``, or one that it started, is what listens on ``address:port``.

    Never raises: what cannot be seen is :attr:`Listener.UNKNOWN`.
    """
    listening: set[int] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            listening |= {found.inode for found in parse_listeners(await transport.read(table)) if found.answers(address, port)}
        except HostError:
            continue
    if not listening:
        return Listener.UNKNOWN
    if listening <= await _sockets_of(transport, main_pid):
        return Listener.OURS
    for pid in await _started_by(transport, main_pid):
        listening -= await _sockets_of(transport, pid)
    return Listener.OTHER if listening else Listener.OURS


async def _sockets_of(transport: Transport, pid: int) -> set[int]:
    """Inodes of what a process has open; empty when it cannot be looked into."""
    folder = f"/proc/{pid}/fd"
    found = set()
    try:
        names = await transport.listdir(folder)
    except HostError:
        return set()
    for name in names:
        try:
            # The link to a socket leads to the socket's own inode.
            found.add((await transport.stat(f"{folder}/{name}")).inode)
        except HostError:
            continue
    return found


async def _started_by(transport: Transport, main_pid: int) -> tuple[int, ...]:
    """``main_pid`` and all that descend from it."""
    children: dict[int, list[int]] = {}
    for name in await transport.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            stat = proc.parse_stat(await transport.read(f"/proc/{name}/stat"))
        except HostError:
            continue
        if stat is not None:
            children.setdefault(stat.ppid, []).append(stat.pid)
    found, waiting = [], [main_pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return tuple(found)
