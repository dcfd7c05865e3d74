"""A real host over SSH with an engine as a systemd unit, and sessions on it as a console has them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_console.apply import StageEvent, StageStatus, Timeouts, apply_plan
from dflash_console.config import Config, Sampling
from dflash_console.plan import Plan
from dflash_console.session import HostSession, open_session
from engine_launch.embedded.model_files import CACHE_VARIABLE, cache_folder
from tests.ports import free_port
from tests.testhost import TestHost
from tests.testhost.fixtures import BootHost

from .sessions import paths_under
from .ssh_home import SshHome

STAND_IN = Path(__file__).with_name("stand_in_engine.py")
CACHE = cache_folder()
"""Found before a test has a home of its own."""
WAITS = Timeouts(restart=60, ready=120, prompt=60, drain=20, hot=20, link=90)
UNIT = "engine.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
DROP_IN = f"{UNIT_FILE}.d/zz-ddtree-console.conf"
TREE = ("--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "8", "--speculative-ddtree-topk", "4")


class Remote:
    """One host with the stand-in engine as ``engine.service``, and a folder per console."""

    def __init__(self, host: TestHost, folder: Path) -> None:
        self.host = host
        self.port = free_port()
        self.folder = folder
        """Of the consoles' own files."""

    def install(self, *flags: str, service: Sequence[str] = (), faults: str = "") -> None:
        """Write the unit and have it read; it is not started."""
        # The launcher's name, so that readers of command lines find the engine's words.
        self.host.exec("sh", "-c", f"mkdir -p /opt/engine && ln -sf {STAND_IN} /opt/engine/ddtree-launch")
        command = [sys.executable, "-I", "/opt/engine/ddtree-launch", "serve", *TREE, *flags]
        lines = ["[Service]", *service, f'Environment="STAND_IN_FAULTS={faults}"', "TimeoutStopSec=5"]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        self.host.install_unit(UNIT, "\n".join([*lines, f"ExecStart={' '.join(command)}", ""]))

    def write(self, path: str, text: str) -> None:
        file = self.host.path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def text(self, path: str) -> str | None:
        file = self.host.path(path)
        return file.read_text() if file.exists() else None

    def shown(self, name: str) -> str:
        return self.host.exec("systemctl", "show", "--value", "--property", name, UNIT).stdout.decode().strip()

    def edit_unit(self, old: str, new: str) -> None:
        """As somebody with an editor: systemd is not told."""
        text = self.text(UNIT_FILE)
        assert text is not None
        assert old in text
        self.write(UNIT_FILE, text.replace(old, new))

    @asynccontextmanager
    async def session(self, console: str = "desk", *, read_only: bool = False, alias: str = "gpu") -> AsyncIterator[HostSession]:
        """A console's session; consoles of different names know nothing of each other."""
        config = replace(Config(sampling=Sampling(interval_s=0.3)), read_only=read_only)
        session = await open_session(alias, UNIT, config=config, paths=paths_under(self.folder / console))
        try:
            yield session
        finally:
            await session.close()


@pytest.fixture
def remote(boot_host: BootHost, ssh_home: SshHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remote:
    monkeypatch.setenv(CACHE_VARIABLE, str(CACHE))
    host = boot_host("gpu-a")
    ssh_home.add_host("gpu", host)
    return Remote(host, tmp_path)


async def cut_off_at(session: HostSession, plan: Plan, name: str) -> None:
    """Apply, and be gone when the stage is done."""
    reached = asyncio.Event()

    def note(event: StageEvent) -> None:
        if event.stage.name == name and event.stage.status is StageStatus.DONE:
            reached.set()

    work = asyncio.create_task(apply_plan(session, plan, timeouts=WAITS, on_event=note))
    await asyncio.wait_for(reached.wait(), 120)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
