"""A systemd service from its unit file and drop-ins: the commands and the environment in effect, and the file each comes from.

Later files win; an empty assignment of a list resets it (systemd.unit(5), systemd.service(5)). Specifiers (``%i``) and
variables stay as written: what they become is known where the files of the environment have been read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .env_file import Variable, parse_env_file
from .unit_text import Assignment, UnitText, UnitWarning, parse_unit
from .unit_words import PREFIXES, UnitWord, expand, split_words

SERVICE = "Service"
DIRECTORIES = ("RuntimeDirectory", "StateDirectory", "CacheDirectory", "LogsDirectory", "ConfigurationDirectory")
LISTS = frozenset({*DIRECTORIES, "UnsetEnvironment", "PassEnvironment"})
"""Settings that add up, and begin anew after an empty one; those that say what variables a process gets."""


@dataclass(frozen=True)
class UnitSource:
    """One file: the unit itself first, then its drop-ins in the order in which systemd reads them."""

    path: str
    text: str


@dataclass(frozen=True)
class UnitCommand:
    """One command of an ``Exec…=`` setting."""

    argv: tuple[str, ...]
    """Before expansion of variables and specifiers, without the prefix."""
    prefix: str
    """Of ``@-:+!|``."""
    path: str
    """The file that it stands in."""
    assignment: Assignment
    words: tuple[UnitWord, ...] = field(default=(), repr=False)
    """The words of ``argv`` with their places in the assignment's value."""

    @property
    def line(self) -> int:
        return self.assignment.line


@dataclass(frozen=True)
class EnvironmentEntry:
    """One variable and where it is set."""

    name: str
    value: str
    path: str
    line: int


@dataclass(frozen=True)
class EnvironmentFile:
    """A file that ``EnvironmentFile=`` names; its path may hold specifiers."""

    path: str
    optional: bool
    named_in: str
    line: int


@dataclass(frozen=True)
class EffectiveUnit:
    """The service as all files together make it."""

    commands: Mapping[str, tuple[UnitCommand, ...]] = field(default_factory=dict)
    """By setting: ``ExecStart``, ``ExecStartPre``, ``ExecStop`` …"""
    environment: tuple[EnvironmentEntry, ...] = ()
    environment_files: tuple[EnvironmentFile, ...] = ()
    settings: Mapping[str, Assignment] = field(default_factory=dict)
    """The last assignment of each other setting of ``[Service]`` (``Type``, ``User``, ``StandardOutput`` …)."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """The file of each entry of ``settings``."""
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The words of settings of :data:`LISTS`, all assignments together."""
    warnings: tuple[tuple[str, UnitWarning], ...] = ()
    """(file, warning)."""
    refused: str = ""
    """Why systemd refuses the unit; empty when it takes it."""

    @property
    def start(self) -> UnitCommand | None:
        """The command that starts the engine: the last of ``ExecStart``."""
        commands = self.commands.get("ExecStart", ())
        return commands[-1] if commands else None

    def setting(self, name: str, default: str = "") -> str:
        found = self.settings.get(name)
        return found.value if found is not None else default

    def output_file(self, setting: str = "StandardOutput") -> str | None:
        """The file that an output (``StandardOutput``, ``StandardError``) goes to by its own setting; ``None`` = to none."""
        kind, colon, path = self.setting(setting).partition(":")
        return path if colon and kind in ("append", "file", "truncate") else None


def read_unit(sources: Sequence[UnitSource]) -> EffectiveUnit:
    """Merge a unit and its drop-ins as systemd does. Nothing raises; what systemd refuses is said in ``refused``."""
    merger = _Merger()
    for source in sources:
        merger.add(source)
    return merger.result()


class _Merger:
    def __init__(self) -> None:
        self._commands: dict[str, list[UnitCommand]] = {}
        self._environment: dict[str, EnvironmentEntry] = {}
        self._files: list[EnvironmentFile] = []
        self._settings: dict[str, Assignment] = {}
        self._origins: dict[str, str] = {}
        self._lists: dict[str, list[str]] = {}
        self._begun = False
        self._broken = self._unreadable = ""
        """Why systemd does not take the unit at all."""
        self._warnings: list[tuple[str, UnitWarning]] = []

    def add(self, source: UnitSource) -> None:
        text: UnitText = parse_unit(source.text)
        if text.broken and not self._begun:
            self._broken = text.broken
        self._begun = True
        self._warnings += [(source.path, warning) for warning in text.warnings]
        for item in text.assignments:
            if item.section != SERVICE:
                continue
            if item.key.startswith("Exec"):
                self._add_commands(source.path, item)
            elif item.key == "Environment":
                self._add_environment(source.path, item)
            elif item.key == "EnvironmentFile":
                self._add_file(source.path, item)
            else:
                self._settings[item.key] = item
                self._origins[item.key] = source.path
            if item.key in LISTS:
                kept = self._lists.get(item.key, []) if item.value else []
                self._lists[item.key] = [*kept, *(word.value for word in split_words(item.value))]

    def _add_commands(self, path: str, item: Assignment) -> None:
        commands = self._commands.setdefault(item.key, [])
        if not item.value:
            commands.clear()
            return
        group: list[UnitWord] = []
        words = split_words(item.value)
        for word in (*words, None):
            raw = item.value[word.start : word.end] if word is not None else ";"
            if raw == ";":
                if group and not self._take(path, item, _command(path, item, group)):
                    break
                group = []
            elif word is not None and word.unclosed:
                self._lose(path, item, "a quote in it is not closed", ignored=not group or "-" in _prefix(group[0].value))
                break
            elif word is not None:
                group.append(UnitWord(";", word.start, word.end, word.spans[-1:]) if raw == "\\;" else word)
        self._warn_about_words(path, item, words)

    def _take(self, path: str, item: Assignment, command: UnitCommand) -> bool:
        """Add a command; whether systemd reads on in its line."""
        if command.argv[0] and ("@" not in command.prefix or len(command.argv) > 1):
            self._commands[item.key].append(command)
            return True
        self._lose(path, item, "a part of it is missing", ignored="-" in command.prefix)
        return False

    def _lose(self, path: str, item: Assignment, why: str, *, ignored: bool) -> None:
        """A command that systemd cannot read: it refuses the unit, unless failures of the command are to be ignored."""
        if ignored:
            text = f"the command is no command ({why}), and systemd ignores it and what follows in its line"
            self._warnings.append((path, UnitWarning(item.end_line, text, serious=True)))
        else:
            self._unreadable = self._unreadable or f"A command cannot be read: {why}."

    def _warn_about_words(self, path: str, item: Assignment, words: Sequence[UnitWord]) -> None:
        for word in words:
            raw = item.value[word.start : word.end]
            if raw.startswith("#"):
                message = "'#' inside a command is no comment: it and the words after it are arguments"
                self._warnings.append((path, UnitWarning(item.end_line, message, serious=True)))
                break
        if any(word.glued for word in words):
            message = "a backslash before a blank inside a line makes one argument of the words around it, backslash included"
            self._warnings.append((path, UnitWarning(item.end_line, message, serious=True)))
        elif any(word.odd_escapes for word in words):
            self._warnings.append((path, UnitWarning(item.line, "an escape that systemd does not know is kept as written")))

    def _add_environment(self, path: str, item: Assignment) -> None:
        if not item.value:
            self._environment.clear()
            return
        for word in split_words(item.value):
            name, equals, value = word.value.partition("=")
            if not equals or word.unclosed or not (name.isidentifier() and name.isascii()):
                self._warnings.append((path, UnitWarning(item.line, f"'{word.value}' is no assignment, ignoring.")))
                continue
            self._environment.pop(name, None)
            self._environment[name] = EnvironmentEntry(name, value, path, item.line)

    def _add_file(self, path: str, item: Assignment) -> None:
        if not item.value:
            self._files.clear()
            return
        optional = item.value.startswith("-")
        self._files.append(EnvironmentFile(item.value[1:] if optional else item.value, optional, path, item.line))

    def result(self) -> EffectiveUnit:
        refused = ""
        kind = self._settings["Type"].value if "Type" in self._settings else "simple"
        if len(self._commands.get("ExecStart", [])) > 1 and kind != "oneshot":
            refused = "Service has more than one ExecStart= setting, which is only allowed for Type=oneshot services."
        elif not self._commands.get("ExecStart") and not self._commands.get("ExecStop"):
            refused = "Service has no ExecStart=, ExecStop=, or SuccessAction=."
        refused = self._broken or self._unreadable or refused
        return EffectiveUnit(
            commands={key: tuple(commands) for key, commands in self._commands.items()},
            environment=tuple(self._environment.values()),
            environment_files=tuple(self._files),
            settings=self._settings,
            origins=self._origins,
            lists={name: tuple(words) for name, words in self._lists.items()},
            warnings=tuple(self._warnings),
            refused=refused,
        )


def _prefix(word: str) -> str:
    return word[: len(word) - len(word.lstrip(PREFIXES))]


def _command(path: str, item: Assignment, words: Sequence[UnitWord]) -> UnitCommand:
    first = words[0].value
    skipped = len(_prefix(first))
    head = UnitWord(first[skipped:], words[0].start + skipped, words[0].end, words[0].spans[skipped:])
    kept = (head, *words[1:])
    return UnitCommand(tuple(word.value for word in kept), first[:skipped], path, item, kept)


@dataclass(frozen=True)
class ResolvedCommand:
    """A command with its variables filled in, and the variables that it takes."""

    argv: tuple[str, ...]
    environment: Mapping[str, EnvironmentEntry] = field(default_factory=dict)
    """Everything that is set for the process, with its origin."""
    whole: tuple[str, ...] = ()
    """Variables used as ``${NAME}`` whose value holds blanks: they become one argument, which is hardly ever meant."""


def resolve_command(unit: EffectiveUnit, command: UnitCommand, files: Mapping[str, str]) -> ResolvedCommand:
    """``command`` with the variables of the unit and of its environment files (path as named there → text).

    Files override ``Environment=`` and earlier files; files that are not given count as empty.
    """
    environment = {entry.name: entry for entry in unit.environment}
    for file in unit.environment_files:
        variables: tuple[Variable, ...] = parse_env_file(files.get(file.path, ""))
        for variable in variables:
            environment[variable.name] = EnvironmentEntry(variable.name, variable.value, file.path, variable.line)
    values = {name: entry.value for name, entry in environment.items()}
    whole = tuple(
        name for name, value in values.items() if len(value.split()) > 1 and any(word == f"${{{name}}}" for word in command.argv)
    )
    return ResolvedCommand(expand(command.argv, values), environment, whole)
