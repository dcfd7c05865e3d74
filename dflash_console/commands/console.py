"""No command: the screens."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from ..config import first_look
from .context import Context
from .options import ConsoleOptions
from .outcome import ExitCode, UsageError

if TYPE_CHECKING:
    from ..config import Config


def run(context: Context, options: ConsoleOptions) -> ExitCode:
    if context.common.json:
        raise UsageError("the screens print no JSON: name a command, as in: ddtree-console status --json")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the screens need a terminal: use a command here, as in: ddtree-console status")
    # What is imported from here on stays to the end, so looking for garbage in it is in vain, and costs a twentieth of the time
    # to the first snapshot. The screens turn the collector on again once that is painted.
    gc.disable()
    from ..tui.run import run_console

    def load() -> tuple[Config, tuple[str, ...]]:
        return context.config, tuple(str(problem) for problem in context.loaded.problems)

    look = first_look(context.paths.config_file)
    status = run_console(look, load, context.paths, host=context.common.host, unit=context.common.unit)
    return ExitCode.FINE if status == 0 else ExitCode.FAILED
