"""Whose a process on a GPU is: by its control group, and where the engine is in a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from dflash_console.hosts.gpus import Owner, read_holders
from dflash_console.hosts.transport import Completed, Transport

CLIENT = 500
SERVER = "python -m sglang.launch_server --model-path /m --tp-size 8"
DOCKER = "/system.slice/docker-" + "ab" * 32 + ".scope"
UNIT = "/system.slice/sglang.service"


class RecordedHost:
    """A host with these processes: pid → (parent, control group, words)."""

    name = "ct200"

    def __init__(self, processes: Mapping[int, tuple[int, str, str]], apps: Mapping[int, str]) -> None:
        self._processes = processes
        self._apps = apps
        self.looked_at: list[str] = []

    async def run(self, argv: Sequence[str], *, timeout: float) -> Completed:
        if argv[0] == "nvidia-smi":
            rows = (f"{pid}, {name}, GPU-a, 900 MiB\n" for pid, name in self._apps.items())
            return self._said(argv, "pid, process_name, gpu_uuid, used_gpu_memory [MiB]\n" + "".join(rows))
        script = argv[2]
        kind = script.rpartition("/")[2]
        self.looked_at.append(script)
        asked = [pid for pid in self._processes if "[0-9]" in script or f"/proc/{pid}/" in script]
        return self._said(argv, "".join(self._record(pid, kind) for pid in asked))

    def _record(self, pid: int, kind: str) -> str:
        parent, group, words = self._processes[pid]
        head = f"/proc/{pid}/{kind}:"
        if kind == "stat":
            return f"{head}{pid} (python3) S {parent} " + "0 " * 17 + "77 0 0\n"
        if kind == "cgroup":
            return f"{head}0::{group}\n"
        return "".join(f"{head}{word}\0" for word in words.split())

    @staticmethod
    def _said(argv: Sequence[str], text: str) -> Completed:
        return Completed(tuple(argv), 0, text.encode(), b"", 0.0)


def host(processes: Mapping[int, tuple[int, str, str]], apps: Mapping[int, str]) -> tuple[RecordedHost, Transport]:
    recorded = RecordedHost({1: (0, "/init.scope", "/sbin/init"), **processes}, apps)
    return recorded, cast("Transport", recorded)


@pytest.mark.parametrize("unit", ["", "sglang.service"])
async def test_ranks_in_a_container_are_not_called_strangers_where_the_unit_runs_a_containers_client(unit: str) -> None:
    processes = {
        CLIENT: (1, UNIT, f"docker run --rm --gpus all image {SERVER}"),
        900: (1, DOCKER, "sglang::scheduler_TP0"),
        901: (1, "/system.slice/train.service", "python3 train.py"),
    }
    _, transport = host(processes, {900: "sglang::scheduler_TP0", 901: "python3", 902: "[Not Found]"})
    found = await read_holders(transport, CLIENT, unit)
    assert [holder.owner for holder in found] == [Owner.CONTAINED, Owner.OTHER, Owner.UNKNOWN]
    assert [holder.rank for holder in found] == ["TP0", None, None]
    assert "docker abababababab" in found[0].words


async def test_a_container_beside_a_unit_that_runs_in_none_is_anothers() -> None:
    processes = {CLIENT: (1, UNIT, SERVER), 900: (1, DOCKER, "sglang::scheduler_TP0")}
    _, transport = host(processes, {900: "sglang::scheduler_TP0"})
    (holder,) = await read_holders(transport, CLIENT)
    assert holder.owner is Owner.OTHER


async def test_a_group_below_the_units_is_the_units_and_one_that_only_begins_alike_is_not() -> None:
    processes = {CLIENT: (1, UNIT, SERVER), 900: (1, f"{UNIT}/ranks", "a"), 901: (1, "/system.slice/sglang.service2", "b")}
    _, transport = host(processes, {900: "a", 901: "b"})
    found = await read_holders(transport, CLIENT, "sglang.service")
    assert [holder.owner for holder in found] == [Owner.OURS, Owner.OTHER]


async def test_with_the_units_group_known_only_the_processes_in_question_are_looked_at() -> None:
    processes = {CLIENT: (1, UNIT, SERVER), 900: (CLIENT, UNIT, "sglang::scheduler_TP0"), 2000: (1, "/", "other")}
    recorded, transport = host(processes, {900: "sglang::scheduler_TP0"})
    assert (await read_holders(transport, CLIENT, "sglang.service"))[0].owner is Owner.OURS
    assert not any("[0-9]" in script or "/2000/" in script for script in recorded.looked_at)
    recorded.looked_at.clear()
    assert (await read_holders(transport, CLIENT))[0].owner is Owner.OURS
    assert all("[0-9]" in script for script in recorded.looked_at)
