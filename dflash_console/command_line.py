"""What the command line understands: the commands, their arguments, and the records that these become."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from .commands.options import (
    ApplyMode,
    ApplyOptions,
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
from .commands.outcome import ExitCode
from .knobs import KNOBS

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

_EPILOG = """\
Without a command the screens open. Each command explains itself:
ddtree-console COMMAND --help. Exit codes: 0 fine, 1 failed, 2 wrong use,
3 drift found, 4 not confirmed or rolled back."""
_NAMES = f"Settings: {', '.join(KNOBS)}; any other flag of the engine as flag:--its-name."


class Parser(argparse.ArgumentParser):
    """argparse whose complaint is one sentence with a way out, not a usage dump."""

    def error(self, message: str) -> NoReturn:
        message = visible(message.replace("ignored explicit argument", "takes no value, not"))
        self.exit(ExitCode.USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")

    @property
    def options(self) -> tuple[str, ...]:
        """Every spelling of its options."""
        return tuple(self._option_string_actions)


def visible(text: str) -> str:
    """What was typed, to be shown: a character that would act on the terminal, or could not be seen, as Python writes it."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


@dataclass(frozen=True)
class Command:
    """One command: its words, and the module whose ``run`` does it."""

    module: str
    options: type[Options]
    summary: str
    arguments: Callable[[argparse.ArgumentParser], None]
    epilog: str | None = None


def _nothing(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def _settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set", dest="settings", action="append", metavar="NAME=VALUE", help="a setting to change; may be given several times"
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
    parser.add_argument("--top-p", type=_share, metavar="P", help="above 0, at most 1 (default 1)")
    parser.add_argument("--seed", type=_whole, metavar="S", help="seed of the sampling, a whole number")
    parser.add_argument("--ignore-eos", action="store_true", help="go on to --max-tokens, so that runs are of equal length")
    parser.add_argument("--raw", action="store_true", help="continue the text as it stands, without the chat template")
    parser.add_argument(
        "--openai",
        action="store_true",
        help="ask the chat endpoint as OpenAI's clients do: the model's own sampling defaults, but no commit length",
    )
    parser.add_argument("--algorithm", metavar="NAME", help="PLAIN decodes these requests without speculation, in place")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        metavar="NAME=VALUE",
        help="of these requests only: tree_budget, tree_topk, speculation",
    )
    parser.add_argument("--suite", metavar="NAME|FILE", help="fire a suite instead: coding, chat, long, or a file")
    parser.add_argument("--depth", type=_at_least(0), metavar="TOKENS", help="put about so much text in front of each prompt")
    parser.add_argument(
        "--first-token-timeout", type=_number(0.1), metavar="S", help="seconds until an answer must have begun (default 300)"
    )


COMMANDS: dict[str, Command] = {
    "status": Command("status", StatusOptions, "what runs, with which settings, and how fast", _nothing),
    "drift": Command("drift", DriftOptions, "where the configuration's sources disagree", _nothing),
    "plan": Command("change", PlanOptions, "what a change would write and do; changes nothing", _settings, _NAMES),
    "apply": Command("change", ApplyOptions, "change settings and confirm them from the engine's own evidence", _apply, _NAMES),
    "start": Command("lifecycle", LifecycleOptions, "start the service and confirm its settings", _restart),
    "stop": Command("lifecycle", LifecycleOptions, "stop the service", _stop),
    "restart": Command("lifecycle", LifecycleOptions, "restart the service and confirm its settings", _restart),
    "rollback": Command("lifecycle", LifecycleOptions, "go back to the last confirmed configuration", _yes),
    "rebase": Command("drop_in", LifecycleOptions, "carry the console's drop-in over to a unit that has changed", _restart),
    "release": Command("drop_in", LifecycleOptions, "remove the console's drop-in: the unit's own command again", _restart),
    "logs": Command("logs", LogsOptions, "the engine's log", _logs),
    "prompt": Command("prompt", PromptOptions, "fire prompts and measure the answers", _prompt),
    "hosts": Command("hosts", HostsOptions, "the configured hosts and their state", _nothing),
    "doctor": Command("doctor", DoctorOptions, "check this machine and the host", _nothing),
}
CONSOLE = Command("console", ConsoleOptions, "", _nothing)
"""What is done without a command: the screens."""


def parse(words: Sequence[str]) -> dict[str, object]:
    """What was given, by name; nothing for what was not.

    Raises:
        SystemExit: help was asked for and shown, or the words make no sense and a sentence says why.
    """
    parser, commands = _parsers()
    given, left = parser.parse_known_args(words)
    if left:
        name = getattr(given, "command", None)
        asked = commands[name] if name else parser
        asked.error(_left_over(left[0], asked, commands))
    return vars(given)


def foreign_option(word: str) -> str | None:
    """A sentence when no such option may stand before the command: argparse would take its value for the command."""
    parser, commands = _parsers()
    option = word.partition("=")[0]
    return None if option in parser.options else _left_over(word, parser, commands)


def _left_over(word: str, asked: Parser, commands: Mapping[str, Parser]) -> str:
    """What to say of a word that ``asked`` has no use for."""
    if not word.startswith("-") or word == "-":
        quote = "; put a prompt of several words in quotes" if asked is commands["prompt"] else ""
        return f"takes no further word: {word}{quote}"
    option = word.partition("=")[0]
    elsewhere = [name for name, command in commands.items() if option in command.options]
    if elsewhere:
        return f"has no option {option}: it belongs to {', '.join(elsewhere)}"
    import difflib

    near = difflib.get_close_matches(option, asked.options, n=1)
    return f"has no option {option}" + (f"; did you mean {near[0]}?" if near else "")


def _parsers() -> tuple[Parser, dict[str, Parser]]:
    """The whole command line, and each command's own. Options of every command may stand before or after its name."""
    common = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("--json", action="store_true", help="print JSON")
    common.add_argument(
        "--host", type=_name, metavar="NAME|DEST", help="a configured host or an SSH destination (default: embedded)"
    )
    common.add_argument("--unit", type=_name, metavar="NAME", help="the service on that host")
    common.add_argument("--read-only", action="store_true", help="refuse everything that changes the host")
    parser = Parser(
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
    found = {}
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            epilog=command.epilog,
            parents=[common],
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        command.arguments(sub)
        found[name] = sub
    return parser, found


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes a whole number, not {text}") from None


def _at_least(minimum: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        value = _whole(text)
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
