"""What goes on when the console is left: the embedded engines that it showed, and what stops them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from ..config import EMBEDDED
from ..hosts.local import LocalTransport
from ..hosts.process import ProcessService
from ..hosts.service import RunState
from ..hosts.transport import HostError
from ..paths import Paths

PROGRAM = "ddtree-console"


async def left_running(paths: Paths, units: Iterable[str], *, default: str) -> tuple[str, ...]:
    """A sentence for each of these units of this machine that runs now, with the command that stops it.

    They are looked at anew: an engine may have been stopped, here or elsewhere, since it was last on a screen.

    Args:
        default: the unit that is meant where none is named.
    """
    transport = LocalTransport(EMBEDDED)
    sentences = []
    try:
        for unit in sorted(units):
            try:
                state = await ProcessService(transport, paths.service(unit)).state()
            except HostError:
                continue
            if state.state not in (RunState.RUNNING, RunState.STARTING):
                continue
            process = "" if state.main_pid is None else f" (process {state.main_pid})"
            stop = f"{_program()} stop --host {EMBEDDED}" + ("" if unit == default else f" --unit {unit}")
            sentences.append(f"The embedded engine{process} runs on. This stops it: {stop}")
    finally:
        await transport.close()
    return tuple(sentences)


def _program() -> str:
    """How the console is called here: its bare name, or the path that it was called by where the shell does not find the name."""
    called = sys.argv[0]
    return PROGRAM if Path(called).name != PROGRAM or shutil.which(PROGRAM) else called
