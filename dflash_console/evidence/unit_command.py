"""The command that a systemd service starts: its files merged, specifiers and variables filled in, each word's origin kept.

Specifiers are replaced when the manager loads a unit, variables when the process starts (systemd.service(5)): so an
environment file counts as it is now, and the rest as it was loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from .env_file import lost_to_mark, parse_env_file
from .unit import EffectiveUnit, EnvironmentEntry, UnitCommand, UnitSource, read_unit
from .unit_specifiers import SpecifiedText, UnitName, replace_specifiers
from .unit_words import ExpandedWord, expand_words, variables_in

_OF_EACH_START = ("INVOCATION_ID", "JOURNAL_STREAM", "MAINPID", "NOTIFY_SOCKET", "SYSTEMD_EXEC_PID", "WATCHDOG_PID")
"""Set by the manager (systemd.exec(5), "Environment variables in spawned processes")."""


@dataclass(frozen=True)
class EnvText:
    """One environment file as it is on the host."""

    path: str
    text: str | None = field(repr=False)
    """``None`` when it exists and cannot be read."""


@dataclass(frozen=True)
class UnitFiles:
    """Everything that makes up a service's configuration on its host."""

    unit: str
    sources: tuple[UnitSource, ...]
    """The unit first, then its drop-ins in systemd's order."""
    env_files: tuple[EnvText, ...] = ()
    specifiers: Mapping[str, str] = field(default_factory=dict)
    """What the host tells of those that the unit's name does not."""
    ambient: Mapping[str, str] = field(default_factory=dict)
    """Variables that the manager sets for every service, and those of the service's user."""

    def text(self, path: str) -> str | None:
        """The text of one file; ``None`` when there is none, or when it cannot be read."""
        found = next((source.text for source in self.sources if source.path == path), None)
        return found if found is not None else next((file.text for file in self.env_files if file.path == path), None)

    def with_text(self, path: str, text: str | None) -> UnitFiles:
        """The files with one of them changed, added (a drop-in takes its place in the order) or removed (``None``)."""
        if any(file.path == path for file in self.env_files):
            files = (replace(file, text=text) if file.path == path else file for file in self.env_files)
            return replace(self, env_files=tuple(file for file in files if file.path != path or text is not None))
        sources = [source for source in self.sources if source.path != path]
        if text is not None:
            if sources and self.sources[0].path == path:
                sources.insert(0, UnitSource(path, text))
            else:
                head, drop_ins = sources[:1], [*sources[1:], UnitSource(path, text)]
                sources = [*head, *sorted(drop_ins, key=lambda source: _name(source.path))]
        return replace(self, sources=tuple(sources))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


@dataclass(frozen=True)
class Environment:
    """The variables of a service."""

    entries: Mapping[str, EnvironmentEntry]
    from_files: frozenset[str]
    unread: tuple[str, ...]
    """Environment files that cannot be read."""
    unknown: tuple[str, ...] = ()
    """Variables whose values only the manager knows, some of them another one at each start."""
    marked: Mapping[str, str] = field(default_factory=dict)
    """Environment files that begin with a byte order mark, each with the variable that systemd ignores for it."""


@dataclass(frozen=True)
class CommandView:
    """The service's command as its files make it."""

    unit: EffectiveUnit
    command: UnitCommand | None
    """The one that starts the engine, as written."""
    specified: tuple[SpecifiedText, ...] = ()
    """Each word of it with its specifiers replaced."""
    words: tuple[ExpandedWord, ...] = ()
    """The arguments that the process gets, with their origins in :attr:`specified`."""
    environment: Mapping[str, EnvironmentEntry] = field(default_factory=dict)
    """Variables of the process, each with the file that sets it (empty: the manager sets it)."""
    from_files: frozenset[str] = frozenset()
    """Names that environment files set."""
    values: Mapping[str, str] = field(default_factory=dict)
    """What the words were filled in with."""
    problems: tuple[str, ...] = ()
    """Why a part of the command is not known: one sentence each."""
    marked: Mapping[str, str] = field(default_factory=dict)
    """As in :attr:`Environment.marked`."""

    @property
    def argv(self) -> tuple[str, ...]:
        return tuple(word.value for word in self.words)

    @property
    def expands(self) -> bool:
        """Whether variables are expanded in this command."""
        return self.command is not None and ":" not in self.command.prefix


def specifier_values(files: UnitFiles) -> dict[str, str]:
    return {**files.specifiers, **UnitName(files.unit).specifiers()}


def view_command(files: UnitFiles) -> CommandView:
    """Merge the files and fill in everything that is known. Nothing raises."""
    unit = read_unit(files.sources)
    specifiers = specifier_values(files)
    environment = read_environment(unit, files, specifiers)
    command = unit.start
    if command is None:
        return CommandView(unit, None, environment=environment.entries, from_files=environment.from_files)
    specified = tuple(replace_specifiers(word, specifiers) for word in command.argv)
    problems = [f"{command.path}:{command.line}: %{letter} is not known here" for word in specified for letter in word.unknown]
    values = {name: entry.value for name, entry in environment.entries.items()}
    texts = [word.value for word in specified]
    if ":" in command.prefix:
        words = tuple(ExpandedWord(text, index) for index, text in enumerate(texts))
    else:
        # What an unreadable file may set stays as it is written: no one may take a guess for the command.
        values |= {name: f"${{{name}}}" for name in environment.unknown}
        for name, path in _uncertain(texts, environment).items():
            values[name] = f"${name}"
            problems.append(f"the command takes ${name}, which {path} may set, and that file cannot be read")
        words = expand_words(texts, values)
    if "@" in command.prefix:
        words = tuple(word for word in words if word.index > 0)
    entries, from_files, marked = environment.entries, environment.from_files, environment.marked
    return CommandView(unit, command, specified, words, entries, from_files, values, tuple(problems), marked)


def expand_loaded(argv: Sequence[str], view: CommandView, loaded: Mapping[str, str]) -> tuple[str, ...]:
    """The command as the manager has loaded it, with variables as a start would see them now.

    Args:
        argv: the loaded words; specifiers are replaced in them and variables are not.
        loaded: ``Environment=`` as the manager has loaded it; environment files are read at each start, so theirs win.
    """
    if not view.expands:
        return tuple(argv)
    written = {entry.name for entry in view.unit.environment}
    unwritten = {name: value for name, value in view.values.items() if name not in written}
    from_files = {name: view.values[name] for name in view.from_files if name in view.values}
    values = _without({**unwritten, **loaded, **from_files}, view.unit.lists.get("UnsetEnvironment", ()))
    return tuple(word.value for word in expand_words(argv, values))


def _without(values: Mapping[str, str], unset: Sequence[str]) -> dict[str, str]:
    """The variables without those that ``UnsetEnvironment=`` takes away: by name, or only with one value (``NAME=VALUE``)."""
    return {name: value for name, value in values.items() if name not in unset and f"{name}={value}" not in unset}


def read_environment(unit: EffectiveUnit, files: UnitFiles, specifiers: Mapping[str, str]) -> Environment:
    """The variables that a start would set, without those that ``UnsetEnvironment=`` takes away. Specifiers are in
    ``Environment=`` only; files win over it, later ones first."""
    found = {name: EnvironmentEntry(name, value, "", 0) for name, value in files.ambient.items()}
    for entry in unit.environment:
        found[entry.name] = replace(entry, value=replace_specifiers(entry.value, specifiers).value)
    from_files: set[str] = set()
    unread: list[str] = []
    marked: dict[str, str] = {}
    for named in unit.environment_files:
        pattern = replace_specifiers(named.path, specifiers).value
        for file in matching(pattern, files.env_files):
            if file.text is None:
                unread.append(file.path)
                continue
            if lost := lost_to_mark(file.text):
                marked[file.path] = lost
            for variable in parse_env_file(file.text):
                found[variable.name] = EnvironmentEntry(variable.name, variable.value, file.path, variable.line)
                from_files.add(variable.name)
    unknown = [name for name in (*_OF_EACH_START, *unit.lists.get("PassEnvironment", ())) if name not in found]
    kept = _without({name: entry.value for name, entry in found.items()}, unit.lists.get("UnsetEnvironment", ()))
    unset = set(unit.lists.get("UnsetEnvironment", ()))
    return Environment(
        {name: entry for name, entry in found.items() if name in kept},
        frozenset(from_files) & kept.keys(),
        tuple(unread),
        tuple(name for name in unknown if name not in unset),
        marked,
    )


def matching(pattern: str, files: Sequence[EnvText]) -> tuple[EnvText, ...]:
    """The files that one ``EnvironmentFile=`` names, in the order in which systemd reads them."""
    folder, _, name = pattern.rpartition("/")
    hits = [f for f in files if f.path == pattern or (f.path.rpartition("/")[0] == folder and fnmatchcase(_name(f.path), name))]
    return tuple(sorted(hits, key=lambda file: file.path))


def _uncertain(words: Sequence[str], environment: Environment) -> dict[str, str]:
    """Variables that the words take and that a file which cannot be read may set, with that file."""
    if not environment.unread:
        return {}
    taken = {name for word in words for name in variables_in(word)}
    # A file that comes last may override every other; which file sets what is not known without reading them all.
    return dict.fromkeys(sorted(taken), environment.unread[-1])
