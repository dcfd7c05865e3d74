"""The fixtures ``testhost`` and ``boot_host``; a ``conftest.py`` imports them from here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest

from .host import TestHost, missing_requirements


class BootHost(Protocol):
    def __call__(self, name: str = "gpu-a", *, port: int = 0, sshd: str = "") -> TestHost: ...


def _require_hosts() -> None:
    if reason := missing_requirements():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def testhost() -> Iterator[TestHost]:
    """A host that all tests of the run share. Leave it as you found it."""
    _require_hosts()
    with TestHost.boot("shared") as host:
        yield host


@pytest.fixture
def boot_host() -> Iterator[BootHost]:
    """Boots hosts for one test, which may do with them what it likes."""
    _require_hosts()
    hosts: list[TestHost] = []

    def boot(name: str = "gpu-a", *, port: int = 0, sshd: str = "") -> TestHost:
        hosts.append(TestHost.boot(name, port=port, sshd=sshd))
        return hosts[-1]

    yield boot
    for host in hosts:
        host.down()
