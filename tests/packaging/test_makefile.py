"""The set-up on machines that are not as it would like: a venv that cannot be made, packages that cannot be installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with what the set-up needs of the project, and programs of our own before those of the machine."""
    for name in ("Makefile", "requirements"):
        source = PROJECT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    (tmp_path / "bin").mkdir()
    return tmp_path


def program(project: Path, name: str, script: str) -> Path:
    file = project / "bin" / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def run(project: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    # Not the flags and the job server of the make that runs these tests.
    outside = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "IN_LANES")}
    environment: Mapping[str, str] = {**outside, "PATH": f"{project / 'bin'}:{os.environ['PATH']}", **settings}
    return subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True, timeout=60)


def test_a_half_made_environment_is_removed_and_the_way_out_is_said(project: Path) -> None:
    # As Debian's python3 without python3-venv does: the folder is there, and pip is not.
    python = program(project, "python3.11", 'case "$*" in *"-m venv"*) mkdir -p .venv/bin; touch .venv/bin/python; exit 1;; esac')
    done = run(project, "make", ".venv/bin/python", f"PYTHON={python}")
    assert done.returncode != 0
    assert "Install Python 3.11 with its venv module" in done.stderr
    assert not (project / ".venv").exists()


@pytest.mark.parametrize(("apt", "again"), [("exit 1", True), ("exit 0", False)])
def test_packages_that_cannot_be_installed_do_not_stop_the_set_up(project: Path, apt: str, again: bool) -> None:
    program(project, "dpkg-query", "exit 1")
    program(project, "id", "echo 0")
    program(project, "apt-get", apt)
    (project / ".venv" / "bin").mkdir(parents=True)
    (project / ".venv" / "bin" / "python").touch()
    done = run(project, "make", ".venv/.stamps/debian")
    assert done.returncode == 0, done.stderr
    assert "Installing Debian packages: tmux libcairo2" in done.stdout
    assert ("could not be installed: tmux libcairo2" in done.stderr) is again
    assert (project / ".venv" / ".stamps" / "debian").exists() is not again, "a failed installation is tried again next time"


def test_without_root_the_missing_packages_are_named(project: Path) -> None:
    program(project, "dpkg-query", "exit 1")
    program(project, "id", "echo 1000")
    program(project, "apt-get", "exit 9")
    done = run(project, "sh", "requirements/debian.sh", "tmux")
    assert (done.returncode, done.stdout) == (0, "")
    assert "sudo apt-get install tmux" in done.stderr


def test_nothing_is_installed_where_nothing_is_missing(project: Path) -> None:
    program(project, "dpkg-query", 'echo "install ok installed"')
    program(project, "apt-get", "exit 9")
    done = run(project, "sh", "requirements/debian.sh", "tmux", "libcairo2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_folder_of_tests_is_run_and_one_that_fails_fails_the_whole(project: Path) -> None:
    (project / ".venv" / "bin").mkdir(parents=True)
    script = 'echo "$@" >> "$SEEN"; case "$*" in *"$BROKEN"*) exit 1;; esac'
    (project / ".venv" / "bin" / "pytest").symlink_to(program(project, "pytest", script))
    folders = {f"tests/{file.parent.name}" for file in PROJECT.glob("tests/*/test_*.py")}
    for broken in ("none", "tests/tui", "tests/packaging"):
        seen = project / f"seen-{Path(broken).name}"
        done = run(project, "make", "unit", "tests", SEEN=str(seen), BROKEN=broken)
        assert (done.returncode == 0) is (broken == "none"), done.stderr
        assert folders == {word for word in seen.read_text().split() if word.startswith("tests/")}
