"""What is imported when: the core needs no screens, and the console never needs an engine.

Each case runs in an interpreter of its own, because modules that other tests imported would hide a mistake.
"""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Sequence

import pytest

import dflash_console

SCREENS = {"textual", "plotext"}
"""Rich is not among them: httpx imports it for a command line of its own. That none of our modules does is an import contract."""
ENGINES = {"torch", "sglang", "transformers", "numpy", "tokenizers", "gguf", "starlette", "uvicorn"}


def modules(prefix: str = "") -> list[str]:
    """All modules of the console whose name begins with ``prefix``, by the files that are there."""
    found = pkgutil.walk_packages(dflash_console.__path__, "dflash_console.")
    return [module.name for module in found if module.name.startswith(f"dflash_console.{prefix}")]


def modules_after(names: Sequence[str]) -> set[str]:
    """Full names in ``sys.modules`` after importing ``names`` in a fresh interpreter."""
    imports = "\n".join(f"import {name}" for name in names)
    done = subprocess.run(
        [sys.executable, "-c", f"{imports}\nimport sys\nprint(*sys.modules)"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def loaded_after(names: list[str]) -> set[str]:
    """Top-level names in ``sys.modules`` after importing ``names`` in a fresh interpreter."""
    return {name.partition(".")[0] for name in modules_after(names)}


def test_the_core_never_imports_the_screens() -> None:
    core = [name for name in modules() if not name.startswith("dflash_console.tui")]
    assert "dflash_console.load.client" in core
    assert not SCREENS & loaded_after(core)


def test_the_console_never_imports_an_engine() -> None:
    everything = modules()
    assert any(name.startswith("dflash_console.tui.") for name in everything)
    assert not ENGINES & loaded_after(everything)


@pytest.mark.parametrize("module", ["dflash_console.__main__", "dflash_console.cli"])
def test_the_command_line_alone_imports_neither_screens_nor_network(module: str) -> None:
    assert not (SCREENS | {"httpx", "pydantic", "sqlite3"}) & loaded_after([module])


FIRST_PAINT = (
    "dflash_console.__main__",
    "dflash_console.commands.context",
    "dflash_console.commands.console",
    "dflash_console.tui.run",
)
"""What is imported by the time of the first paint."""
SLOW_TO_IMPORT = {"httpx", "sqlite3", "pydantic", "annotated_types", "asyncssh", "tomlkit", "plotext", "prometheus_client"}
READERS = {"engine_log", "start_log", "log_lines", "log_events", "metrics", "metrics_text", "server", "command", "process", "gpu"}


def test_the_first_paint_imports_nothing_that_it_does_not_show() -> None:
    """Each of these costs from a hundredth of the time to the first paint to a third of it."""
    loaded = modules_after(FIRST_PAINT)
    assert "dflash_console.tui.app" in loaded
    assert not SLOW_TO_IMPORT & loaded
    assert not {f"dflash_console.evidence.{name}" for name in READERS} & loaded
    assert not {
        name
        for name in loaded
        if name.startswith(("dflash_console.apply", "dflash_console.plan", "dflash_console.watch", "engine_launch"))
    }


def test_the_first_snapshot_imports_no_reader_of_what_it_does_not_hold_yet() -> None:
    """A service's state is shown first and alone, so what reads the engine, its log and its drafter is not waited for."""
    loaded = modules_after([*FIRST_PAINT, "dflash_console.tui.live"])
    assert "dflash_console.watch.watcher" in loaded
    assert not (SLOW_TO_IMPORT - {"sqlite3"}) & loaded
    assert not {f"dflash_console.evidence.{name}" for name in READERS} & loaded
    assert not {name for name in loaded if name.startswith(("dflash_console.apply", "dflash_console.plan", "engine_launch"))}
