"""What the console says of this machine's engines when it is left."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dflash_console.tui.left_running import left_running

from .conftest import MakeUnit
from .sessions import paths_under, session_on, started


async def test_an_engine_that_runs_on_is_told_with_its_process_and_the_command_that_stops_it(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit()
    paths = paths_under(tmp_path)
    async with session_on(tmp_path) as session:
        assert await left_running(paths, {"engine"}, default="engine") == (), "it was never started"
        await started(session)
        pid = (await session.service.state()).main_pid
        stop = "ddtree-console stop --host embedded"
        said = f"The embedded engine (process {pid}) runs on. This stops it: {stop}"
        assert await left_running(paths, {"engine"}, default="engine") == (said,)
        assert await left_running(paths, {"engine"}, default="another") == (f"{said} --unit engine",)
        await session.service.stop()
        assert await left_running(paths, {"engine", "gone"}, default="engine") == ()


async def test_the_command_is_named_as_it_can_be_called_from_the_same_shell(
    make_unit: MakeUnit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_unit()
    monkeypatch.setattr(sys, "argv", [".venv/bin/ddtree-console"])
    async with session_on(tmp_path) as session:
        await started(session)
        monkeypatch.setenv("PATH", str(tmp_path))
        (said,) = await left_running(paths_under(tmp_path), {"engine"}, default="engine")
        assert said.endswith("This stops it: .venv/bin/ddtree-console stop --host embedded")
