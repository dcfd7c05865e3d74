"""The script that replaces a file on a host, run by this machine's own shell."""

from __future__ import annotations

import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from dflash_console.hosts.replace_file import replace_command


def replace(path: Path, text: bytes, *, size: int | None = None, folder_mode: int | None = None) -> int:
    argv = replace_command(str(path), len(text) if size is None else size, 0o640, folder_mode=folder_mode)
    return subprocess.run(argv, input=text, stderr=subprocess.DEVNULL, check=False).returncode


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_gets_its_mode_and_one_that_exists_keeps_its_own(tmp_path: Path) -> None:
    file = tmp_path / "a b"
    assert replace(file, b"one") == 0
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"one", 0o640)
    file.chmod(0o600)
    assert replace(file, b"two") == 0
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"two", 0o600)
    assert names(tmp_path) == ["a b"]


@pytest.mark.parametrize("arrived", [b"", b"[Serv"])
def test_a_text_that_was_cut_short_on_the_way_replaces_nothing(arrived: bytes, tmp_path: Path) -> None:
    file = tmp_path / "unit.conf"
    file.write_bytes(b"old")
    assert replace(file, arrived, size=9) != 0
    assert file.read_bytes() == b"old"
    assert names(tmp_path) == ["unit.conf"]


def test_told_to_end_in_the_middle_it_leaves_no_file_behind(tmp_path: Path) -> None:
    file = tmp_path / "unit.conf"
    writing = subprocess.Popen(replace_command(str(file), 9, 0o644), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert writing.stdin is not None
    writing.stdin.write(b"[Serv")
    writing.stdin.flush()
    while not names(tmp_path):
        time.sleep(0.01)
    writing.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    writing.stdin.close()
    assert writing.wait(10) != 0
    assert names(tmp_path) == []


def test_a_folder_is_made_only_when_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "e.service.d/zz.conf"
    assert replace(file, b"one") != 0
    assert replace(file, b"one", folder_mode=0o755) == 0
    assert (file.read_bytes(), stat.S_IMODE(file.parent.stat().st_mode)) == (b"one", 0o755)


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real/file")
    assert replace(tmp_path / "link", b"new") == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real/file").read_bytes() == b"new"
    assert names(tmp_path / "real") == ["file"]
