"""Paths that the system tells nothing of (no rights to a folder, a name that is too long) are said, and are no error of ours.

A name that is too long stands for both here: it is refused to every user, the administrator too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine_launch import cli
from engine_launch.cli import main
from engine_launch.commands import serve_sglang
from engine_launch.commands.checkpoint import CheckpointError, read_checkpoint
from engine_launch.doctor.caches import check_caches
from engine_launch.doctor.check import Status
from engine_launch.doctor.embedded import check_cache
from engine_launch.doctor.gpu_host import check_flags
from engine_launch.doctor.software import check_triple
from engine_launch.local_paths import is_file, is_folder, unreachable
from engine_launch.spec.flags import FlagError
from engine_launch.spec.sglang_checks import read_flags

CLOSED = "/" + "x" * 300
WHY = "File name too long"


def test_what_is_there_and_what_is_not_are_told_apart_from_what_cannot_be_looked_at(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert unreachable(Path(CLOSED)) == WHY
    assert [unreachable(path) for path in (tmp_path, tmp_path / "gone", tmp_path / "file" / "below")] == ["", "", ""]
    assert (is_folder(tmp_path), is_folder(tmp_path / "file"), is_folder(Path(CLOSED))) == (True, False, False)
    assert (is_file(tmp_path / "file"), is_file(tmp_path), is_file(Path(CLOSED))) == (True, False, False)


@pytest.mark.parametrize("flag", ["--model-path", "--speculative-draft-model-path", "--tokenizer-path"])
def test_the_launcher_and_the_doctor_say_which_folder(flag: str) -> None:
    words = [flag, CLOSED, "--port", "0"]
    with pytest.raises(FlagError, match=f"cannot be looked at by this user: {WHY}"):
        serve_sglang.check(words)
    failed = [one for one in check_flags(read_flags(words), words, sglang=True) if one.status is Status.FAIL]
    assert any(f"{flag} {CLOSED}: cannot be looked at by this user: {WHY}." in one.message for one in failed)


def test_a_name_on_a_hub_is_no_path_however_long() -> None:
    words = ["--model-path", "x" * 300, "--speculative-draft-model-path", "y" * 300, "--port", "0"]
    assert not [one for one in check_flags(read_flags(words), words, sglang=True) if WHY in one.message]


def test_the_embedded_engine_and_drafter_say_so_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--engine", "embedded", "--model-path", CLOSED]) == 2
    assert f"cannot be looked at: {WHY}" in capsys.readouterr().err
    assert main(["drafter", CLOSED]) == 2
    assert f"cannot be looked at: {WHY}" in capsys.readouterr().err
    with pytest.raises(CheckpointError):
        read_checkpoint(Path(CLOSED))


def test_a_cache_below_a_closed_folder_is_judged_by_what_can_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    check = check_caches({"HOME": "/", "TRITON_CACHE_DIR": f"{CLOSED}/triton"}, lambda path: str(path) != "/", lambda path: 1e12)
    assert check.status is Status.FAIL
    assert "TRITON_CACHE_DIR" in check.message
    monkeypatch.setenv("DDTREE_CACHE_DIR", f"{CLOSED}/cache")
    assert main(["doctor", "--port", "0"]) in (0, 1)


def test_a_cache_that_is_to_lie_in_a_file_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDTREE_CACHE_DIR", f"{__file__}/cache")
    check = check_cache()
    assert (check.status, check.message) == (Status.FAIL, f"{__file__}/cache cannot be made: {__file__} is no folder")


def test_what_the_machine_refuses_is_not_called_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(words: list[str]) -> int:
        raise OSError(28, "No space left on device", "/cache/model")

    monkeypatch.setattr(cli, "_commands", lambda: {"model": full})
    assert main(["model"]) == 1
    assert capsys.readouterr().err == "ddtree-launch: error: /cache/model: No space left on device.\n"


def test_a_torch_whose_cuda_is_no_number_is_a_warning() -> None:
    assert check_triple("580.1.1", "2.11", "x", "release 13.0, V", "").status is Status.WARN
    assert check_triple("580.95.1", "2.11", "13", "release 13.0, V", "").status is Status.OK


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "latin-1"])
def test_what_a_terminal_cannot_show_is_written_out(tmp_path: Path, encoding: str) -> None:
    words = [sys.executable, "-m", "engine_launch", "doctor", "--port", "0", "--", "--engine", "embedded", "--model-path"]
    path = f"{tmp_path}/\u0142".encode() + b"\xff"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([*words, path], capture_output=True, timeout=60, env=environment, check=False)
    assert done.stderr == b""
    shown = "\u0142" if encoding == "utf-8" else "\\u0142"
    assert f"the model file {tmp_path}/{shown}\\udcff does not exist" in done.stdout.decode(encoding)


def test_a_unit_holds_no_bytes_that_are_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unit", "--model-path", "/models/\udcff.gguf"]) == 2
    said = capsys.readouterr()
    assert "holds bytes that are no UTF-8" in said.err
    assert said.out == ""
