"""Servers are started together, watched while they start, and ended with everything that they started."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.gpu.servers import ServerSpec, StartFailed, running

STARTS_A_CHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("child", child.pid, flush=True)
print("The server is fired up and ready to roll!", flush=True)
time.sleep(600)
"""
ENDS = "print('no GPU here', flush=True); raise SystemExit(3)"
HANGS = "import time; time.sleep(600)"


def spec(name: str, code: str) -> ServerSpec:
    return ServerSpec(name, Path("/none"), (code,))


def command(spec: ServerSpec, port: int) -> list[str]:
    return [sys.executable, "-c", spec.flags[0], str(port)]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_server_is_ended_with_its_children(tmp_path: Path) -> None:
    with running([spec("a", STARTS_A_CHILD), spec("b", STARTS_A_CHILD)], tmp_path, seconds=30, command=command) as servers:
        children = [int(server.log_text().split("child ")[1].split()[0]) for server in servers.values()]
        assert all(alive(pid) for pid in children)
        assert servers["a"].client.base != servers["b"].client.base
    until = time.monotonic() + 5
    while any(alive(pid) for pid in children) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in children)


def test_a_server_that_ends_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(StartFailed, match=r"(?s)server b ended with code 3:.*no GPU here"),
        running([spec("a", HANGS), spec("b", ENDS)], tmp_path, seconds=30, command=command),
    ):
        pass


def test_a_tolerant_start_goes_on_with_those_that_are_ready(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = [spec("a", STARTS_A_CHILD), spec("b", ENDS)]
    with running(both, tmp_path, seconds=30, command=command, tolerant=True) as servers:
        assert list(servers) == ["a"]
    assert "start failed: server b ended with code 3" in capsys.readouterr().out
    with (
        pytest.raises(StartFailed, match="no server is ready"),
        running([spec("b", ENDS)], tmp_path, seconds=30, command=command, tolerant=True),
    ):
        pass


def test_a_server_that_never_gets_ready_is_given_up(tmp_path: Path) -> None:
    with (
        pytest.raises(StartFailed, match="not ready after 1 s"),
        running([spec("a", HANGS)], tmp_path, seconds=1, command=command),
    ):
        pass


def test_flags_and_environment_reach_the_server(tmp_path: Path) -> None:
    code = "import os; print(os.environ['X'], os.environ['CUDA_VISIBLE_DEVICES'], flush=True);" + STARTS_A_CHILD
    two = ServerSpec("a", Path("/none"), (code,), {"X": "hello"}, ranks=2)
    with running([two], tmp_path, seconds=30, command=command, devices=(3, 5), first_port=31500) as servers:
        assert servers["a"].log_text().startswith("hello 3,5\n")
        assert servers["a"].client.base.endswith(":31500")
    assert "X" not in os.environ


def test_the_command_is_sglangs_with_the_flags_last(tmp_path: Path) -> None:
    words = ServerSpec("a", tmp_path, ("--x=1",)).command(31000)
    assert words[1:3] == ["-m", "sglang.launch_server"]
    assert words[-1] == "--x=1"
    assert "--attention-backend=triton" in words


def test_servers_that_start_together_meet_their_ranks_at_ports_of_their_own() -> None:
    words = [word for port in (31000, 31100) for word in spec("a", "").command(port)]
    assert [word for word in words if word.startswith("--nccl-port")] == ["--nccl-port=31050", "--nccl-port=31150"]
