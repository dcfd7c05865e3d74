"""The ports that tests give to their servers."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.ports import SIZE, Ports


@pytest.fixture
def ports() -> Iterator[Ports]:
    found = Ports()
    yield found
    found.close()


def test_two_runs_are_never_given_the_same_port(ports: Ports) -> None:
    other = Ports()
    try:
        assert not {ports.take() for _ in range(2 * SIZE)} & {other.take() for _ in range(2 * SIZE)}
    finally:
        other.close()


def test_a_port_comes_again_only_after_all_others_and_not_while_it_is_in_use(ports: Ports) -> None:
    first, second = ports.take(), ports.take()
    with socket.create_server(("127.0.0.1", second)):
        following = [ports.take() for _ in range(2 * SIZE)]
    assert first not in following[: SIZE // 2]
    assert first in following
    assert second not in following
