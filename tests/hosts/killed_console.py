"""A console that is killed at a given stage: ``killed_console.py FOLDER STAGE STATUS WAY``.

The way is ``hot``, ``persist`` (hot, and written down), ``restart``, ``stop``, or ``rollback``: a restart that fails, killed at a
stage of its own roll-back.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from dflash_console.apply import StageEvent, apply_plan, stop_service
from dflash_console.paths import Paths
from dflash_console.plan import Change, Mode
from dflash_console.session import open_session


async def main(folder: Path, name: str, status: str, what: str) -> None:
    session = await open_session(unit="engine", paths=Paths(folder / "config", folder / "state", folder / "cache"))

    def kill(event: StageEvent) -> None:
        if (event.stage.name, event.stage.status.value, event.rolling_back) == (name, status, what == "rollback"):
            os.kill(os.getpid(), signal.SIGKILL)

    if what == "stop":
        await stop_service(session, on_event=kill)
        return
    mode = {"rollback": Mode.RESTART, "persist": Mode.HOT}.get(what) or Mode(what)
    if mode is Mode.HOT:
        await session.watcher.settled()
    plan = await session.plan(Change({"tree_budget": 16}, mode, persist=what == "persist"))
    await apply_plan(session, plan, rollback_on_failure=what == "rollback", on_event=kill)
    await session.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]))
