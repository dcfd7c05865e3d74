"""A unit folder with the stand-in engine in it, and services that are always stopped at the end."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from dflash_console.hosts.local import LocalTransport
from dflash_console.hosts.process import ProcessService
from dflash_console.hosts.transport import HostError
from dflash_console.hosts.unit_file import new_unit_file
from tests.ports import free_port
from tests.testhost.fixtures import boot_host, testhost

from .ssh_home import ssh_home
from .systemd_rig import rig

__all__ = ["boot_host", "rig", "ssh_home", "testhost"]

STAND_IN = Path(__file__).with_name("stand_in_engine.py")


@dataclass(frozen=True)
class Unit:
    """A unit folder, and the service on it."""

    folder: Path
    service: ProcessService
    transport: LocalTransport
    port: int

    @property
    def file(self) -> Path:
        return self.folder / "service.toml"


MakeUnit = Callable[..., Unit]


@pytest.fixture
async def make_unit(tmp_path: Path) -> AsyncIterator[MakeUnit]:
    """``make_unit(*words, faults="16=exit")`` writes a unit for the stand-in engine."""
    made: list[Unit] = []
    # The launcher's name, so that readers of command lines find the engine's words as they do in a real one.
    launcher = tmp_path / "ddtree-launch"
    launcher.symlink_to(STAND_IN)

    def make(*words: str, faults: str = "", name: str = "engine", environment: Mapping[str, str] | None = None) -> Unit:
        folder = tmp_path / "state" / "services" / name
        folder.mkdir(parents=True)
        port = free_port()
        command = [sys.executable, "-I", str(launcher), "serve", "--speculative-algorithm", "DDTREE", "--port", str(port), *words]
        variables = {**(environment or {}), **({"STAND_IN_FAULTS": faults} if faults else {})}
        text = new_unit_file(command, description="stand-in", environment=variables)
        (folder / "service.toml").write_text(text.replace("stop_timeout_s = 10.0", "stop_timeout_s = 1.0"))
        transport = LocalTransport()
        unit = Unit(folder, ProcessService(transport, folder), transport, port)
        made.append(unit)
        return unit

    yield make
    for unit in made:
        try:
            await unit.service.stop(timeout=10)
        except HostError as error:
            pytest.fail(f"left running: {error}")
