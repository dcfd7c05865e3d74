"""The wheel, installed in an empty environment elsewhere: the console runs without torch, the engine runs with it.

The dependencies are those of this environment, linked into the new one, so that nothing is downloaded: what is under test is
what the wheel itself brings.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).parents[2]
SITE = Path(sysconfig.get_path("purelib"))

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it."""

    bin: Path
    home: Path

    def run(self, *words: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run an installed command far from the source tree, with nothing of this environment's own settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DDTREE_", "VIRTUAL_ENV"))}
        settings = {**kept, "DDTREE_HOME": str(self.home), "PATH": f"{self.bin}:{os.environ['PATH']}", "LANG": "C.UTF-8"}
        command = [str(self.bin / words[0]), *words[1:]]
        return subprocess.run(command, cwd=self.home, env=settings, capture_output=True, text=True, timeout=timeout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(PROJECT)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = out.glob("*.whl")
    return found


def closure(names: Sequence[str]) -> set[str]:
    """The distributions that ``names`` need, themselves included, without their extras."""
    found: set[str] = set()
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for line in importlib.metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(canonicalize_name(requirement.name))
    return found


def link(distributions: set[str], folder: Path) -> None:
    """Link the files of these distributions, and of no others, into ``folder``."""
    for name in distributions:
        for file in importlib.metadata.files(name) or ():
            top = file.parts[0]
            target = folder / top
            if top != ".." and not target.exists() and (SITE / top).exists():
                target.symlink_to(SITE / top)


def install(wheel: Path, folder: Path) -> Path:
    """A new environment with the wheel and nothing else; its site-packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(folder / "bin" / "python"),
        "install",
        "--no-deps",
        "--no-index",
        "--quiet",
    ]
    subprocess.run([*pip, str(wheel)], check=True, timeout=120)
    (site,) = folder.glob("lib/python*/site-packages")
    return site


def own_requirements(wheel: Path) -> list[str]:
    """What the wheel needs without extras, by its own metadata."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    requirements = [Requirement(line.removeprefix("Requires-Dist: ")) for line in lines if line.startswith("Requires-Dist: ")]
    return [one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]


@pytest.fixture(scope="module")
def console_alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The plain install: the console and what it requires."""
    base = tmp_path_factory.mktemp("console")
    site = install(wheel, base / "env")
    link(closure(own_requirements(wheel)), site)
    (base / "home").mkdir()
    return Installed(base / "env" / "bin", base / "home")


@pytest.fixture(scope="module")
def with_engine(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The install with the embedded engine: everything of this environment is importable, after the wheel's own files."""
    base = tmp_path_factory.mktemp("engine")
    site = install(wheel, base / "env")
    # A path added by a .pth file is searched last, and the .pth files in it (this project's own editable one) are not read.
    (site / "rest.pth").write_text(f"{SITE}\n")
    (base / "home").mkdir()
    installed = Installed(base / "env" / "bin", base / "home")
    yield installed
    installed.run("ddtree-console", "stop", "--yes")


def test_the_wheel_carries_every_data_file_and_no_test(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for wanted in (
        "dflash_console/themes/",
        "dflash_console/load/suites/coding.toml",
        "dflash_console/py.typed",
        "engine_launch/py.typed",
        "engine_launch/weights/",
        "dist-info/licenses/LICENSE",
    ):
        assert any(wanted in name for name in names), f"{wanted} is not in the wheel"
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]


class TestConsoleAlone:
    def test_torch_is_not_there(self, console_alone: Installed) -> None:
        assert console_alone.run("python", "-c", "import torch").returncode != 0
        assert console_alone.run("python", "-c", "import dflash_console.cli").returncode == 0

    def test_help_and_version_answer(self, console_alone: Installed) -> None:
        assert "COMMAND" in console_alone.run("ddtree-console", "--help").stdout
        assert console_alone.run("ddtree-console", "--version").stdout.startswith("ddtree-console ")

    def test_doctor_says_what_the_embedded_engine_would_need(self, console_alone: Installed, wheel: Path) -> None:
        done = console_alone.run("ddtree-console", "doctor", "--json")
        checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
        assert checks["packages"]["status"] == "ok"
        assert checks["engine packages"]["status"] == "warning"
        assert f"pip install 'ddtree-console[embedded] @ {wheel.as_uri()}'" in checks["engine packages"]["message"]
        assert checks["state folder"]["status"] == "ok"

    def test_the_screens_open(self, console_alone: Installed) -> None:
        code = (
            "import asyncio\n"
            "from dflash_console.config import Config\n"
            "from dflash_console.paths import default_paths\n"
            "from dflash_console.tui.app import ConsoleApp\n"
            "from dflash_console.tui.run import open_link\n"
            "async def main():\n"
            "    app = ConsoleApp(lambda: open_link(Config(), default_paths(), None, None))\n"
            "    async with app.run_test(size=(120, 40)) as pilot:\n"
            "        await pilot.pause()\n"
            "        print(app.theme, len(list(app.screen.walk_children())))\n"
            "asyncio.run(main())\n"
        )
        done = console_alone.run("python", "-c", code)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout.split()[-1]) > 5


class TestWithEngine:
    def test_the_files_are_the_wheels(self, with_engine: Installed) -> None:
        code = "import dflash_console, engine_launch; print(dflash_console.__file__, engine_launch.__file__)"
        assert str(PROJECT) not in with_engine.run("python", "-c", code).stdout

    def test_the_engine_starts_answers_and_stops(self, with_engine: Installed) -> None:
        started = with_engine.run("ddtree-console", "start", "--host", "embedded", "--yes", "--json")
        assert started.returncode == 0, started.stdout + started.stderr
        assert json.loads(started.stdout)["confirmed"] is True
        answered = with_engine.run("ddtree-console", "prompt", "Count from one to ten.", "--max-tokens", "24", "--json")
        (request,) = json.loads(answered.stdout)["requests"]
        assert request["completion_tokens"] > 0
        assert request["commit_length"] >= 1.0
        assert with_engine.run("ddtree-console", "stop", "--yes").returncode == 0
