"""known_hosts files: which keys a host may show, on which line each stands, and adding one."""

from __future__ import annotations

import base64
import fcntl
import fnmatch
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

    As with ssh, a key that is known for the host without its port is trusted for a port of which no key is known, and its
    absence there is no change. Where the port has a key of its own, only that one is trusted: another server may well stand
    behind each port of a machine.
    """
    found = KnownKeys()
    bare = name[1:].rpartition("]:")[0] if name.startswith("[") else ""
    without_port: list[asyncssh.SSHKey] = []
    for file in files:
        for number, line in _lines(file):
            marker, hosts, data = _fields(line)
            exact = _names(hosts, name)
            if not exact and not (bare and _names(hosts, bare)):
                continue
            try:
                key = asyncssh.import_public_key(" ".join(data.split()[:2]))
            except (ValueError, asyncssh.KeyImportError):
                continue
            if marker == "@revoked":
                found.revoked.append(key)
            elif marker == "@cert-authority":
                found.authorities.append(key)
            elif marker:
                continue
            elif exact:
                found.trusted.append(key)
                found.lines.append(KnownLine(str(file), number, key.get_fingerprint()))
            else:
                without_port.append(key)
    if not found.trusted:
        found.trusted = without_port
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


def _fields(line: str) -> tuple[str, str, str]:
    """A line's marker (mostly empty), its hosts and its key."""
    marked = line.startswith("@")
    words = [*line.split(None, 2 if marked else 1), "", "", ""]
    return (words[0], words[1], words[2]) if marked else ("", words[0], words[1])


def _names(hosts: str, name: str) -> bool:
    """Whether the hosts of a line are or include ``name``, as ssh reads them.

    Not as the library does, to which an empty name in the list (``gpu-a,``) stands for every host, and ``10.0.0.0/8`` for a
    network: what ssh asks about would pass as known.
    """
    if hosts.startswith("|"):
        return _is_hash_of(hosts, name)
    name, matched = name.lower(), False
    for pattern in hosts.lower().split(","):
        # Only * and ? are special to ssh.
        if fnmatch.fnmatchcase(name, pattern.removeprefix("!").replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched


def _is_hash_of(hashed: str, name: str) -> bool:
    try:
        _, kind, salt, digest = hashed.split("|")
        expected = base64.b64decode(digest, validate=True)
        return kind == "1" and hmac.compare_digest(_digest(base64.b64decode(salt, validate=True), name), expected)
    except ValueError:
        return False


def _hashed(name: str) -> str:
    """A host's name as HashKnownHosts writes it: ``|1|salt|HMAC-SHA1(salt, name)``."""
    salt = os.urandom(20)
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(_digest(salt, name)).decode()}"


def _digest(salt: bytes, name: str) -> bytes:
    return hmac.new(salt, name.encode(), hashlib.sha1).digest()
