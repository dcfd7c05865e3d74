"""The console's own settings: hosts, profiles, keys, theme, sampling.

The file is TOML and belongs to the user: it is read with :mod:`tomllib`, edited with tomlkit (comments stay), and a broken one
never keeps the console from opening. pydantic checks it, and is imported only when there is a file to check, because its import
alone costs a third of the time in which the first screen has to stand.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt, Le

from .knobs import KnobError, Value, find_knob

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

EMBEDDED = "embedded"
"""The host that always exists: this machine's embedded engine."""


@dataclass(frozen=True)
class HostEntry:
    """``[hosts.NAME]``: one host. The table may be empty: then the name is the address."""

    address: str = ""
    """Anything that ``ssh`` accepts (``root@gpu-a``); empty = the host's name."""
    unit: str = ""
    """The service to manage; empty = search the host for an engine."""
    note: str = ""


@dataclass(frozen=True)
class Sampling:
    """``[sampling]``: how often the host is asked, and how long figures are kept."""

    interval_s: Annotated[float, Ge(0.2), Le(60)] = 1.0
    """Seconds between two samples of the metrics."""
    keep_days: Annotated[float, Gt(0), Le(366)] = 7.0


@dataclass(frozen=True)
class ApplyDefaults:
    """``[apply]``: what an apply does when it is not told."""

    rollback_on_failure: bool = False
    drain: bool = False
    """Wait for running requests before a stop."""
    drain_timeout_s: Annotated[float, Ge(0), Le(86_400)] = 120.0
    ready_timeout_s: Annotated[float, Gt(0), Le(86_400)] = 1_800.0
    """Longest wait for a start, in seconds; a large model needs many minutes."""


@dataclass(frozen=True)
class Config:
    """The whole file, checked."""

    theme: str = "dark"
    default_host: str = EMBEDDED
    read_only: bool = False
    """Refuse everything that changes a host."""
    sampling: Sampling = Sampling()
    apply: ApplyDefaults = ApplyDefaults()
    keymap: Mapping[str, str] = field(default_factory=dict)
    """Binding id → key or keys, comma-separated."""
    hosts: Mapping[str, HostEntry] = field(default_factory=dict)
    profiles: Mapping[str, Mapping[str, str | int | float | bool]] = field(default_factory=dict)
    """Profile → setting → value, as written."""

    def host(self, name: str) -> HostEntry:
        """The entry called ``name``, or one for the destination ``name`` itself."""
        return self.hosts.get(name, HostEntry(address=name))

    def host_names(self) -> tuple[str, ...]:
        """All configured hosts, the embedded one first."""
        return (EMBEDDED, *(name for name in self.hosts if name != EMBEDDED))

    def profile(self, name: str) -> dict[str, Value]:
        """The canonical settings of a profile.

        Raises:
            KnobError: no such profile.
        """
        if name not in self.profiles:
            raise KnobError(f"there is no profile called {name}; known: {', '.join(self.profiles) or 'none'}")
        knobs = {key: find_knob(key) for key in self.profiles[name]}
        return {knobs[key].name: knobs[key].parse(_word(value)) for key, value in self.profiles[name].items()}


@dataclass(frozen=True)
class ConfigProblem:
    """One thing that is wrong with the file, in words."""

    path: str
    line: int | None
    column: int | None
    message: str

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}, line {self.line}"
        if self.column is not None:
            place += f", column {self.column}"
        return f"{place}: {self.message}"


@dataclass(frozen=True)
class LoadedConfig:
    """What is in effect, and why it is not what the file says when there are problems."""

    config: Config
    problems: tuple[ConfigProblem, ...] = ()


def load_config(path: Path) -> LoadedConfig:
    """Read the settings. A missing file gives the defaults; a broken one gives the defaults and says what is wrong."""
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return LoadedConfig(Config())
    except OSError as error:
        return LoadedConfig(Config(), (ConfigProblem(str(path), None, None, f"cannot be read: {error.strerror}"),))
    except UnicodeDecodeError as error:
        return LoadedConfig(Config(), (ConfigProblem(str(path), None, None, f"is not UTF-8 text (byte {error.start})"),))
    return parse_config(text, str(path))


def parse_config(text: str, path: str) -> LoadedConfig:
    """Check the settings in ``text``; ``path`` is used in messages only."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return LoadedConfig(Config(), (_syntax_problem(str(error), path, text),))
    if not data:
        return LoadedConfig(Config())
    from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

    # Unknown keys are errors: a mistyped key that is silently ignored is worse than a file that is refused.
    forbid = with_config(ConfigDict(extra="forbid"))
    for model in (HostEntry, Sampling, ApplyDefaults, Config):
        forbid(model)
    try:
        config = TypeAdapter(Config).validate_python(data)
    except ValidationError as error:
        problems = tuple(_value_problem(detail, path, text) for detail in error.errors(include_url=False))
        return LoadedConfig(Config(), problems)
    problems = tuple(_profile_problems(config, path, text))
    if EMBEDDED in config.hosts and config.hosts[EMBEDDED].address:
        line = _find_line(text, ("hosts", EMBEDDED, "address"))
        problems += (ConfigProblem(path, line, None, "the host embedded is this machine's own engine and has no address"),)
    return LoadedConfig(Config() if problems else config, problems)


def set_value(path: Path, keys: Sequence[str], value: str | int | float | bool | None) -> None:
    """Set (``None`` removes) one value of the file, keeping everything else as it is, comments too.

    Args:
        keys: the tables and the key, outermost first: ``("profiles", "long", "draft_window")``.

    Raises:
        ValueError: the file is broken and is therefore left alone; the message says where.
        OSError: it cannot be written.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError
    from tomlkit.items import Table

    try:
        document = tomlkit.parse(path.read_text("utf-8")) if path.exists() else tomlkit.document()
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML ({error}); mend it first, it was left as it is") from None
    table: Table | tomlkit.TOMLDocument = document
    for depth, key in enumerate(keys[:-1]):
        if key not in table:
            # Only the innermost table gets a header of its own; [hosts] above [hosts.gpu-a] would be noise.
            table.add(key, tomlkit.table(is_super_table=depth < len(keys) - 2))
        inner = table[key]
        if not isinstance(inner, Table):
            raise ValueError(f"{path}: {key} is not a table; mend it first, it was left as it is")
        table = inner
    if value is None:
        if keys[-1] in table:
            table.remove(keys[-1])
    else:
        table[keys[-1]] = value
    _replace(path, tomlkit.dumps(document))


def save_profile(path: Path, name: str, settings: Mapping[str, Value]) -> None:
    """Write ``[profiles.NAME]`` with exactly these settings. Raises: as :func:`set_value`."""
    known = load_config(path).config.profiles.get(name, {})
    for knob in known:
        if knob not in settings:
            set_value(path, ("profiles", name, knob), None)
    for knob, value in settings.items():
        set_value(path, ("profiles", name, knob), value)


def _word(value: str | int | float | bool) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text, "utf-8")
    temporary.replace(path)


def _syntax_problem(message: str, path: str, text: str) -> ConfigProblem:
    match = re.search(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    words = message[: match.start()] if match else message
    if match and match[1]:
        return ConfigProblem(path, int(match[1]), int(match[2]), words)
    return ConfigProblem(path, text.count("\n") + 1, None, f"{words} (the file ends here)")


_WORDS = {
    "extra_forbidden": "is not a setting of the console",
    "unexpected_keyword_argument": "is not a setting of the console",
    "string_type": "must be text in quotes",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "mapping_type": "must be a table",
    "dict_type": "must be a table",
    "dataclass_type": "must be a table",
}


def _value_problem(detail: ErrorDetails, path: str, text: str) -> ConfigProblem:
    # pydantic appends the branch of a union that it tried; those are no keys of the file.
    keys = tuple(str(part) for part in detail["loc"] if str(part) not in ("str", "int", "float", "bool", "[key]"))
    said = _WORDS.get(detail["type"], detail["msg"][:1].lower() + detail["msg"][1:])
    return ConfigProblem(path, _find_line(text, keys), None, f"{'.'.join(keys)} {said}")


def _profile_problems(config: Config, path: str, text: str) -> list[ConfigProblem]:
    problems = []
    for name, settings in config.profiles.items():
        for knob, value in settings.items():
            try:
                find_knob(knob).parse(_word(value))
            except KnobError as error:
                line = _find_line(text, ("profiles", name, knob))
                problems.append(ConfigProblem(path, line, None, f"profiles.{name}: {error}"))
    return problems


_HEADER = re.compile(r"^\s*\[\[?\s*([^\]]+?)\s*\]\]?")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def _find_line(text: str, keys: tuple[str, ...]) -> int | None:
    """The line that sets ``keys``, or the header of the innermost table on the way to it; ``None`` = not found."""
    table: tuple[str, ...] = ()
    best: tuple[int, int] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = here = _parts(header[1])
        elif key := _KEY.match(line):
            here = (*table, *_parts(key[1]))
        else:
            continue
        if here == keys[: len(here)] and (best is None or len(here) > best[0]):
            best = (len(here), number)
    return None if best is None else best[1]
