"""The one way in for bytes from a host: commands, files, streams, ports.

Everything that talks to a host goes through a :class:`Transport`; here are the protocol, its records and its errors.
Commands are argument lists, output is bytes, and each command run is noted in the host's :class:`CommandLog`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class HostError(Exception):
    """Something on a host did not work; the message is one sentence: what, why and what to do."""


class HostUnreachable(HostError):
    """The host does not answer at all."""


class HostTimeout(HostError):
    """A command did not end in its time and was stopped: whether it did what it was for is not known."""


class HostFileError(HostError):
    """A file on a host could not be read or written."""

    def __init__(self, path: str, message: str, *, missing: bool = False, denied: bool = False, full: bool = False) -> None:
        super().__init__(message)
        self.path = path
        self.missing = missing
        self.denied = denied
        self.full = full
        """No space left, or the file system is read-only."""


@dataclass(frozen=True)
class Completed:
    """A command that ended."""

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def ok(self) -> bool:
        return self.status == 0


@dataclass(frozen=True)
class FileStat:
    size: int
    mode: int
    uid: int
    gid: int
    mtime: float
    """Seconds since the epoch, by the host's clock."""
    inode: int


class LinkStatus(Enum):
    """Whether a host can be reached just now."""

    NEW = "not connected"
    UP = "connected"
    LOST = "lost"
    """It broke, and is tried again by itself."""
    REFUSED = "refused"
    """Trying again by itself would mend nothing: a changed host key, a refused login."""
    CLOSED = "closed"


@dataclass(frozen=True)
class Link:
    """The connection to a host, as it is."""

    status: LinkStatus
    since: float
    """When this status began, by this machine's ``time.monotonic``."""
    reason: str = ""
    """Why it is not up, in one sentence."""
    next_try: float | None = None
    """When it is tried again, by ``time.monotonic``; ``None`` = it is being tried, or will not be."""
    notices: tuple[str, ...] = ()
    """What the user's SSH configuration asks for and is not done."""


@dataclass(frozen=True)
class CommandRecord:
    """One line of the command log."""

    at: float
    argv: tuple[str, ...]
    status: int | None
    """``None`` while it runs or when it was cut off; 127 when it could not be started."""
    seconds: float
    changes: bool
    """Whether it changed something on the host."""


class CommandLog:
    """What was run on a host, newest last, bounded."""

    def __init__(self, limit: int = 500) -> None:
        self._records: deque[CommandRecord] = deque(maxlen=limit)

    def add(self, argv: Sequence[str], status: int | None, seconds: float, *, changes: bool = False) -> None:
        self._records.append(CommandRecord(time.time(), tuple(argv), status, seconds, changes))

    def records(self) -> tuple[CommandRecord, ...]:
        return tuple(self._records)


class Transport(Protocol):
    """A host's shell, files and ports. Implementations: this machine, SSH."""

    @property
    def name(self) -> str:
        """How the host is called on screens."""

    @property
    def commands(self) -> CommandLog: ...

    @property
    def link(self) -> Link:
        """Whether the host can be reached just now; asks nobody."""

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float = 30.0, changes: bool = False) -> Completed:
        """Run a command to its end. A status other than 0 is returned, not raised.

        Raises:
            HostTimeout: it did not end within ``timeout`` seconds (it is then ended).
            HostError: it could not be started.
        """

    def stream(self, argv: Sequence[str]) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Run a command and read its output as it comes; leaving the context ends it."""

    async def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """The file's bytes from ``offset``. Raises: HostFileError."""

    async def stat(self, path: str) -> FileStat:
        """Raises: HostFileError."""

    async def mtimes(self, paths: Sequence[str]) -> dict[str, float | None]:
        """When each of these files and folders was changed last, all at one look; ``None`` = it cannot be seen. For what is
        looked at every second. Raises: HostUnreachable."""

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Replace the file whole or not at all (temporary file in the same folder, fsync, rename), keeping owner and mode
        of a file that exists. Raises: HostFileError."""

    async def make_folder(self, path: str) -> None:
        """Make a folder, and those above it, for this user alone; one that exists is fine. Raises: HostFileError."""

    async def remove(self, path: str) -> None:
        """Remove a file; a missing one is fine. Raises: HostFileError."""

    async def listdir(self, path: str) -> tuple[str, ...]:
        """Names in a folder, sorted; empty when it does not exist. Raises: HostFileError."""

    def forward(self, port: int, *, address: str = "127.0.0.1") -> AbstractAsyncContextManager[str]:
        """A base URL (``http://…``) under which the host's ``address:port`` answers from here."""

    async def now(self) -> float:
        """Seconds since the epoch by the host's own clock."""

    async def close(self) -> None: ...
