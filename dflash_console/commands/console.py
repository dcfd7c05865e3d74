"""No command: the screens."""

from __future__ import annotations

import sys

from .context import Context
from .options import ConsoleOptions
from .outcome import ExitCode, UsageError


def run(context: Context, options: ConsoleOptions) -> ExitCode:
    if context.common.json:
        raise UsageError("the screens print no JSON: name a command, as in: ddtree-console status --json")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the screens need a terminal: use a command here, as in: ddtree-console status")
    from ..tui.run import run_console

    # Problems of the configuration file are shown on the screen, where they are seen.
    problems = [str(problem) for problem in context.loaded.problems]
    status = run_console(context.config, context.paths, host=context.common.host, unit=context.common.unit, problems=problems)
    return ExitCode.FINE if status == 0 else ExitCode.FAILED
