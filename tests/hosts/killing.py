"""A console that is killed in a process of its own."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from dflash_console.apply import PendingOperation, pending_operations

from .sessions import paths_under

ROOT = Path(__file__).parents[2]


async def kill_console(tmp_path: Path, name: str, status: str, what: str = "restart") -> PendingOperation:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.hosts.killed_console", str(tmp_path), name, status, what, cwd=ROOT
    )
    assert await process.wait() == -signal.SIGKILL
    pending = pending_operations(paths_under(tmp_path))
    assert len(pending) == 1
    return pending[0]
