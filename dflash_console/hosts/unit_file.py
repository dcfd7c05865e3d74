"""The unit file of a supervised local process: ``service.toml``.

Reading uses the standard library only (the supervisor imports this). A change edits the words of ``command`` where they stand and
nothing else; in a new file each word has a line of its own, so that a changed setting is a changed line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from ..evidence.toml_array import edit_array, quote


class UnitFileError(ValueError):
    """The unit file cannot be used; the message says where and why."""


class Restart(Enum):
    """What the supervisor does when the engine ends by itself."""

    NO = "no"
    ON_FAILURE = "on-failure"


@dataclass(frozen=True)
class UnitFile:
    """A checked ``service.toml``."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    restart: Restart = Restart.NO
    restart_delay_s: float = 1.0
    restart_limit: int = 5
    """So many restarts within a minute are a crash loop: then the supervisor gives up."""
    stop_timeout_s: float = 10.0
    """Seconds between SIGTERM and SIGKILL."""
    folder: str = ""
    """Working directory; empty = the unit's folder."""
    chosen_port: int | None = None
    """The port that the console chose for this unit. While the command has it, a start takes the next free one where another
    program has it; a port that a person set is never changed."""


_TOP = frozenset({"command", "description", "environment", "service"})
_SERVICE = frozenset({"restart", "restart_delay_s", "restart_limit", "stop_timeout_s", "folder", "chosen_port"})


def decode_unit_file(data: bytes) -> str:
    """The text of ``service.toml``. Raises: UnitFileError: it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise UnitFileError(f"line {line} has a byte that is not UTF-8 text (0x{byte:02x}); save the file as UTF-8") from None


def parse_unit_file(text: str) -> UnitFile:
    """Check and read ``service.toml``.

    Raises:
        UnitFileError: broken TOML, an unknown key, a value of the wrong kind, an empty command.
    """
    if text.startswith("\ufeff"):
        raise UnitFileError("it begins with a byte order mark; save the file as UTF-8 without one")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UnitFileError(f"not valid TOML: {error}") from None
    except RecursionError:
        raise UnitFileError("not valid TOML: nested too deeply") from None
    if unknown := sorted(set(data) - _TOP):
        raise UnitFileError(f"unknown key {unknown[0]}; known: {', '.join(sorted(_TOP))}")
    service = data.get("service", {})
    if not isinstance(service, dict):
        raise UnitFileError("service must be a table")
    if unknown := sorted(set(service) - _SERVICE):
        raise UnitFileError(f"unknown key service.{unknown[0]}; known: {', '.join(sorted(_SERVICE))}")
    try:
        restart = Restart(service.get("restart", "no"))
    except ValueError:
        raise UnitFileError("service.restart must be 'no' or 'on-failure'") from None
    return UnitFile(
        command=_command(data.get("command")),
        environment=_environment(data.get("environment", {})),
        description=_text(data, "description"),
        restart=restart,
        restart_delay_s=_number(service, "restart_delay_s", 1.0),
        restart_limit=int(_number(service, "restart_limit", 5)),
        stop_timeout_s=_number(service, "stop_timeout_s", 10.0),
        folder=_text(service, "folder"),
        chosen_port=_port(service),
    )


def _command(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(word, str) for word in value):
        raise UnitFileError("command must be a list of words in quotes, the program first")
    if not value[0] or any("\0" in word for word in value):
        raise UnitFileError("command has an empty program name or a NUL in a word")
    return tuple(value)


def _environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise UnitFileError("environment must be a table of texts in quotes")
    for name, text in value.items():
        if not name or "=" in name or "\0" in name + text:
            raise UnitFileError(f"environment: {name!r} cannot be a variable")
    return dict(value)


def _text(table: Mapping[str, object], key: str) -> str:
    value = table.get(key, "")
    if not isinstance(value, str):
        raise UnitFileError(f"{key} must be text in quotes")
    return value


def _number(table: Mapping[str, object], key: str, default: float) -> float:
    value = table.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e6:
        raise UnitFileError(f"service.{key} must be a number from 0 on")
    return float(value)


def _port(table: Mapping[str, object]) -> int | None:
    value = table.get("chosen_port")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65_536):
        raise UnitFileError("service.chosen_port must be a port, from 1 to 65535")
    return value


def new_unit_file(
    command: Sequence[str], *, description: str, environment: Mapping[str, str] | None = None, chosen_port: int | None = None
) -> str:
    """The text of a first ``service.toml``. ``chosen_port``: the port in ``command``, where it may be another one."""
    lines = [f"description = {quote(description)}", "", *_array(command)]
    if environment:
        lines += ["", "[environment]", *(f"{quote(name)} = {quote(value)}" for name, value in environment.items())]
    lines += ["", "[service]", 'restart = "no"', "stop_timeout_s = 10.0"]
    if chosen_port is not None:
        lines += [f"chosen_port = {chosen_port}  # a start takes the next free one where this is taken, and notes it here"]
    lines += [""]
    return "\n".join(lines)


def _array(command: Sequence[str]) -> list[str]:
    return ["command = [", *(f"    {quote(word)}," for word in command), "]"]


_COMMAND_KEY = re.compile(r"""^[ \t]*(?:command|"command"|'command')[ \t]*=[ \t]*\[""", re.MULTILINE)


def replace_command(text: str, command: Sequence[str]) -> str:
    """``text`` with another command. The array keeps its layout, whatever that is, and all of its comments; a word that stays,
    and all bytes outside the array, stay as they are.

    Raises:
        UnitFileError: ``text`` is no unit file, or its command is written in a form that cannot be edited.
    """
    old = parse_unit_file(text)
    if old.command == tuple(command):
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    # A line like it may stand in a text of several lines: the right one is that whose edit changes the command and nothing else.
    for match in _COMMAND_KEY.finditer(text):
        result = edit_array(text, match.end(), old.command, command, newline)
        if result is not None and _reads_as(result, replace(old, command=tuple(command))):
            return result
    raise UnitFileError(
        'the command is written in a form that cannot be edited; write it as a list: command = ["engine", "--flag"]'
    )


_PORT_KEY = re.compile(r"""^([ \t]*(?:service[ \t]*\.[ \t]*)?chosen_port[ \t]*=[ \t]*)([0-9_]+)""", re.MULTILINE)


def move_port(text: str, port: int) -> str:
    """``text`` with another chosen port, in the command and where it is noted as chosen; nothing else changes.

    Raises:
        UnitFileError: ``text`` is no unit file whose command has its chosen port, or is written in a form that cannot be edited.
    """
    unit = parse_unit_file(text)
    old, command = str(unit.chosen_port), list(unit.command)
    at = max((at for at, word in enumerate(command) if word == "--port" or word.startswith("--port=")), default=None)
    if at is not None and command[at] == f"--port={old}":
        command[at] = f"--port={port}"
    elif at is not None and command[at : at + 2] == ["--port", old]:
        command[at + 1] = str(port)
    else:
        raise UnitFileError(f"the command has another port than the chosen one, {old}")
    moved = replace_command(text, command)
    for match in _PORT_KEY.finditer(moved):
        result = f"{moved[: match.start(2)]}{port}{moved[match.end(2) :]}"
        if _reads_as(result, replace(unit, command=tuple(command), chosen_port=port)):
            return result
    raise UnitFileError("service.chosen_port is written in a form that cannot be edited; write it as: chosen_port = 30000")


def _reads_as(text: str, unit: UnitFile) -> bool:
    try:
        return parse_unit_file(text) == unit
    except UnitFileError:
        return False
