"""The doctor of a GPU host, on recorded outputs: each matter is seen, and each says what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine_launch.commands.doctor import examine
from engine_launch.doctor.backends import check_backends
from engine_launch.doctor.caches import check_caches, folders
from engine_launch.doctor.check import Status
from engine_launch.doctor.gpus import check_gpu_memory, check_gpus, check_health, check_xids, read_gpus
from engine_launch.doctor.processes import Process, check_processes, read_apps
from engine_launch.doctor.software import check_names, check_plugin, check_sglang, check_triple, dialect
from engine_launch.spec.checks import EngineKind
from engine_launch.spec.sglang_checks import read_flags
from tests.engine.checkpoints import flags_for
from tests.engine.gpu_hosts import H200, NVCC, PLUGIN_HELP, STOCK_HELP, GpuHost

WORKSTATION = (
    "0, NVIDIA RTX PRO 6000 Blackwell, 580.95.05, 97887, 97000, 12.0\n"
    "1, NVIDIA RTX PRO 6000 Blackwell, 580.95.05, 97887, 1200, 12.0\n"
)
ODD = '0, NVIDIA GB10, 580.95.05, [N/A], [N/A], 12.1\n"nonsense\n3\n'


# GPUs


def test_gpus_are_counted_by_kind() -> None:
    check = check_gpus(WORKSTATION, "")
    assert check.status is Status.OK
    assert check.message == "2 × NVIDIA RTX PRO 6000 Blackwell, compute capability 12.0, driver 580.95.05"


def test_no_gpu_is_a_failure_that_says_what_to_do() -> None:
    check = check_gpus("", "nvidia-smi is not installed")
    assert check.status is Status.FAIL
    assert "driver" in check.message


def test_memory_in_use_is_named_by_gpu() -> None:
    check = check_gpu_memory(read_gpus(WORKSTATION))
    assert check.status is Status.WARN
    assert "GPU 1: 1 of 103 GB free" in check.message
    assert check_gpu_memory(read_gpus(H200)).status is Status.OK


def test_memory_that_nvidia_smi_does_not_tell_is_unknown_and_not_zero() -> None:
    check = check_gpu_memory(read_gpus(ODD))
    assert check.status is Status.WARN
    assert "does not say" in check.message


@pytest.mark.parametrize("cell", ["²", "nan", "inf", "9" * 5000, "-1"])
def test_a_cell_that_is_no_figure_is_unknown(cell: str) -> None:
    assert read_gpus(f"{cell}, NVIDIA H200, 580.159.04, 143771, 143000, 9.0\n") == ()
    (gpu,) = read_gpus(f"0, NVIDIA H200, 580.159.04, {cell}, {cell}, 9.{cell}\n")
    assert (gpu.total_mib, gpu.free_mib, gpu.capability) == (None, None, None)
    assert "does not say" in check_gpu_memory((gpu,)).message
    assert check_health(f"0, 40, 0x0000000000000000, {cell}, {cell}\n", "").status is Status.OK
    assert read_apps(f"{cell}, python3, 900\n") == {}


def test_a_tool_that_lists_gpus_and_tells_nothing_of_their_health_is_not_taken_for_a_clean_one() -> None:
    check = check_health("", "")
    assert check.status is Status.WARN
    assert check.message == "not known: nvidia-smi tells nothing of it"


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("0, 41, 0x0000000000000001, 0, 0\n", Status.OK, "no throttling"),
        ("0, 71, 0x0000000000000004, 0, 0\n", Status.OK, "no throttling"),
        ("0, 91, 0x0000000000000048, 0, 0\n", Status.WARN, "hardware slowdown, hardware thermal slowdown, 91 °C"),
        ("0, 41, 0x0000000000000000, 3, 3\n", Status.WARN, "3 uncorrected ECC errors since"),
        ("0, 41, 0x0000000000000000, 0, 2\n", Status.WARN, "2 uncorrected ECC errors in its life"),
        ("0, [N/A], [Not Supported], [N/A], [N/A]\n", Status.OK, "no throttling known, no uncorrected ECC errors known"),
    ],
)
def test_throttling_and_memory_errors(text: str, status: Status, words: str) -> None:
    check = check_health(text, "")
    assert check.status is status
    assert words in check.message


def test_an_xid_of_the_gpu_fails_and_one_of_a_program_warns() -> None:
    grave = "[  12.1] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    check = check_xids(grave, "")
    assert check.status is Status.FAIL
    assert "1 × XID 79 on 0000:3b:00: the GPU has fallen off the bus" in check.message
    program = "NVRM: Xid (PCI:0000:1a:00): 31, pid=4021, name=python3, Ch 00000008\n" * 2
    check = check_xids(program, "")
    assert check.status is Status.WARN
    assert "2 × XID 31" in check.message
    assert check_xids("usb 1-1: new device", "").status is Status.OK


def test_a_kernel_log_that_cannot_be_read_is_not_taken_for_a_clean_one() -> None:
    check = check_xids("", "dmesg ended with code 1: Operation not permitted")
    assert check.status is Status.WARN
    assert "Operation not permitted" in check.message


# Processes


def test_a_worker_whose_server_is_gone_is_an_orphan() -> None:
    apps = "2505781, sglang::scheduler_DP0_TP0_EP0, 100998\n41022, [Not Found], 69400\n"
    check = check_processes(apps, "", [Process(2505781, 1, "sglang::scheduler_DP0_TP0_EP0")])
    assert check.status is Status.WARN
    assert "kill 2505781" in check.message
    assert "not to be seen from here (another container or user): 41022" in check.message


def test_a_worker_under_its_server_is_none() -> None:
    processes = [
        Process(4021, 1, "/srv/venv/bin/python -m sglang.launch_server --tp 8"),
        Process(4100, 4021, "sglang::scheduler_TP0"),
    ]
    assert check_processes("4100, sglang::scheduler_TP0, 100000\n", "", processes).status is Status.OK
    assert check_processes("", "", processes).message == "none on any GPU"


def test_a_program_that_is_no_engine_is_left_alone() -> None:
    check = check_processes("77, python3, 500\n", "", [Process(77, 1, "python3 train.py")])
    assert check.status is Status.OK


# Software


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PLUGIN_HELP, "this project's plugin"),
        (STOCK_HELP, "stock"),
        ("--speculative-dflash-enable-ddtree --speculative-dflash-block-size", "option of DFLASH"),
        ("--speculative-ddtree-budget --speculative-dflash-block-size", "#29907"),
        ("--speculative-dflash-tree-width W", "JetSpec"),
        ("--model-path", "without DFLASH"),
    ],
)
def test_the_dialect_is_read_off_the_help_text(text: str, words: str) -> None:
    assert words in dialect(text)


def test_another_version_is_named_beside_the_tested_one() -> None:
    assert "tested with 0.5.17" in check_sglang({"sglang": "0.5.18"}, STOCK_HELP, "").message
    assert check_sglang({"sglang": "0.5.17"}, STOCK_HELP, "").message == "0.5.17: stock, DFLASH without trees"
    assert check_sglang({"sglang": "0.5.17"}, "", "ended with code 1: no CUDA").status is Status.FAIL
    assert check_sglang({}, "", "").status is Status.WARN


def test_a_plugin_that_sglang_will_not_load_is_seen() -> None:
    here, found = {"sglang": "0.5.17"}, {"ddtree": "engine_launch.sglang_plugin:register"}
    assert check_plugin(here, found, {}, PLUGIN_HELP).status is Status.OK
    assert check_plugin(here, found, {"SGLANG_PLUGINS": ""}, PLUGIN_HELP).status is Status.OK
    assert check_plugin(here, found, {"SGLANG_PLUGINS": "other, ddtree"}, PLUGIN_HELP).status is Status.OK
    assert "add ddtree" in check_plugin(here, found, {"SGLANG_PLUGINS": "other"}, PLUGIN_HELP).message
    assert "in the environment that SGLang runs in: pip install " in check_plugin(here, {}, {}, STOCK_HELP).message
    assert check_plugin(here, found, {}, STOCK_HELP).status is Status.FAIL


def test_names_that_the_plugin_misses_are_counted_and_the_first_is_told() -> None:
    assert check_names("a line of a library\n[]\n", "").status is Status.OK
    check = check_names('["sglang.srt.x.Y is not there", "sglang.srt.z does not take b"]', "")
    assert check.status is Status.FAIL
    assert "2 names" in check.message
    assert "sglang.srt.x.Y is not there" in check.message
    assert check_names("", "python ended with code 1").status is Status.WARN
    assert check_names("no JSON", "").status is Status.WARN


@pytest.mark.parametrize(
    ("driver", "cuda", "nvcc", "status", "words"),
    [
        ("580.159.04", "13.0", NVCC, Status.OK, "nvcc 13.0"),
        ("570.86.15", "13.0", NVCC, Status.FAIL, "needs driver 580.65 or newer"),
        ("570.86.15", "12.8", NVCC, Status.WARN, "toolkit of CUDA 12"),
        ("580.159.04", "13.0", "", Status.WARN, "nvcc is not installed"),
        ("580.159.04", "", NVCC, Status.FAIL, "built without CUDA"),
    ],
)
def test_driver_toolkit_and_torch_must_go_together(driver: str, cuda: str, nvcc: str, status: Status, words: str) -> None:
    check = check_triple(driver, "2.11.0", cuda, nvcc, "" if nvcc else "nvcc is not installed")
    assert check.status is status
    assert words in check.message


@pytest.mark.parametrize(
    ("flags", "gpus", "status", "words"),
    [
        ("--attention-backend fa3", WORKSTATION, Status.FAIL, "no kernels for compute capability 12.0 (it runs on 8.0 to 9.0)"),
        ("--attention-backend triton --speculative-draft-attention-backend flashinfer", WORKSTATION, Status.OK, "flashinfer"),
        ("--attention-backend fa3", H200, Status.OK, "fa3"),
        ("--decode-attention-backend trtllm_mha", H200, Status.FAIL, "10.0 to 10.3"),
        ("--attention-backend of_tomorrow", H200, Status.OK, "of_tomorrow"),
        ("", WORKSTATION, Status.OK, "flashinfer, triton"),
    ],
)
def test_attention_backends_against_the_compute_capability(flags: str, gpus: str, status: Status, words: str) -> None:
    check = check_backends(read_flags(flags.split()), read_gpus(gpus))
    assert check.status is status
    assert words in check.message


def test_a_cache_that_cannot_be_written_is_named_with_its_variable() -> None:
    environment = {"HOME": "/home/x", "TRITON_CACHE_DIR": "/read/only", "USER": "x"}
    assert str(folders(environment)["Triton"]) == "/read/only"
    assert str(folders(environment)["TVM FFI"]) == "/home/x/.cache/tvm-ffi"
    check = check_caches(
        {"HOME": "/", "TRITON_CACHE_DIR": "/proc"}, writable=lambda path: str(path) != "/proc", free=lambda _: 1e12
    )
    assert check.status is Status.FAIL
    assert "Triton's /proc" in check.message
    assert "set TRITON_CACHE_DIR" in check.message
    assert check_caches({}, writable=lambda _: True, free=lambda _: 1e9).status is Status.WARN


# The command


def doctor(host: GpuHost, *argv: str) -> tuple[int, dict[str, tuple[str, str]]]:
    command = [sys.executable, "-m", "engine_launch", "doctor", "--json", *argv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=host.environment(), check=False)
    rows = json.loads(done.stdout)["checks"]
    assert len({row["name"] for row in rows}) == len(rows)
    return done.returncode, {row["name"]: (row["status"], row["message"]) for row in rows}


def test_a_gpu_host_is_read_and_judged(tmp_path: Path) -> None:
    _, found = doctor(GpuHost(tmp_path), "--port", "0")
    assert found["sglang"] == ("ok", "0.5.17: DDTREE by this project's plugin")
    assert found["plugin"][0] == "ok"
    # What stands in SGLang's place here has none of its names.
    assert found["plugin names"][0] == "fail"
    assert "DDTREE will refuse to start" in found["plugin names"][1]
    assert found["gpus"][1].startswith("1 × NVIDIA H200")
    assert found["gpu processes"][1] == "none on any GPU"
    assert found["gpu errors"][0] == "ok"
    assert found["gpu health"][0] == "ok"
    assert found["jit caches"][0] in ("ok", "warn")
    # This environment's torch is the CPU's, which a GPU host must not have.
    assert found["cuda"][0] == "fail"


def test_the_flags_after_two_dashes_are_examined(tmp_path: Path) -> None:
    code, found = doctor(GpuHost(tmp_path / "host"), "--port", "0", "--", *flags_for(tmp_path, "--page-size", "16"))
    assert code == 1
    assert found["page size"] == ("fail", "16: DDTREE needs --page-size 1")
    assert found["backends"] == ("ok", "--attention-backend triton")


EMBEDDED_ONLY = {"packages", "cpu", "memory", "cache", "model", "drafter"}


def test_flags_for_sglang_bring_no_word_of_what_only_the_embedded_engine_needs(tmp_path: Path) -> None:
    host = GpuHost(tmp_path / "host")
    _, found = doctor(host, "--port", "0", "--", "--engine", "sglang", *flags_for(tmp_path))
    assert not EMBEDDED_ONLY & set(found)
    assert {"python", "port", "sglang", "flags", "flags drafter"} <= set(found)
    _, either = doctor(host, "--port", "0")
    assert set(either) >= EMBEDDED_ONLY


@pytest.mark.parametrize(("sglang", "gpu", "left_out"), [(True, True, True), (True, False, False), (False, True, False)])
def test_flags_without_an_engine_are_for_the_one_that_would_serve_them(
    monkeypatch: pytest.MonkeyPatch, sglang: bool, gpu: bool, left_out: bool
) -> None:
    for module in ("serve", "doctor"):
        monkeypatch.setattr(f"engine_launch.commands.{module}.has_sglang", lambda: sglang)
        monkeypatch.setattr(f"engine_launch.commands.{module}.has_gpu", lambda: gpu)
    monkeypatch.setattr("engine_launch.commands.doctor.check_gpu_host", lambda flags: [])
    flags = {"--model-path": "/models/target"}
    names = {one.name for one in examine(flags, EngineKind.AUTO, "127.0.0.1", 0)}
    assert names.isdisjoint(EMBEDDED_ONLY) is left_out


def test_an_engine_that_there_is_not_is_wrong_use() -> None:
    command = [sys.executable, "-m", "engine_launch", "doctor", "--", "--engine", "vllm"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "vllm" in done.stderr


def test_programs_that_fail_are_told_and_not_raised(tmp_path: Path) -> None:
    host = GpuHost(tmp_path, help_text="")
    host.environment()
    for name in ("nvidia-smi", "nvcc", "journalctl"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho broken >&2; exit 9\n")

    class Broken(GpuHost):
        def environment(self) -> dict[str, str]:
            import os

            programs = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
            return {**os.environ, "PATH": programs, "PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path)}

    code, found = doctor(Broken(tmp_path), "--port", "0")
    assert code == 1
    assert found["gpus"][0] == "fail"
    assert "broken" in found["gpus"][1]
