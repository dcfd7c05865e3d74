"""Another engine on a unit's port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dflash_console.session import HostSession

from .conftest import STAND_IN


@contextmanager
def another_engine(port: int, budget: int) -> Iterator[None]:
    """An engine that nobody manages, with exactly the wanted settings, on the port of the one that is."""
    words = ("serve", "--port", str(port), "--speculative-ddtree-budget", str(budget))
    process = subprocess.Popen([sys.executable, "-I", str(STAND_IN), *words], stdout=subprocess.DEVNULL)
    try:
        until(lambda: listens(port))
        yield
    finally:
        process.terminate()
        process.wait()


def give_up_port(pid: int, port: int) -> None:
    os.kill(pid, signal.SIGUSR1)
    until(lambda: not listens(port))


async def main_pid(session: HostSession) -> int:
    pid = (await session.service.state()).main_pid
    assert pid is not None
    return pid


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(reached: Callable[[], bool]) -> None:
    """Wait, blocking: some of this happens between two steps of an operation."""
    deadline = time.monotonic() + 40
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)
