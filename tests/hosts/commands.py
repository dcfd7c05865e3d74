"""Commands as a script runs them, and what they ended with."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from dflash_console import cli


@dataclass(frozen=True)
class Ended:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, object]:
        """Its JSON. Fails when it printed anything else."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value


class Console(Protocol):
    async def __call__(self, *words: str) -> Ended: ...


@pytest.fixture
def environment(tmp_path: Path) -> Mapping[str, str]:
    """For commands that run as programs of their own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DDTREE_")}
    return {**kept, "DDTREE_HOME": str(tmp_path), "LANG": "C.UTF-8", "NO_COLOR": "1"}


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Console:
    """Runs a command as ``ddtree-console`` would, in this process: starting Python anew for each costs more than the command."""
    monkeypatch.setenv("DDTREE_HOME", str(tmp_path))

    async def run(*words: str) -> Ended:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            # A thread of its own, because a command runs an event loop of its own.
            code = await asyncio.to_thread(cli.main, words)
        assert "Traceback" not in out.getvalue() + err.getvalue(), err.getvalue()
        assert "internal error" not in err.getvalue()
        return Ended(code, out.getvalue(), err.getvalue())

    return run
