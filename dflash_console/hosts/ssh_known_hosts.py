"""known_hosts files: which keys a host may show, on which line each stands, and adding one."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from .ssh_errors import HostKeyUnknown, KnownLine
from .transport import HostFileError


@dataclass
class KnownKeys:
    """What the files say about one host."""

    trusted: list[asyncssh.SSHKey] = field(default_factory=list)
    authorities: list[asyncssh.SSHKey] = field(default_factory=list)
    revoked: list[asyncssh.SSHKey] = field(default_factory=list)
    lines: list[KnownLine] = field(default_factory=list)
    """Of the host's own entries, to say what a changed key differs from."""


def find_known_keys(files: Sequence[Path], name: str) -> KnownKeys:
    """Everything about ``name`` (``gpu-a`` or ``[gpu-a]:2222``); a file that is missing or unreadable has nothing to say.

    As with ssh, a key that is known for the host without its port is trusted for it with any port, but its absence there
    is no change.
    """
    found = KnownKeys()
    bare = name[1:].rpartition("]:")[0] if name.startswith("[") else ""
    for file in files:
        for number, line in _lines(file):
            _take(found, str(file), number, line, name, exact=True)
            if bare:
                _take(found, str(file), number, line, bare, exact=False)
    return found


def trust_host_key(problem: HostKeyUnknown) -> None:
    """Add the key that a :class:`HostKeyUnknown` told of to the user's file, once the user has accepted it.

    The file is locked, gets one whole line, and keeps what it has.

    Raises:
        HostFileError: it cannot be written.
    """
    path = Path(problem.file)
    name = _hashed(problem.key.host) if problem.hashed else problem.key.host
    line = f"{name} {problem.key.line}\n".encode()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            size = os.fstat(handle).st_size
            # A last line without its newline would swallow the new one.
            torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
            os.write(handle, b"\n" * torn + line)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise HostFileError(str(path), f"the key cannot be added to {path}: {error.strerror}") from None


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        text = file.read_bytes().decode("utf-8", "replace")
    except OSError:
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line.strip()


def _take(found: KnownKeys, file: str, number: int, line: str, name: str, *, exact: bool) -> None:
    try:
        # One line at a time: the library takes a file whole or not at all, and does not tell lines.
        keys, authorities, revoked, *_ = asyncssh.import_known_hosts(line).match(name, "", None)
    except (ValueError, asyncssh.KeyImportError):
        return
    found.trusted += keys
    found.authorities += authorities
    found.revoked += revoked
    if exact:
        found.lines += [KnownLine(file, number, key.get_fingerprint()) for key in keys]


def _hashed(name: str) -> str:
    """A host's name as HashKnownHosts writes it: ``|1|salt|HMAC-SHA1(salt, name)``."""
    salt = os.urandom(20)
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
