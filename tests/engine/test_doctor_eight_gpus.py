"""The doctor of a host with eight GPUs, one of which is bad: the others count, and it is named. Rows are derived from a recorded
one of a single H200."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from engine_launch.doctor.check import Status
from engine_launch.doctor.gpus import check_gpu_memory, check_gpus, check_health, check_ranks, read_gpus
from engine_launch.spec.sglang_checks import read_flags
from tests.engine.gpu_hosts import GpuHost

LOST = "Unable to determine the device handle for GPU5: 0000:9B:00.0: Unknown Error\n"


def gpu(index: int, free: str = "143000") -> str:
    return f"{index}, NVIDIA H200, 580.159.04, 143771, {free}, 9.0\n"


def health(index: int, reasons: str = "0x0000000000000000", volatile: str = "0", temperature: str = "61") -> str:
    return f"{index}, {temperature}, {reasons}, {volatile}, 0\n"


EIGHT = "".join(map(gpu, range(8)))
SEVEN_AND_A_LINE = "".join(gpu(index) for index in range(8) if index != 5) + LOST


def test_eight_gpus_of_one_kind_are_one_short_line() -> None:
    check = check_gpus(EIGHT, "")
    assert (check.status, check.message) == (
        Status.OK,
        "8 × NVIDIA H200, compute capability 9.0, driver 580.159.04",
    )


def test_one_lost_gpu_is_named_and_the_seven_others_are_still_there() -> None:
    check = check_gpus(SEVEN_AND_A_LINE, "nvidia-smi ended with code 15")
    assert check.status is Status.FAIL
    assert check.message.startswith("7 × NVIDIA H200")
    assert "not to be reached: GPU 5 on 0000:9B:00.0: Unknown Error" in check.message
    assert "reboot" in check.message


def test_a_lost_gpu_that_hides_all_others_is_not_taken_for_a_missing_driver() -> None:
    check = check_gpus(
        "Unable to determine the device handle for GPU0000:9B:00.0: GPU is lost.\n", "nvidia-smi ended with code 15"
    )
    assert check.status is Status.FAIL
    assert "the GPU on 0000:9B:00.0: GPU is lost" in check.message
    assert "Install" not in check.message


def test_a_bad_exit_status_beside_good_rows_is_said() -> None:
    check = check_gpus(EIGHT, "nvidia-smi ended with code 14")
    assert check.status is Status.WARN
    assert "code 14" in check.message


@pytest.mark.parametrize(
    ("flags", "gpus", "status", "words"),
    [
        ("--tp-size 8", EIGHT, Status.OK, "8 of 8 GPUs"),
        ("--tp 8", SEVEN_AND_A_LINE, Status.FAIL, "ask for 8 GPUs on this host, and 7 are listed"),
        ("--tp-size 4 --dp-size 2", SEVEN_AND_A_LINE, Status.FAIL, "ask for 8 GPUs"),
        ("--tp-size 8 --dp-size 8 --enable-dp-attention", EIGHT, Status.OK, "8 of 8"),
        ("--tp-size 16 --nnodes 2", EIGHT, Status.OK, "8 of 8"),
    ],
)
def test_the_flags_ranks_must_have_a_gpu_each(flags: str, gpus: str, status: Status, words: str) -> None:
    check = check_ranks(read_flags(flags.split()), read_gpus(gpus))
    assert check is not None
    assert check.status is status
    assert words in check.message


def test_a_server_with_one_rank_is_not_spoken_of() -> None:
    assert check_ranks(read_flags(["--page-size", "1"]), read_gpus(EIGHT)) is None


def test_memory_that_one_gpu_does_not_tell_hides_no_others() -> None:
    rows = gpu(0) + gpu(1, "[N/A]") + gpu(2, "9000") + gpu(3, "9001") + gpu(4, "70000")
    check = check_gpu_memory(read_gpus(rows))
    assert check.status is Status.WARN
    assert "GPU 2, 3: 9 of 151 GB free each, GPU 4: 73 of 151 GB free, not known of GPU 1" in check.message


def test_eight_gpus_in_use_alike_are_one_part_of_the_sentence() -> None:
    check = check_gpu_memory(read_gpus("".join(gpu(index, str(9000 + index)) for index in range(8))))
    assert check.message.count("GB free") == 1
    assert "GPU 0, 1, 2, 3, 4, 5, 6, 7: 9 of 151 GB free each" in check.message


def test_each_gpus_health_is_its_own_and_a_line_among_the_rows_hides_none() -> None:
    rows = [health(index) for index in range(8) if index != 5]
    rows[1] = health(1, "0x0000000000000048", temperature="94")
    rows[2] = health(2, volatile="3")
    check = check_health("".join([*rows[:4], LOST, *rows[4:]]), "nvidia-smi ended with code 15")
    assert check.status is Status.WARN
    assert "GPU 1 is slowed down (hardware slowdown, hardware thermal slowdown, 94 °C)" in check.message
    assert "GPU 2 has 3 uncorrected ECC errors" in check.message
    assert check.message.count("GPU ") == 2


@pytest.mark.parametrize(
    ("cell", "words"), [("[GPU requires reset]", "nvidia-smi --gpu-reset -i 4"), ("[GPU is lost]", "reboot")]
)
def test_a_gpu_in_need_of_a_reset_or_lost_fails(cell: str, words: str) -> None:
    rows = "".join(health(index) if index != 4 else f"4, {cell}, {cell}, {cell}, {cell}\n" for index in range(8))
    check = check_health(rows, "")
    assert check.status is Status.FAIL
    assert words in check.message


def test_throttling_that_some_gpus_do_not_tell_is_not_called_none() -> None:
    check = check_health(health(0) + health(1, "[Not Supported]"), "")
    assert check.status is Status.WARN
    assert "not known of GPU 1" in check.message


def test_eight_ranks_under_their_server_are_read_on_a_whole_host(tmp_path: Path) -> None:
    host = GpuHost(tmp_path, gpus=SEVEN_AND_A_LINE, health="".join(health(index) for index in range(7)))
    command = [sys.executable, "-m", "engine_launch", "doctor", "--json", "--port", "0", "--", "--tp-size", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=host.environment(), check=False)
    found = {row["name"]: (row["status"], row["message"]) for row in json.loads(done.stdout)["checks"]}
    assert done.returncode == 1
    assert found["gpus"][0] == "fail"
    assert "GPU 5 on 0000:9B:00.0" in found["gpus"][1]
    assert found["ranks"][0] == "fail"
    assert found["gpu memory"] == ("ok", "free on every GPU; the least is 150 GB")


def test_on_a_terminal_long_messages_go_on_under_themselves(tmp_path: Path) -> None:
    reasons = ("0x08", "0x20", "0x40", "0x80", "0x28", "0x48", "0x60", "0xc0")
    rows = "".join(health(index, reason, temperature="94") for index, reason in enumerate(reasons))
    host = GpuHost(tmp_path, gpus=EIGHT, health=rows)
    main, side = pty.openpty()
    environment = {**host.environment(), "COLUMNS": "80"}
    command = [sys.executable, "-m", "engine_launch", "doctor", "--port", "0", "--", "--tp-size", "8"]
    process = subprocess.Popen(command, stdout=side, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    os.close(side)
    said = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:
            break
        if not part:
            break
        said += part
    process.wait(timeout=120)
    os.close(main)
    lines = said.decode().replace("\r", "").splitlines()
    assert max(map(len, lines)) <= 80
    edge = next(line.index("8 × NVIDIA") for line in lines if line.startswith("ok    gpus"))
    assert all(line[edge] != " " and line[edge - 1] == " " for line in lines)
    assert sum("is slowed" in line or "slowed down" in line for line in lines) >= 4
