"""Ports for the servers of tests, which several test runs on one machine never give out twice.

A port that the kernel picks (``bind`` to 0) and that is bound for good a moment later can be taken in between: by the same call
in another run, or by an outgoing connection. So each run has a block of its own, below those that the kernel gives away
(``ip_local_port_range``, from 32768 on).
"""

from __future__ import annotations

import functools
import itertools
import socket

FIRST, LAST, SIZE = 10_000, 20_000, 200


class Ports:
    """A block of ports, held for as long as this object lives."""

    def __init__(self) -> None:
        self._guard = _first_unclaimed()
        first = int(self._guard.getsockname()[1])
        self._turns = itertools.cycle(range(first + 1, first + SIZE))

    def take(self) -> int:
        """A port that nobody listens on, and the one that was given out longest ago. Raises: OSError: there is none."""
        for port in itertools.islice(self._turns, SIZE - 1):
            if held := _bound(port):
                held.close()
                return port
        raise OSError("every port of this run's block is in use")

    def close(self) -> None:
        """Leave the block to others."""
        self._guard.close()


def _first_unclaimed() -> socket.socket:
    """A socket on the first port of a block, which says to others that the block is taken."""
    for first in range(FIRST, LAST, SIZE):
        if guard := _bound(first):
            return guard
    raise OSError(f"every block of ports from {FIRST} to {LAST} is taken")


def _bound(port: int) -> socket.socket | None:
    held = socket.socket()
    try:
        held.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        return None
    return held


@functools.cache
def _of_this_run() -> Ports:
    return Ports()


def free_port() -> int:
    """A port that nobody listens on just now, on this machine and so on every test host, and that no other run is given."""
    return _of_this_run().take()
