"""All configured hosts, as the Hosts screen asks about them. The real one opens sessions; tests give rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from .facts import DriftBadge
from .series import Point

if TYPE_CHECKING:
    from ..hosts.transport import Link
    from ..state import HostState
    from .link import HostLink


class Look(Enum):
    """How far a host has been looked at."""

    WAITING = "not looked at yet"
    CONNECTING = "connecting"
    SEEN = "seen"
    FAILED = "failed"


@dataclass(frozen=True)
class HostView:
    """One host at a glance."""

    name: str
    address: str = ""
    """What ssh is given; empty for this machine."""
    unit: str = ""
    """The configured unit; empty = the host is searched."""
    note: str = ""
    look: Look = Look.WAITING
    state: HostState | None = None
    link: Link | None = None
    problem: str = ""
    """Why it cannot be looked at, in a sentence."""
    needs_answer: bool = False
    """The problem is a question (a host key, one of several units) that opening the host asks."""
    decode: Sequence[Point] = ()
    """Decode throughput of the last quarter of an hour, tok/s."""
    commit: Sequence[Point] = ()
    drift: DriftBadge = field(default_factory=DriftBadge)
    configured: bool = True
    """Whether the configuration file has it; a host that was only named on the command line can be added."""


@dataclass(frozen=True)
class NewHost:
    """A host to be added to the configuration."""

    address: str
    """What ssh would take."""
    name: str = ""
    """How it is called here; empty = the address's host."""
    unit: str = ""
    note: str = ""


class Fleet(Protocol):
    """The configured hosts. Methods raise :class:`~dflash_console.tui.link.LinkError` with a sentence to show."""

    def views(self) -> tuple[HostView, ...]:
        """All hosts as they are known now, the embedded one first. Asks nobody."""

    def watch(self, besides: str) -> None:
        """Go on looking at all hosts for another minute, apart from the one that the console shows anyway."""

    async def let_go(self, host: str) -> None:
        """Close what was opened to look at a host, which is about to be opened in full."""

    async def open(self, host: str, unit: str | None) -> HostLink:
        """Open a host for the screens."""

    async def add(self, host: NewHost) -> str:
        """Write a host into the configuration file; the name that it got."""

    async def remove(self, host: str) -> None:
        """Take a host out of the configuration file; on the host nothing changes."""

    async def close(self) -> None: ...
