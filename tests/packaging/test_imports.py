"""What is imported when: the core needs no screens, and the console never needs an engine.

Each case runs in an interpreter of its own, because modules that other tests imported would hide a mistake.
"""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import dflash_console

SCREENS = {"textual", "plotext"}
"""Rich is not among them: httpx imports it for a command line of its own. That none of our modules does is an import contract."""
ENGINES = {"torch", "sglang", "transformers", "numpy", "tokenizers", "gguf", "starlette", "uvicorn"}


def modules(prefix: str = "") -> list[str]:
    """All modules of the console whose name begins with ``prefix``, by the files that are there."""
    found = pkgutil.walk_packages(dflash_console.__path__, "dflash_console.")
    return [module.name for module in found if module.name.startswith(f"dflash_console.{prefix}")]


def loaded_after(names: list[str]) -> set[str]:
    """Top-level names in ``sys.modules`` after importing ``names`` in a fresh interpreter."""
    imports = "\n".join(f"import {name}" for name in names)
    code = f"{imports}\nimport sys\nprint(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


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
