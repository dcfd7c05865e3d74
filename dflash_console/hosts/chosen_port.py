"""The port of a unit whose port the console chose: taken for good when its engine is started, and the next one where it is gone.

A port that was free when the unit's file was written may be another program's by the time of the start, and two consoles that are
opened in one second both find the same one free. Only the kernel can decide between them: whoever binds a port has it. So the
supervisor binds the port itself, before there is an engine, and hands the bound socket on (``engine_launch/spec/handover.py``).
Standard library only: a start must not wait for imports. An engine that got no socket binds its port in the same way
(``engine_launch/embedded/server_bind.py``); it is written twice, because all that console and engine share does no I/O.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from .unit_file import UnitFile, UnitFileError, move_port, parse_unit_file

TRIES = 200
"""Ports that are tried, one after the other."""
LAST_PORT = 65_535
_CLAIM = "\0ddtree-console/port/{}"
"""A name in Linux's abstract space (unix(7)), which is one for all users, and is free again when its socket is closed."""


class PortTaken(Exception):
    """Somebody else has the port, or is just taking it."""


def own_port(unit: UnitFile) -> tuple[str, int] | None:
    """Host and port of a unit whose port may become another one: the console chose it, nobody has set another since, and its
    engine takes a socket from its starter. ``None`` for every other unit."""
    host, port, engine = (_value(unit.command, flag) for flag in ("--host", "--port", "--engine"))
    if unit.chosen_port is None or port != str(unit.chosen_port) or engine != "embedded":
        return None
    return host or "127.0.0.1", unit.chosen_port


def _value(command: Sequence[str], flag: str) -> str:
    """What ``command`` gives for a flag, the last time that it is given."""
    found = ""
    for at, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name == flag:
            found = value if equals else next(iter(command[at + 1 : at + 2]), "")
    return found


def reserve(host: str, port: int) -> socket.socket:
    """A socket that has ``host:port`` against every other process, and does not listen yet.

    Raises:
        PortTaken
        OSError: the address is none of this machine's, or the port is not for this user.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except UnicodeError:
        raise OSError(errno.EINVAL, f"{host} is no host name") from None
    with _claim(port):
        held = socket.socket(family, kind, protocol)
        try:
            # With the option set, connections of an earlier engine that linger in TIME_WAIT do not count as "in use". Two with it
            # could both bind the port before either clears it again, hence the claim.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(address)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        except OSError as error:
            held.close()
            if error.errno != errno.EADDRINUSE:
                raise
            raise PortTaken(error.strerror) from None
    return held


@contextlib.contextmanager
def _claim(port: int) -> Iterator[None]:
    """Be the only one of this machine's supervisors that tries this port now. Raises: PortTaken."""
    with socket.socket(socket.AF_UNIX) as claim:
        try:
            claim.bind(_CLAIM.format(port))
        except OSError:
            raise PortTaken("another supervisor is taking it") from None
        yield


def take_port(path: Path, unit: UnitFile, *, move: bool) -> tuple[UnitFile, socket.socket | None]:
    """The unit to start, and the socket for its engine; ``None`` = the engine has to bind its port itself, and says so when it
    cannot.

    Args:
        path: the unit's file, in which another port is noted before it is used.
        move: take the next port where the unit's own is another program's. Otherwise that port or none.
    """
    own = own_port(unit)
    if own is None:
        return unit, None
    host, first = own
    for port in range(first, min(first + TRIES, LAST_PORT + 1) if move else first + 1):
        try:
            held = reserve(host, port)
        except PortTaken:
            continue
        except OSError:
            return unit, None
        if port == first:
            return unit, held
        try:
            return _note(path, port), held
        except (OSError, UnitFileError):
            # Console and engine would not agree on the port: then the unit's own is said to be taken, as for any other unit.
            held.close()
            return unit, None
    return unit, None


def _note(path: Path, port: int) -> UnitFile:
    """Write the port into the unit's file, whole or not at all; the unit as it is then."""
    text = move_port(path.read_text("utf-8"), port)
    # What a symbolic link points to is replaced, and the link stays.
    target = path.resolve()
    new = target.with_name(f".{target.name}.port")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), target.stat().st_mode & 0o777)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(target)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    return parse_unit_file(text)
