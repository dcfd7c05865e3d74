"""``ddtree-launch unit``: a systemd unit that serves with the given flags, quoted as systemd reads it."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from engine_launch.commands.output import complain, warn
from engine_launch.commands.serve import split_engine
from engine_launch.spec.checks import EngineKind, check_embedded
from engine_launch.spec.flags import FlagError, Kind, ParsedFlags, parse_flags
from engine_launch.spec.sglang_checks import check_sglang_flags, read_flags

USAGE = """\
usage: ddtree-launch unit [flags of serve]

Prints a systemd unit whose ExecStart serves with these flags, which
ddtree-launch serve --help lists. An API key is not written into it: the unit
reads it from an EnvironmentFile, which only root need be able to read."""

KEY_FILE = "/etc/ddtree-launch/serve.env"
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:,+@")
"""Characters that stand for themselves in a word of ExecStart (systemd.service(5), "COMMAND LINES")."""


def unit(argv: Sequence[str]) -> int:
    if "--help" in argv or "-h" in argv:
        print(USAGE)
        return 0
    try:
        kind, rest = split_engine(argv)
        odd = next((word for word in argv if not _is_text(word)), None)
        if odd is not None:
            raise FlagError(f"{odd!r} holds bytes that are no UTF-8, and a unit file is UTF-8: give it another name.")
        sglang = kind is EngineKind.SGLANG
        parsed = parse_flags(rest, config_file=sglang)
        # Flags that only SGLang uses are right in a unit that starts SGLang.
        for warning in _check_sglang(rest) if sglang else [*parsed.warnings, *check_embedded(parsed)]:
            warn(warning)
        words = launcher_words() + (["--engine", kind.value] if kind is not EngineKind.AUTO else [])
        print(unit_text(words, parsed), end="")
    except FlagError as error:
        return complain(str(error))
    return 0


def _is_text(word: str) -> bool:
    """Python keeps other bytes of a command line as lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in word)


def _check_sglang(argv: Sequence[str]) -> tuple[str, ...]:
    """Warnings. Raises FlagError for what would keep the unit from starting; models are looked at where it starts."""
    verdicts = check_sglang_flags(read_flags(argv), None)
    if verdicts.errors:
        raise FlagError(verdicts.errors[0])
    return verdicts.warnings


def launcher_words() -> list[str]:
    """The command that a unit must name with its full path."""
    command = shutil.which("ddtree-launch")
    return [command, "serve"] if command else [sys.executable, "-m", "engine_launch", "serve"]


def unit_text(words: Sequence[str], parsed: ParsedFlags) -> str:
    """The whole unit.

    Args:
        words: the command up to the flags.
        parsed: the flags of ``serve``, written in their full spelling.
    """
    keys: dict[str, str] = {}
    lines = [" ".join(quote_word(word) for word in words)]
    for item in parsed.given:
        name, value = item.flag.name, item.value
        if item.flag.secret:
            # ${NAME} is expanded by systemd as exactly one word.
            variable = "DDTREE" + name.removeprefix("-").replace("-", "_").upper()
            keys[variable] = name
            lines.append(f"{name} ${{{variable}}}")
        elif item.flag.kind is Kind.ANY:
            lines.append(" ".join([name, *map(quote_word, item.words)]))
        elif isinstance(value, bool) or value == "":
            lines.append(name)
        else:
            lines.append(f"{name} {quote_word(str(value))}")
    environment = [f"# {KEY_FILE} sets {', '.join(keys)}.", f"EnvironmentFile={KEY_FILE}"] if keys else []
    return "\n".join(
        [
            "[Unit]",
            "Description=DDTREE serving (ddtree-launch)",
            "After=network-online.target",
            "Wants=network-online.target",
            "",
            "[Service]",
            "Type=simple",
            *environment,
            "ExecStart=" + " \\\n    ".join(lines),
            "Restart=on-failure",
            "RestartSec=5",
            "TimeoutStopSec=30",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


def quote_word(word: str) -> str:
    """One word of a systemd command line.

    ``%`` begins a specifier and ``$`` a variable even inside quotes, so both are doubled; control characters are written as
    C escapes; a word with anything else that is special stands in double quotes.
    """
    doubled = word.replace("%", "%%").replace("$", "$$")
    if doubled and set(doubled) <= _PLAIN | {"%", "$"}:
        return doubled
    escaped = doubled.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(f"\\x{ord(c):02x}" if ord(c) < 32 or ord(c) == 127 else c for c in escaped) + '"'
