"""GPUs in the snapshot: read beside everything else, so that a tool that hangs hides nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dflash_console.hosts.service import RunState

from .conftest import MakeUnit
from .test_watch import Watching, watching, when

__all__ = ["watching"]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder / "nvidia-smi"


def does(tool: Path, script: str) -> None:
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


async def test_gpus_are_in_the_snapshot(make_unit: MakeUnit, watching: Watching, tool: Path) -> None:
    does(tool, "echo '0, GPU-a, NVIDIA H200, 90 %, 118432 MiB, 143771 MiB, 612.40 W, 61'")
    watcher = await watching.start(make_unit())
    state = await when(watcher, lambda state: state.gpus is not None)
    assert state.gpus is not None
    assert [row.utilisation for row in state.gpus.value] == [90]
    assert "gpus" not in state.problems


async def test_a_tool_that_hangs_holds_up_nothing_and_is_said(
    make_unit: MakeUnit,
    watching: Watching,
    tool: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dflash_console.hosts.gpus.TIMEOUT_S", 3.0)
    does(tool, "sleep 300")
    unit = make_unit()
    watcher = await watching.start(unit)
    await unit.service.start()
    state = await when(watcher, lambda state: state.ready)
    assert state.service is not None
    assert state.service.value.state is RunState.RUNNING
    assert "gpus" not in state.problems, "the engine was seen ready while the tool still hung"
    state = await when(watcher, lambda state: "gpus" in state.problems)
    assert "did not end within 3 s" in state.problems["gpus"]
    assert state.gpus is None, "unknown, not none"
