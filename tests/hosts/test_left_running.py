"""What the console says of this machine's engines when it is left."""

from __future__ import annotations

import asyncio
import os
import pwd
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_console.config import EMBEDDED
from dflash_console.hosts.service import RunState
from dflash_console.paths import Paths
from dflash_console.tui.left_running import left_running

from .conftest import MakeUnit
from .sessions import paths_under, session_on, started

STOPS = "This stops it: "


@pytest.fixture(autouse=True)
def plain_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A shell with no variable that chooses folders, which finds the console by its name."""
    for name in ("DDTREE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", pwd.getpwuid(os.getuid()).pw_dir)
    program = tmp_path / "my bin" / "ddtree-console"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dflash_console "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "argv", [str(program)])
    return program


async def test_an_engine_that_runs_on_is_told_with_its_process_and_the_command_that_stops_it(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit()
    paths = paths_under(tmp_path)
    async with session_on(tmp_path) as session:
        assert await left_running(paths, {"engine"}) == (), "it was never started"
        await started(session)
        pid = (await session.service.state()).main_pid
        said = f"The embedded engine (process {pid}) runs on. {STOPS}ddtree-console stop --host embedded"
        assert await left_running(paths, {"engine"}) == (said,)
        make_unit(name="another")
        assert await left_running(paths, {"engine"}) == (f"{said} --unit engine",), "of two, the command asks for one"
        configure(paths, f'[hosts.{EMBEDDED}]\nunit = "engine"\n')
        assert await left_running(paths, {"engine"}) == (said,)
        await session.service.stop()
        assert await left_running(paths, {"engine", "gone"}) == ()


async def test_the_command_is_named_as_it_can_be_called_from_the_same_shell(
    make_unit: MakeUnit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_shell: Path
) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        monkeypatch.setenv("PATH", str(tmp_path))
        (said,) = await left_running(paths_under(tmp_path), {"engine"})
        assert said.endswith(f"{STOPS}'{plain_shell}' stop --host embedded"), "a blank is quoted"
        other = tmp_path / "ddtree-console"
        other.write_text("#!/bin/sh\n", encoding="utf-8")
        other.chmod(0o755)
        (said,) = await left_running(paths_under(tmp_path), {"engine"})
        assert f"'{plain_shell}' stop" in said, "another program of the same name"
        monkeypatch.chdir(plain_shell.parent.parent)
        monkeypatch.setattr(sys, "argv", [str(plain_shell.relative_to(plain_shell.parent.parent))])
        (said,) = await left_running(paths_under(tmp_path), {"engine"})
        assert f"'{plain_shell}' stop" in said, "a relative path is one of this folder alone"
        monkeypatch.setattr(sys, "argv", ["/somewhere/dflash_console/__main__.py"])
        (said,) = await left_running(paths_under(tmp_path), {"engine"})
        assert shlex.split(said.partition(STOPS)[2])[0].startswith(str(Path(sys.executable).parent))


async def test_the_command_stops_this_engine_in_a_shell_that_has_another_home(
    make_unit: MakeUnit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a home"
    home.symlink_to(tmp_path)
    monkeypatch.setenv("DDTREE_HOME", str(home))
    make_unit()
    async with session_on(home) as session:
        await started(session)
        (said,) = await left_running(paths_under(home), {"engine"})
        command = said.partition(STOPS)[2]
        assert command == f"DDTREE_HOME='{home}' ddtree-console stop --host embedded"
        monkeypatch.setenv("DDTREE_HOME", str(tmp_path / "other"))
        shell = ["sh", "-c", f"{command} --yes"]
        done = await asyncio.to_thread(subprocess.run, shell, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert (await session.service.state()).state is RunState.STOPPED


async def test_where_the_configuration_refuses_a_stop_the_sentence_says_what_has_to_go_first(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit()
    paths = paths_under(tmp_path)
    async with session_on(tmp_path) as session:
        await started(session)
        configure(paths, "read_only = true\n")
        (said,) = await left_running(paths, {"engine"})
        assert said.endswith(
            f"Once read_only = true is out of {paths.config_file}, this stops it: ddtree-console stop --host embedded"
        )


def configure(paths: Paths, text: str) -> None:
    paths.config.mkdir(parents=True, exist_ok=True)
    paths.config_file.write_text(text, encoding="utf-8")
