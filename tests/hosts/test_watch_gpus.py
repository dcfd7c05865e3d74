"""GPUs in the snapshot: read beside everything else, so that a tool that hangs hides nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dflash_console.hosts.gpus import Owner
from dflash_console.hosts.service import RunState
from tests.gpu_recordings import text

from .conftest import MakeUnit
from .watching import Watching, watching, when

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
    monkeypatch.setattr("dflash_console.hosts.gpus.TIMEOUT_S", 600.0)
    seen = tool.with_name("seen")
    # The first time it hangs for as long as the engine needs to be seen, on any machine.
    does(tool, f"[ -e {seen} ] && exec sleep 300\nuntil [ -e {seen} ]; do sleep 0.05; done; exit 1")
    unit = make_unit()
    watcher = await watching.start(unit)
    await unit.service.start()
    state = await when(watcher, lambda state: state.ready)
    assert state.service is not None
    assert state.service.value.state is RunState.RUNNING
    assert "gpus" not in state.problems, "the engine was seen ready while the tool still hung"
    monkeypatch.setattr("dflash_console.hosts.gpus.TIMEOUT_S", 1.0)
    seen.touch()
    state = await when(watcher, lambda state: "did not end within 1 s" in state.problems.get("gpus", ""))
    assert state.gpus is None, "unknown, not none"


def lists(tool: Path, *apps: str) -> None:
    """Eight GPUs, and what runs on them."""
    told = "\n".join(("pid, process_name, gpu_uuid, used_gpu_memory [MiB]", *apps))
    rows = text("eight-load.csv")
    does(tool, f"case \"$1\" in\n*compute-apps*) cat <<'END'\n{told}\nEND\n;;\n*) cat <<'END'\n{rows}END\n;;\nesac")


async def test_who_holds_gpu_memory_is_read_when_the_engine_is_ready_and_forgotten_with_its_start(
    make_unit: MakeUnit, watching: Watching, tool: Path
) -> None:
    lists(tool)
    unit = make_unit()
    watcher = await watching.start(unit)
    state = await when(watcher, lambda state: state.gpus is not None)
    assert state.gpus is not None
    assert len(state.gpus.value) == 8
    assert state.gpu_holders is None, "nobody's memory is judged before there is a server"
    await unit.service.start()
    state = await when(watcher, lambda state: state.service is not None and state.service.value.main_pid is not None)
    assert state.service is not None
    lists(tool, f"{state.service.value.main_pid}, sglang::scheduler_TP0, {uuid(0)}, 900 MiB", f"1, init, {uuid(7)}, 5 MiB")
    state = await when(watcher, lambda state: state.gpu_holders is not None and len(state.gpu_holders.value) == 2)
    assert state.gpu_holders is not None
    assert [(holder.owner, holder.rank) for holder in state.gpu_holders.value] == [(Owner.OURS, "TP0"), (Owner.OTHER, None)]
    await unit.service.stop(timeout=10)
    state = await when(watcher, lambda state: state.service is not None and state.service.value.state is RunState.STOPPED)
    assert state.gpu_holders is None


async def test_one_look_waits_for_the_gpus_but_not_for_a_tool_that_hangs(
    make_unit: MakeUnit, watching: Watching, tool: Path
) -> None:
    lists(tool)
    watcher = await watching.start(make_unit())
    state = await watcher.gpus_settled(30.0)
    assert state.gpus is not None
    does(tool, "sleep 300")
    other = await watching.start(make_unit(name="other"))
    begun = time.monotonic()
    state = await other.gpus_settled(0.5)
    assert state.gpus is None
    assert time.monotonic() - begun < 5
    assert state.problems["gpus"].startswith("nvidia-smi did not answer within 0.5 s")


async def test_the_gpus_that_were_read_stay_while_the_question_about_their_processes_hangs(
    make_unit: MakeUnit, watching: Watching, tool: Path
) -> None:
    does(tool, f"case \"$1\" in\n*compute-apps*) sleep 300;;\n*) cat <<'END'\n{text('eight-load.csv')}END\n;;\nesac")
    unit = make_unit()
    await unit.service.start()
    watcher = await watching.start(unit)
    await when(watcher, lambda state: state.been_ready)
    other = await watching.start(unit)
    await when(other, lambda state: state.been_ready and state.gpus is not None)
    state = await other.gpus_settled(1.0)
    assert state.gpus is not None
    assert len(state.gpus.value) == 8
    assert "gpus" not in state.problems
    assert state.problems["gpu processes"].startswith("nvidia-smi did not say which processes hold GPU memory within 1 s")


async def test_a_server_whose_driver_lists_no_gpu_any_more_is_told_so(
    make_unit: MakeUnit, watching: Watching, tool: Path
) -> None:
    does(tool, "echo 'No devices were found'")
    watcher = await watching.start(make_unit())
    state = await watcher.gpus_settled(30.0)
    assert (state.gpus, state.problems["gpus"]) == (None, "nvidia-smi lists no GPU")


def uuid(index: int) -> str:
    return f"GPU-aaaaaaaa-0000-0000-0000-00000000000{index}"
