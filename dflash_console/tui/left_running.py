"""What goes on when the console is left: the embedded engines that it showed, and what stops them."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from ..config import EMBEDDED, load_config
from ..hosts.local import LocalTransport
from ..hosts.process import ProcessService
from ..hosts.service import RunState
from ..hosts.transport import HostError
from ..paths import Paths, chosen_by
from ..session import list_units

PROGRAM = "ddtree-console"


async def left_running(paths: Paths, units: Iterable[str]) -> tuple[str, ...]:
    """A sentence for each of these units of this machine that runs now, with the command that stops it.

    They are looked at anew: an engine may have been stopped, here or elsewhere, since it was last on a screen.
    """
    transport = LocalTransport(EMBEDDED)
    config = load_config(paths.config_file).config
    sentences = []
    try:
        for unit in sorted(units):
            try:
                state = await ProcessService(transport, paths.service(unit)).state()
                known = await list_units(transport, paths)
            except HostError:
                continue
            if state.state not in (RunState.RUNNING, RunState.STARTING):
                continue
            process = "" if state.main_pid is None else f" (process {state.main_pid})"
            # The unit that is meant where none is named: the configured one, or the only one.
            meant = config.host(EMBEDDED).unit or (known[0] if len(known) == 1 else "")
            words = ("stop", "--host", EMBEDDED, *(() if unit == meant else ("--unit", unit)))
            how = f"This stops it: {_called(words)}"
            if config.read_only:
                how = f"Once read_only = true is out of {paths.config_file}, this stops it: {_called(words)}"
            sentences.append(f"The embedded engine{process} runs on. {how}")
    finally:
        await transport.close()
    return tuple(sentences)


def _called(words: Iterable[str]) -> str:
    """The console's command line with these words, for a shell: with the variables that choose the same files as here."""
    variables = (f"{name}={shlex.quote(value)}" if value else f"{name}=" for name, value in chosen_by(os.environ).items())
    return " ".join((*variables, shlex.join((*_program(), *words))))


def _program() -> tuple[str, ...]:
    """How the console is called, from whatever folder: its bare name where the shell finds this very program by it, else by its
    path."""
    called = Path(sys.argv[0])
    found = shutil.which(PROGRAM)
    if called.name == PROGRAM:
        # The shell that is left may go to another folder; links in the path stay, they may lead to a newer version one day.
        return (PROGRAM,) if found is not None and _same(Path(found), called) else (str(called.absolute()),)
    return (PROGRAM,) if found is not None and Path(found).parent == Path(sys.executable).parent else _as_module()


def _as_module() -> tuple[str, ...]:
    """The installed command beside this interpreter, which is not in the shell's path; else the interpreter with the module."""
    beside = Path(sys.executable).with_name(PROGRAM)
    return (str(beside),) if os.access(beside, os.X_OK) else (sys.executable, "-m", "dflash_console")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
