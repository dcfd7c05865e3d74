"""Reserving the address to serve on."""

from __future__ import annotations

import errno
import os
import socket

from engine_launch.spec.handover import LISTEN_FD_VARIABLE


class StartError(Exception):
    """The server cannot start; the message is one sentence for stderr."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that holds ``host:port`` against every other process and does not listen yet.

    Raises:
        StartError: the address is in use, not of this machine, or not allowed.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except socket.gaierror as error:
        raise StartError(f"--host {host} is not an address of this machine: {error.strerror}.") from None
    except UnicodeError:
        raise StartError(f"--host {host} is no host name: a part of it is empty or too long.") from None
    reserved = socket.socket(family, kind, protocol)
    try:
        # With the option set, connections of an earlier server that linger in TIME_WAIT do not count as "in use"; clearing
        # it after the bind keeps a second server from binding the same port while this one still loads.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(address)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError as error:
        reserved.close()
        if error.errno == errno.EADDRINUSE:
            raise StartError(
                f"Port {port} on {host} is in use by another process; stop it, or choose another --port (0 takes a free one)."
            ) from None
        raise StartError(f"{host}:{port} cannot be listened on: {os.strerror(error.errno or 0)}.") from None
    return reserved


def inherited(host: str, port: int) -> socket.socket | None:
    """The socket for ``host:port`` that whoever started this process has bound for it; ``None`` when there is none.

    What else stands in the variable (another file, another address) is no such socket, and is left alone.
    """
    number = os.environ.pop(LISTEN_FD_VARIABLE, "")
    if not number.isascii() or not number.isdigit():
        return None
    try:
        held = socket.socket(fileno=int(number))
    except OSError:
        return None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        same = (held.family, held.type, held.getsockname()[:2]) == (found[0], found[1], found[4][:2])
    except OSError:
        same = False
    if not same:
        held.detach()
        return None
    held.set_inheritable(False)
    return held


def allow_listening(reserved: socket.socket) -> None:
    """Prepare a socket from :func:`bind` or :func:`inherited` for ``listen``, which looks for lingering connections once more."""
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
