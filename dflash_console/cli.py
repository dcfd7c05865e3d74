"""The command line's door: read the words, import the one module that does what they ask, turn its end into an exit code.

A command's module is imported when it is the one that was asked for, so that ``ddtree-console status --json`` in a script does
not pay for the screens.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from .command_line import COMMANDS, CONSOLE, Options, foreign_option, parse, visible
from .commands.options import CommonOptions
from .commands.outcome import CommandError, ExitCode

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

TRACEBACK_VARIABLE = "DDTREE_TRACEBACK"

_SHOW_CONFIG_PROBLEMS = ("console", "doctor")
"""Commands that show by themselves what is wrong with the configuration file."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Never raises and never shows a traceback for anything that a user can cause."""
    _open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe that cannot show a symbol must not end a command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if wrong := _not_text(words) or _unknown_command(words):
        with contextlib.suppress(OSError):
            sys.stderr.write(visible(wrong) + "\n")
        return ExitCode.USAGE
    try:
        given = parse(words)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitCode.USAGE
    if given.get("version"):
        from importlib.metadata import version

        sys.stdout.write(f"ddtree-console {version('ddtree-console')}\n")
        return ExitCode.FINE
    name = str(given.get("command") or "")
    command = COMMANDS[name] if name else CONSOLE
    common = _record(CommonOptions, given)
    return run_command(name or "console", command.module, common, _record(command.options, given))


def run_command(name: str, module: str, common: CommonOptions, options: Options) -> int:
    """Import ``module`` and run it, turning every way in which it can end into an exit code."""
    from .commands.output import Output, ReaderGone

    output = Output(json_wanted=common.json)
    try:
        from .commands.context import Context

        context = Context(name, output, common)
        if name not in _SHOW_CONFIG_PROBLEMS:
            context.report_config()
        return int(import_module(f".commands.{module}", __package__).run(context, options))
    except KeyboardInterrupt:
        output.note("interrupted")
        return ExitCode.FAILED
    except Exception as raised:
        problem = _alone(raised)
        if isinstance(problem, ReaderGone):
            return ExitCode.FINE
        if isinstance(problem, CommandError):
            output.error(str(problem))
            return problem.code
        # A mistake of ours, not of the user's. Its traceback helps only whoever mends it.
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        output.error(
            f"internal error ({type(problem).__name__}: {problem}); {TRACEBACK_VARIABLE}=1 shows where, please report it"
        )
        return ExitCode.FAILED


def _alone(problem: BaseException) -> BaseException:
    """The first of the problems that tasks at work together ended with; a single one as it is."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    return problem


def _open_closed_streams() -> None:
    """Put the null device where a standard stream is closed: the next file opened would get its number, and what is printed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 (open until the end)


def _record(kind: type[T], given: Mapping[str, object]) -> T:
    """The record ``kind`` of what was given; everything else keeps its default."""
    names = {field.name for field in fields(kind)}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items() if name in names})


def _not_text(words: Sequence[str]) -> str | None:
    """A sentence when a word holds bytes that are no UTF-8: neither a host, an engine nor a file of ours could take it."""
    for number, word in enumerate(words, 1):
        try:
            word.encode()
        except UnicodeEncodeError:
            shown = word.encode("utf-8", "replace").decode()
            return f"ddtree-console: word {number} of the command line, {shown}, is not UTF-8 text"
    return None


def _unknown_command(words: Sequence[str]) -> str | None:
    """A sentence when an option before the command is unknown, or the first word that is no option is no command."""
    takes_value = ("--host", "--unit")
    previous = ""
    for word in words:
        if word.startswith("-") and previous not in takes_value and (wrong := foreign_option(word)):
            return f"ddtree-console: {wrong} (see ddtree-console --help)"
        if not word.startswith("-") and previous not in takes_value:
            if word in COMMANDS:
                return None
            import difflib

            near = [name for name in COMMANDS if name.startswith(word)] or difflib.get_close_matches(word, COMMANDS, 1, 0.7)
            hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"
            return f"ddtree-console: there is no command called {word}; {hint}"
        previous = word
    return None
