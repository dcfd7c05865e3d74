"""The command line: what there is, and which module does it.

Only the parser's own needs are imported here; a command's module is imported when it is the one that was asked for, so that
``ddtree-console status --json`` in a script does not pay for the screens.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn, TypeVar

from .commands.options import (
    ApplyMode,
    ApplyOptions,
    CommonOptions,
    ConsoleOptions,
    DoctorOptions,
    DriftOptions,
    HostsOptions,
    LifecycleOptions,
    LogsOptions,
    PlanOptions,
    PromptOptions,
    StatusOptions,
)
from .commands.outcome import CommandError, ExitCode

Options = (
    ConsoleOptions
    | StatusOptions
    | DriftOptions
    | PlanOptions
    | LifecycleOptions
    | LogsOptions
    | PromptOptions
    | HostsOptions
    | DoctorOptions
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

TRACEBACK_VARIABLE = "DDTREE_TRACEBACK"

_EPILOG = """\
Without a command the screens open. Exit codes: 0 fine, 1 failed, 2 wrong use, 3 drift found, 4 not confirmed or rolled back.
Each command explains itself: ddtree-console COMMAND --help."""


class Parser(argparse.ArgumentParser):
    """argparse whose complaint is one sentence with a way out, not a usage dump."""

    def error(self, message: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


@dataclass(frozen=True)
class _Command:
    """One command: its words, and the module whose ``run`` does it."""

    module: str
    options: type[Options]
    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]


def _nothing(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def _settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", dest="settings", action="append", metavar="KNOB=VALUE", help="a setting to change; may be given several times"
    )
    parser.add_argument("--profile", metavar="NAME", help="the settings of a profile from the configuration file")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument(
        "--hot",
        dest="mode",
        action="store_const",
        const=ApplyMode.HOT,
        help="while the engine runs; refuse what it cannot take so",
    )
    mode.add_argument("--restart", dest="mode", action="store_const", const=ApplyMode.RESTART, help="write it down and restart")
    parser.add_argument(
        "--commit-confirm",
        action="store_true",
        help="arm a timer on the host that puts the configuration back unless the change is confirmed in time",
    )


def _yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def _stop(parser: argparse.ArgumentParser) -> None:
    _yes(parser)
    parser.add_argument("--drain", action="store_true", help="let running requests end before a stop")


def _restart(parser: argparse.ArgumentParser) -> None:
    _stop(parser)
    parser.add_argument(
        "--rollback-on-failure",
        action="store_true",
        help="go back to the confirmed configuration when the new start is not confirmed",
    )


def _apply(parser: argparse.ArgumentParser) -> None:
    _settings(parser)
    _restart(parser)
    parser.add_argument("--persist", action="store_true", help="write a hot change down too, so that a restart keeps it")
    parser.add_argument("--resume", action="store_true", help="go on with an operation that was cut off")


def _logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--follow", "-f", action="store_true", help="go on as lines come, until Ctrl-C")
    parser.add_argument("--this-start", action="store_true", help="only lines of the present start")
    parser.add_argument("--lines", "-n", type=_at_least(0), metavar="N", help="the newest N stored lines (default 200)")


def _prompt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="?", metavar="TEXT", help="the prompt; - reads it from standard input")
    parser.add_argument("--n", dest="copies", type=_at_least(1), metavar="N", help="so many at once")
    parser.add_argument("--max-tokens", type=_at_least(1), metavar="M", help="longest answer (default 256)")
    parser.add_argument("--temperature", type=_number(0.0), metavar="T", help="0 = greedy (default)")
    parser.add_argument("--top-p", type=_share, metavar="P", help="above 0, at most 1 (default)")
    parser.add_argument("--seed", type=int, metavar="S")
    parser.add_argument("--ignore-eos", action="store_true", help="go on to --max-tokens, so that runs are of equal length")
    parser.add_argument("--raw", action="store_true", help="continue the text as it stands, without the chat template")
    parser.add_argument("--algorithm", metavar="NAME", help="PLAIN decodes these requests without speculation, in place")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        metavar="KNOB=VALUE",
        help="of these requests only: tree_budget, tree_topk, speculation",
    )
    parser.add_argument("--suite", metavar="NAME|FILE", help="fire a suite instead: coding, chat, long, or a file")
    parser.add_argument("--depth", type=_at_least(0), metavar="TOKENS", help="put about so much text in front of each prompt")


COMMANDS: dict[str, _Command] = {
    "status": _Command("status", StatusOptions, "what runs, with which settings, and how fast", _nothing),
    "drift": _Command("drift", DriftOptions, "where the configuration's sources disagree", _nothing),
    "plan": _Command("change", PlanOptions, "what a change would write and do; changes nothing", _settings),
    "apply": _Command("change", ApplyOptions, "change settings and confirm them from the engine's own evidence", _apply),
    "start": _Command("lifecycle", LifecycleOptions, "start the service and confirm its settings", _restart),
    "stop": _Command("lifecycle", LifecycleOptions, "stop the service", _stop),
    "restart": _Command("lifecycle", LifecycleOptions, "restart the service and confirm its settings", _restart),
    "rollback": _Command("lifecycle", LifecycleOptions, "go back to the last confirmed configuration", _yes),
    "rebase": _Command("drop_in", LifecycleOptions, "carry the console's drop-in over to a unit that has changed", _restart),
    "release": _Command("drop_in", LifecycleOptions, "remove the console's drop-in: the unit's own command again", _restart),
    "logs": _Command("logs", LogsOptions, "the engine's log", _logs),
    "prompt": _Command("prompt", PromptOptions, "fire prompts and measure the answers", _prompt),
    "hosts": _Command("hosts", HostsOptions, "the configured hosts and their state", _nothing),
    "doctor": _Command("doctor", DoctorOptions, "check this machine and the host", _nothing),
}
_SHOW_CONFIG_PROBLEMS = ("console", "doctor")
"""Commands that show by themselves what is wrong with the configuration file."""
_CONSOLE = _Command("console", ConsoleOptions, "", _nothing)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. Options of every command may stand before or after the command's name."""
    common = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--json", action="store_true", help="print JSON")
    common.add_argument(
        "--host", type=_name, metavar="NAME|DEST", help="a configured host or an SSH destination (default: embedded)"
    )
    common.add_argument("--unit", type=_name, metavar="NAME", help="the service on that host")
    common.add_argument("--read-only", action="store_true", help="refuse everything that changes the host")
    parser: argparse.ArgumentParser = Parser(
        prog="ddtree-console",
        description="A console for tuning speculative decoding (DFlash + DDTree) on SGLang servers.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            parents=[common],
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        command.arguments(sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code. Never raises and never shows a traceback for anything that a user can cause."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        # A terminal or pipe that cannot show a symbol must not end a command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    if unknown := _unknown_command(words):
        sys.stderr.write(unknown)
        return ExitCode.USAGE
    try:
        given = vars(build_parser().parse_args(words))
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitCode.USAGE
    if given.get("version"):
        from importlib.metadata import version

        sys.stdout.write(f"ddtree-console {version('ddtree-console')}\n")
        return ExitCode.FINE
    name = given.get("command")
    command = COMMANDS[name] if name else _CONSOLE
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
    except CommandError as problem:
        output.error(str(problem))
        return problem.code
    except KeyboardInterrupt:
        output.note("interrupted")
        return ExitCode.FAILED
    except ReaderGone:
        return ExitCode.FINE
    except Exception as problem:
        # A mistake of ours, not of the user's. Its traceback helps only whoever mends it.
        if os.environ.get(TRACEBACK_VARIABLE):
            raise
        output.error(
            f"internal error ({type(problem).__name__}: {problem}); {TRACEBACK_VARIABLE}=1 shows where, please report it"
        )
        return ExitCode.FAILED


def _record(kind: type[T], given: Mapping[str, object]) -> T:
    """The record ``kind`` of what was given; everything else keeps its default."""
    names = {field.name for field in fields(kind)}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items() if name in names})


def _at_least(minimum: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"takes a whole number, not {text}") from None
        if value < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, not {value}")
        return value

    return number


def _number(minimum: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"takes a number, not {text}") from None
        if not minimum <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be at least {minimum:g}, not {text}")
        return value

    return number


def _share(text: str) -> float:
    value = _number(0.0)(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 1, not {text}")
    return value


def _name(text: str) -> str:
    # An empty variable of a script must not fall back on the default host or unit, which it may then stop.
    if not text.strip():
        raise argparse.ArgumentTypeError("needs a name, not an empty word")
    return text


def _unknown_command(words: Sequence[str]) -> str | None:
    """A sentence when the first word that is no option is no command, with the nearest one."""
    takes_value = ("--host", "--unit")
    previous = ""
    for word in words:
        if not word.startswith("-") and previous not in takes_value:
            if word in COMMANDS:
                return None
            import difflib

            near = difflib.get_close_matches(word, COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"
            return f"ddtree-console: there is no command called {word}; {hint}\n"
        previous = word
    return None
