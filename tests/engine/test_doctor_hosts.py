"""The doctor on hosts that are no simple row of whole, free GPUs: a driver that hangs, GPUs that are hidden, in slices, new, or
of another maker, and programs on them that are nobody's business."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from engine_launch.doctor.backends import check_backends
from engine_launch.doctor.check import Check, Status
from engine_launch.doctor.gpu_host import judge
from engine_launch.doctor.gpus import check_gpus, check_health, check_ranks, read_gpus
from engine_launch.doctor.probe import Evidence, Output, command, nvidia_smi
from engine_launch.doctor.processes import Process, check_processes
from engine_launch.doctor.visible import check_visible, used, visible
from engine_launch.spec.sglang_checks import read_flags
from tests.engine.checkpoints import flags_for
from tests.engine.gpu_hosts import GpuHost


def gpu(index: int, free: int = 143000, mig: str = "Disabled") -> str:
    return f"{index}, NVIDIA H200, 580.159.04, 143771, {free}, 9.0, GPU-{index}5d2-a{index}, {mig}\n"


EIGHT = "".join(map(gpu, range(8)))


# A driver that hangs


def test_a_program_that_not_even_a_kill_ends_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process inside a driver that hangs is like that; here the kill is left out."""
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec sleep 15\n")
    program.chmod(0o755)
    left: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(subprocess.Popen, "kill", lambda process: left.append(process))
    began = time.monotonic()
    found = command(str(program), timeout=0.2)
    assert time.monotonic() - began < 10
    assert found.hung
    assert found.problem.endswith("nvidia-smi did not answer within 0 s")
    monkeypatch.undo()
    left[0].kill()
    left[0].wait()


def test_a_driver_that_hangs_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho asked >> {tmp_path}/asked\nexec sleep 15\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    # Long enough for the shell to come to its line on a busy machine.
    gpus, health, apps = nvidia_smi(timeout=3.0)
    assert gpus.hung
    assert (health, apps) == (gpus, gpus)
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_a_driver_from_before_slices_is_asked_without_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    refusal = "echo 'Field \"mig.mode.current\" is not a valid field to query.'; exit 2"
    program.write_text(f"#!/bin/sh\ncase \"$*\" in *mig.mode*) {refusal};; *) echo '{gpu(0).rpartition(',')[0]}';; esac\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = read_gpus(nvidia_smi()[0].text)
    assert [(one.index, one.uuid, one.sliced) for one in found] == [(0, "GPU-05d2-a0", False)]


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        ("nvidia-smi is not installed", "Install or load NVIDIA's driver"),
        ("nvidia-smi did not answer within 20 s", "The driver hangs"),
        ("nvidia-smi ended with code 18: Failed to initialize NVML: Driver/library version mismatch", "reboot the host"),
        ("nvidia-smi ended with code 255: Failed to initialize NVML: Unknown Error", "container"),
        ("nvidia-smi ended with code 4: Failed to initialize NVML: Insufficient Permissions", "user who may see"),
        ("", "reaches no GPU"),
    ],
)
def test_where_no_gpu_is_seen_the_advice_fits_what_was_said(problem: str, advice: str) -> None:
    check = check_gpus("", problem)
    assert check.status is Status.FAIL
    assert advice in check.message
    assert ("Install" in advice) == ("Install" in check.message)
    assert ".." not in check.message


def evidence(gpus: str, environment: Mapping[str, str], *, problem: str = "", kernel: str = "", amd: bool = False) -> Evidence:
    nothing = Output("", "not asked")
    told = Output(gpus, problem)
    log = Output(kernel or "nothing of note")
    return Evidence(told, nothing, Output(""), log, nothing, nothing, nothing, (), {}, "", {}, environment, amd)


def judged(found: Evidence, words: list[str] | None = None) -> dict[str, Check]:
    return {check.name: check for check in judge(found, read_flags(words or []))}


def test_an_answer_that_lists_nothing_is_shown() -> None:
    check = check_gpus("\nFailed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n", "")
    assert "nvidia-smi says Failed to initialize NVML: Driver/library version mismatch. The driver was updated" in check.message


def test_gpus_that_are_slowed_down_alike_are_one_sentence() -> None:
    rows = [f"{index}, {80 + index}, 0x0000000000000048, 0, 0\n" for index in range(7)]
    check = check_health("".join(rows) + "7, [N/A], 0x0000000000000080, 0, 0\n", "")
    assert check.status is Status.WARN
    assert check.message == (
        "GPU 0, 1, 2, 3, 4, 5, 6 are slowed down (hardware slowdown, hardware thermal slowdown, 80 to 86 °C): check cooling, "
        "power and nvidia-smi -q -d PERFORMANCE. GPU 7 is slowed down (hardware power brake): check cooling, power and "
        "nvidia-smi -q -d PERFORMANCE."
    )


def test_the_kernels_log_is_read_where_no_gpu_is_seen() -> None:
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
    found = judged(evidence("", {}, problem="nvidia-smi did not answer within 20 s", kernel=xid))
    assert found["gpu errors"].status is Status.FAIL
    assert "gpu errors" not in judged(evidence("", {}, problem="nvidia-smi is not installed"))


def test_another_makers_gpus_are_not_called_a_missing_driver() -> None:
    found = judged(evidence("", {}, problem="nvidia-smi is not installed", amd=True))
    assert found["gpus"].status is Status.WARN
    assert "AMD" in found["gpus"].message
    assert "cuda" not in found


# GPUs that a server does not get


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("3,1", [3, 1]),
        (" 3 , 1 ", [3, 1]),
        ("GPU-25d2,GPU-45d2-a4", [2, 4]),
        ("2,9,3", [2]),
        ("2,2,3", [2]),
        ("GPU-", []),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("MIG-1c3f", []),
    ],
)
def test_the_environment_says_which_gpus_are_seen(given: str | None, seen: list[int]) -> None:
    environment = {} if given is None else {"CUDA_VISIBLE_DEVICES": given}
    assert [one.index for one in visible(read_gpus(EIGHT), environment)] == seen


@pytest.mark.parametrize(
    ("given", "status", "words"),
    [
        ("3,1", Status.OK, "GPU 3, 1 of the 8 that nvidia-smi lists"),
        ("2,9,3", Status.FAIL, "9 is none of the 8"),
        ("", Status.FAIL, "hides every GPU"),
        ("-1", Status.FAIL, "hides every GPU"),
        ("MIG-1c3f", Status.WARN, "slices"),
    ],
)
def test_what_the_environment_leaves_is_said(given: str, status: Status, words: str) -> None:
    check = check_visible(read_gpus(EIGHT), {"CUDA_VISIBLE_DEVICES": given})
    assert check is not None
    assert check.status is status
    assert words in check.message


def test_gpus_seen_whole_are_not_spoken_of() -> None:
    assert check_visible(read_gpus(EIGHT), {}) is None


def test_a_gpu_cut_into_slices_is_named() -> None:
    check = check_visible(read_gpus(gpu(0) + gpu(1, mig="Enabled")), {})
    assert check is not None
    assert check.status is Status.WARN
    assert check.message.startswith("GPU 1 is cut into slices")


@pytest.mark.parametrize(
    ("flags", "on"),
    [
        ("", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("--model-path m", [0]),
        ("--tp 2", [0, 1]),
        ("--tp 2 --base-gpu-id 4", [4, 5]),
        ("--tp 2 --base-gpu-id 4 --gpu-id-step 2", [4, 6]),
        ("--tp 16 --nnodes 2", [0, 1, 2, 3, 4, 5, 6, 7]),
        ("--tp 4 --base-gpu-id 6", [6, 7]),
        ("--base-gpu-id -3", [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_the_flags_say_on_which_a_server_runs(flags: str, on: list[int]) -> None:
    assert [one.index for one in used(read_flags(flags.split()), read_gpus(EIGHT))] == on


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--tp 4 --base-gpu-id 6", "4 GPUs on this host, beginning with the one numbered 6"),
        ("--base-gpu-id 8", "beginning with the one numbered 8"),
        ("--tp 4 --gpu-id-step 4", "4 GPUs on this host"),
        ("--tp 0", "--tp-size 0: at least 1"),
        ("--tp 2 --nnodes -1", "--nnodes -1: at least 1"),
    ],
)
def test_ranks_beyond_the_last_gpu_fail(flags: str, words: str) -> None:
    check = check_ranks(read_flags(flags.split()), read_gpus(EIGHT))
    assert check is not None
    assert check.status is Status.FAIL
    assert words in check.message


def test_what_is_foretold_is_foretold_of_the_gpus_that_the_server_runs_on(tmp_path: Path) -> None:
    busy = "".join(gpu(index, free=500 if index == 0 else 143000) for index in range(8))
    words = flags_for(tmp_path, "--mem-fraction-static", "0.8", num_attention_heads=9, num_key_value_heads=3)
    others = {"CUDA_VISIBLE_DEVICES": "1,2"}
    assert " for 0 tokens" in judged(evidence(busy, {}), words)["draft pool"].message
    found = judged(evidence(busy, others), words)
    assert " for 0 tokens" not in found["draft pool"].message
    assert found["gpu memory"].status is Status.OK
    assert judged(evidence(busy, {}), [*words, "--base-gpu-id", "1"])["gpu memory"].status is Status.OK
    assert judged(evidence(busy, {}))["gpu memory"].status is Status.WARN
    ranks = judged(evidence(busy, others), [*words, "--tp", "3"])["ranks"]
    assert ranks.status is Status.FAIL
    assert "and 2 are seen (CUDA_VISIBLE_DEVICES hides 6 more)" in ranks.message


@pytest.mark.parametrize(
    ("flags", "capability", "status", "words"),
    [
        ("--attention-backend triton", "13.0", Status.OK, "triton"),
        ("--attention-backend flashinfer", "13.0", Status.OK, "flashinfer"),
        ("--attention-backend triton", "6.1", Status.FAIL, "No backend that DDTREE works with runs there"),
        ("--attention-backend fa3", "12.0", Status.FAIL, "Give triton"),
    ],
)
def test_backends_on_gpus_older_and_newer_than_the_table(flags: str, capability: str, status: Status, words: str) -> None:
    check = check_backends(read_flags(flags.split()), read_gpus(gpu(0).replace("9.0", capability)))
    assert check.status is status
    assert words in check.message
    assert ("Give triton" in check.message) == ("Give triton" in words)


# Programs on the GPUs


def test_a_worker_of_a_program_that_holds_an_engine_without_a_server_is_no_orphan() -> None:
    trainer = [
        Process(1, 0, "/sbin/init"),
        Process(50, 1, "python train.py"),
        Process(60, 50, "sglang::scheduler_TP0"),
        Process(61, 60, "sglang::scheduler_TP1"),
    ]
    apps = "60, sglang::scheduler_TP0, 100\n61, sglang::scheduler_TP1, 100\n"
    assert check_processes(apps, "", trainer).status is Status.OK
    container = [Process(1, 0, "/usr/bin/python3 train.py"), Process(60, 1, "sglang::scheduler_TP0")]
    assert check_processes("60, sglang::scheduler_TP0, 100\n", "", container).status is Status.OK
    ray = [Process(1, 0, "systemd"), Process(9, 1, "/venv/ray/raylet --x"), Process(60, 9, "ray::RolloutWorker")]
    assert check_processes("60, ray::RolloutWorker, 100\n", "", ray).status is Status.OK


@pytest.mark.parametrize(
    "above",
    [
        [Process(1, 0, "/sbin/init splash")],
        [Process(1, 0, "sleep infinity")],
        [Process(1, 0, "/sbin/init"), Process(50, 1, "/usr/lib/systemd/systemd --user")],
        [],
    ],
)
def test_a_worker_that_was_taken_over_is_an_orphan(above: list[Process]) -> None:
    parent = above[-1].pid if above else 1
    check = check_processes("60, sglang::scheduler_TP0, 100\n", "", [*above, Process(60, parent, "sglang::scheduler_TP0")])
    assert check.status is Status.WARN
    assert "kill 60" in check.message


def test_a_program_of_a_folder_named_sglang_is_no_worker() -> None:
    check = check_processes("60, python, 100\n", "", [Process(60, 1, "/opt/sglang/bin/python offline.py")])
    assert check.status is Status.OK


def test_a_key_on_a_command_line_is_not_shown() -> None:
    processes = [
        Process(60, 1, "python -m sglang.launch_server --api-key SECRET --tp 8"),
        Process(61, 60, "python -u x.py SECRET"),
    ]
    check = check_processes("60, python, 100\n61, python, 100\n", "", processes)
    assert "60 python -m sglang.launch_server" in check.message
    assert "SECRET" not in check.message


def test_control_characters_of_a_host_do_not_reach_the_terminal(tmp_path: Path) -> None:
    host = GpuHost(tmp_path, gpus="0, NVIDIA \x1b[31mH200\x07, 580.1, 143771, 143000, 9.0\n")
    words = [sys.executable, "-m", "engine_launch", "doctor", "--port", "0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=host.environment(), check=False)
    assert "1 × NVIDIA \\x1b[31mH200\\x07" in done.stdout
    assert not any(ord(character) < 32 for character in done.stdout.replace("\n", ""))
