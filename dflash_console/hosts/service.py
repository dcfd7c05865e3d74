"""What the console asks of the thing that runs the engine: state, configuration, start and stop, log.

A *service* is a systemd unit or a supervised local process. Every start has an invocation id of its own; a log line belongs
to exactly one start. Confirmation stands on these two facts and never on a clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from ..evidence.file_edits import FileEdit as FileEdit
from ..evidence.file_edits import Texts as Texts
from ..evidence.journal import LogLine


class RunState(Enum):
    """A service's state in one word."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    FAILED = "failed"
    MISSING = "missing"
    """There is no such unit or configuration."""
    UNKNOWN = "unknown"


ENDED = (RunState.STOPPED, RunState.FAILED, RunState.MISSING)
"""States in which no process is the unit's."""


@dataclass(frozen=True)
class ServiceState:
    unit: str
    state: RunState
    invocation_id: str | None = None
    main_pid: int | None = None
    restarts: int = 0
    started_at: float | None = None
    """Seconds since the epoch, by the host's clock."""
    exit_status: int | None = None
    result: str = ""
    """``success``, ``exit-code``, ``signal``, ``start-limit-hit`` …"""
    detail: str = ""
    """One sentence when something is wrong."""
    unloaded: str = ""
    """Why the manager does not load the configuration that is there, in words; empty when it does, or does not say."""
    config_mark: str = ""
    """Changes when the manager's view of the configuration does (other files, files changed and not read)."""


@dataclass(frozen=True)
class ConfigSource:
    """One file that makes up the configuration."""

    path: str
    text: str
    mtime: float | None = None

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True)
class ServiceConfig:
    """The configuration as written, and as the service manager has loaded it."""

    sources: tuple[ConfigSource, ...]
    command: tuple[str, ...]
    """The effective command that the files ask for."""
    loaded: tuple[str, ...] | None
    """The command the manager would run or did load; ``None`` = cannot be known."""
    environment: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    """What in the files does not mean what it seems to (arguments that are lost, added or taken together): one sentence each."""
    shadowed: str = ""
    """How the console's own file hides a later change of what it was made from; empty when it does not."""
    folders: Mapping[str, float | None] = field(default_factory=dict)
    """Folders in which files of the configuration may appear, and files that are named and not there, with the times of their
    last change (``None``: not there)."""
    command_path: str = ""
    """The file in which the effective command stands; empty = the last source."""
    chosen_port: int | None = None
    """The port of ``command``, where the console chose it: a start may take another one."""


class UndoTimer(Protocol):
    """A timer on the host that puts files of the configuration back and restarts the unit, unless it is called off in time.

    It depends on nothing but the host: neither on the link nor on this machine.
    """

    async def arm(self, seconds: int, restore: Texts, *, restart: bool = True) -> object:
        """Start it anew. ``restart``: the engine ran before; otherwise it is stopped. Raises: HostError."""

    async def disarm(self) -> bool:
        """Call it off. False = it had fired already, or there was none. Raises: HostError: not known."""

    async def armed(self) -> bool:
        """Whether it runs and has not fired. Raises: HostError."""

    async def fired(self) -> bool:
        """Whether it has put the files back since it was armed. Raises: HostError."""


class Service(Protocol):
    """One unit on one host."""

    @property
    def unit(self) -> str: ...

    @property
    def keep(self) -> str:
        """The folder on the host in which earlier texts of the configuration are kept, as private as the configuration is."""

    async def state(self) -> ServiceState:
        """Raises: HostUnreachable."""

    async def configuration(self) -> ServiceConfig:
        """Raises: HostError: the configuration is missing or cannot be read."""

    @property
    def loads_on_reload(self) -> bool:
        """Whether :meth:`reload` loads the command, so that what is loaded can be compared before a restart."""

    def target(self, config: ServiceConfig) -> str:
        """The file that a change is written to when nothing speaks for another."""

    def edits(self, config: ServiceConfig, command: tuple[str, ...]) -> tuple[FileEdit, ...]:
        """The edits that make ``command`` the effective one, each where its words stand; nothing else changes.

        Raises:
            HostError: it cannot be written; the message says why (another file would win …).
        """

    def rebase(self) -> tuple[FileEdit, ...]:
        """The edits that carry the console's drop-in over to the unit as it is now; none when nothing has changed under it.

        Raises:
            HostError: both changed the same words, or there is no drop-in.
        """

    def release(self) -> tuple[FileEdit, ...]:
        """The edit that removes the console's drop-in; none when there is none. Raises: HostError."""

    def restorable(self, config: ServiceConfig) -> Texts:
        """The files that a roll-back may write, with their texts now."""

    async def ours(self) -> Texts:
        """The files that a roll-back may write where nothing of what is there can be loaded, with their texts: beside those of
        :meth:`restorable` the unit's own, unless it is a package's. Also where the unit is missing. Raises: HostError."""

    async def preview(self, texts: Texts) -> ServiceConfig:
        """The configuration if these files held these texts (``None``: were not there). Raises: HostError."""

    async def command_with(self, texts: Texts) -> tuple[str, ...]:
        """The effective command if these files held these texts. Raises: HostError: it is no configuration."""

    async def read(self, path: str) -> bytes:
        """A file of the configuration, with root's rights where they are needed and to be had. Raises: HostFileError."""

    async def write(self, edits: Sequence[FileEdit]) -> None:
        """Write each file whole, or none of them when one cannot be written or does not hold its old text any more.

        Raises:
            HostError: changed meanwhile, no space, not allowed …
        """

    async def check(self) -> tuple[str, ...]:
        """What the service manager complains about, in its words (``systemd-analyze verify``). Some of it may be old and
        harmless: compare before and after a write."""

    async def preflight(self) -> tuple[str, ...]:
        """What would make a change fail for certain, found without changing anything: missing rights, a broken configuration."""

    async def reload(self) -> None:
        """Make the manager read the files again. Raises: HostError."""

    async def start(self, *, another_port: bool = False) -> None:
        """Ask for a start; returns when the manager took the job.

        Args:
            another_port: where the console chose the unit's port and another program has it by now, take the next free one and
                note it in the configuration. Not for a change, whose files have to stay as they were written.

        Raises:
            HostError
        """

    async def stop(self, *, timeout: float = 60.0) -> None:
        """Stop and wait until it is stopped. Raises: HostError."""

    async def restart(self) -> None:
        """Ask for a restart; returns when the manager took the job. Whether one happened is known from the invocation id."""

    async def cursor(self) -> str:
        """The end of the log right now; a later :meth:`follow` from it misses nothing."""

    def follow(self, *, cursor: str | None = None, invocation_id: str | None = None) -> AsyncIterator[LogLine]:
        """Log lines as they come, after ``cursor`` (``None`` = from the beginning), of one start or of all. A line's own cursor
        stands after that line."""

    def batches(self, *, cursor: str | None = None, invocation_id: str | None = None) -> AsyncIterator[tuple[LogLine, ...]]:
        """As :meth:`follow`, in the batches in which lines were found. An empty batch says that everything that is stored has
        been given."""

    async def log_start(self) -> str | None:
        """The cursor at which the log of the newest start begins; ``None`` = from the oldest line."""

    async def lines(self, *, invocation_id: str | None = None, limit: int = 5_000) -> tuple[LogLine, ...]:
        """The newest stored lines, oldest first."""

    def lock(self, holder: str) -> AbstractAsyncContextManager[None]:
        """Hold the unit for one operation. Raises: HostError naming who holds it."""

    def rollback_timer(self) -> UndoTimer | None:
        """The unit's timer; ``None`` where the host has none (no systemd)."""

    async def audit(self, record: Mapping[str, object]) -> str:
        """Note a finished operation on the host, for everybody who works there; the time is added by the host. The file of it;
        empty for a service that this machine runs, whose audit file is the console's own. Raises: HostError."""

    async def base_url(self) -> str | None:
        """Where the engine's HTTP server should answer, seen from here (from its command line); ``None`` = unknown."""

    async def close(self) -> None:
        """End what goes on between two calls here; the service itself goes on."""
