"""The real hosts behind the Hosts screen: what becomes of one that cannot be reached, and which ones are looked at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dflash_console import session
from dflash_console.config import EMBEDDED, load_config
from dflash_console.paths import Paths, default_paths
from dflash_console.tui.fleet import HostView, Look
from dflash_console.tui.fleet_live import LiveFleet

from .driving import until

# Nothing listens on the first port of this machine.
CONFIG = '[hosts.gone]\naddress = "root@127.0.0.1:1"\n'


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("DDTREE_HOME", str(tmp_path))
    paths = default_paths()
    paths.config_file.parent.mkdir(parents=True, exist_ok=True)
    paths.config_file.write_text(CONFIG)
    return paths


@pytest.fixture
async def fleet(paths: Paths) -> AsyncIterator[LiveFleet]:
    fleet = LiveFleet(load_config(paths.config_file).config, paths)
    yield fleet
    await fleet.close()


def view(fleet: LiveFleet, name: str) -> HostView:
    return next(view for view in fleet.views() if view.name == name)


async def test_this_machine_is_seen_and_a_host_that_nobody_answers_for_says_why(fleet: LiveFleet) -> None:
    assert view(fleet, "gone").look is Look.WAITING
    fleet.watch("")
    await until(lambda: view(fleet, EMBEDDED).look is Look.SEEN, "this machine")
    await until(lambda: view(fleet, "gone").look is Look.FAILED, "a host that fails")
    assert "127.0.0.1" in view(fleet, "gone").problem


async def test_a_host_that_the_console_stumbles_over_is_not_connecting_for_ever(
    fleet: LiveFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stumble(*_: object, **__: object) -> None:
        raise KeyError("--api-key sk-very-secret")

    monkeypatch.setattr(session, "open_session", stumble)
    fleet.watch("")
    await until(lambda: view(fleet, "gone").look is Look.FAILED, "a host that fails")
    assert "an error of the console's own (KeyError" in view(fleet, "gone").problem
    assert "sk-very-secret" not in view(fleet, "gone").problem


async def test_the_host_that_is_shown_is_not_looked_at_twice(fleet: LiveFleet, paths: Paths) -> None:
    fleet.watch(EMBEDDED)
    await until(lambda: view(fleet, "gone").look is Look.FAILED, "the other host")
    await fleet.remove("gone")
    assert [view.name for view in fleet.views()] == [EMBEDDED]
    assert "gone" not in paths.config_file.read_text()
    # Two rounds of the keeper, which goes round once a second.
    await asyncio.sleep(2.2)
    assert view(fleet, EMBEDDED).look is Look.WAITING


async def test_a_host_that_is_added_to_the_file_elsewhere_is_looked_at(fleet: LiveFleet, paths: Paths) -> None:
    fleet.watch(EMBEDDED)
    await until(lambda: view(fleet, "gone").look is Look.FAILED, "the first host")
    paths.config_file.write_text(CONFIG + '[hosts.gone-too]\naddress = "root@127.0.0.1:2"\n')
    await until(lambda: "gone-too" in {view.name for view in fleet.views()}, "the new host")
    await until(lambda: view(fleet, "gone-too").look is Look.FAILED, "that it was looked at")
