"""A host with eight GPUs and a server of eight ranks, over SSH: one rank ends, one GPU falls off the bus, and it is noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dflash_console.hosts.gpus import Owner, read_holders
from tests.ports import free_port
from tests.testhost import TestHost
from tests.testhost.fixtures import BootHost

from .eight_ranks import UNIT, install_server, install_tool
from .ssh_home import SshHome, over_ssh

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def eight(boot_host: BootHost, ssh_home: SshHome) -> TestHost:
    host = boot_host("gpu-a")
    ssh_home.add_host("gpu", host)
    install_server(host, free_port())
    install_tool(host, "eight-load")
    host.exec("systemctl", "start", UNIT)
    return host


def console(tmp_path: Path, *words: str) -> tuple[int, dict[str, object]]:
    environment = {**os.environ, "DDTREE_HOME": str(tmp_path / "console")}
    command = [sys.executable, "-m", "dflash_console", words[0], "--json", "--host", "gpu", *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    return done.returncode, json.loads(done.stdout)


def end_rank(host: TestHost, rank: int) -> None:
    (pid,) = host.exec("pgrep", "-f", f"^sglang::scheduler_TP{rank} ").stdout.split()
    host.exec("kill", pid.decode())


async def test_a_rank_that_ends_is_noticed_by_status_drift_and_doctor(eight: TestHost, tmp_path: Path) -> None:
    code, found = console(tmp_path, "status")
    assert code == 0
    assert found["ranks"] == {"asked": 8, "seen": 8, "missing": []}
    assert found["gpu_faults"] == []
    assert found["drift"]["count"] == 0  # type: ignore[index]
    code, _ = console(tmp_path, "drift")
    assert code == 0

    end_rank(eight, 5)
    _, found = console(tmp_path, "status")
    assert found["ranks"] == {"asked": 8, "seen": 7, "missing": ["TP5"]}
    code, found = console(tmp_path, "drift")
    assert code == 3
    assert any("7 of 8 ranks" in str(row["message"]) for row in found["items"])  # type: ignore[attr-defined]
    code, found = console(tmp_path, "doctor")
    (check,) = [row for row in found["checks"] if row["name"] == "GPUs"]  # type: ignore[attr-defined]
    assert check["status"] == "failed"
    assert "TP5 does not" in check["message"]


async def test_a_gpu_that_cannot_be_reached_stays_one_of_eight(eight: TestHost, tmp_path: Path) -> None:
    install_tool(eight, "seven-and-a-line", hidden=(5,))
    _, found = console(tmp_path, "status")
    gpus = found["gpus"]
    assert isinstance(gpus, list)
    assert [gpu["index"] for gpu in gpus] == list(range(8))
    assert [gpu["index"] for gpu in gpus if not gpu["reachable"]] == [5]


async def test_a_look_at_a_few_processes_tells_the_same_as_one_at_all(eight: TestHost, tmp_path: Path) -> None:
    eight.exec("systemd-run", "--unit", "train", "bash", "-c", "exec -a python3-train sleep 1000")
    pid = int(eight.exec("systemctl", "show", "--value", "--property", "MainPID", UNIT).stdout)
    async with over_ssh("gpu") as transport:
        few = await read_holders(transport, pid, UNIT)
        every = await read_holders(transport, pid)
    assert few == every
    assert [holder.owner for holder in few] == [Owner.OURS] * 8 + [Owner.OTHER]
    assert "train.service" in few[-1].words
    assert [holder.rank for holder in few[:8]] == [f"TP{number}" for number in range(8)]
