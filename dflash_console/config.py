"""The console's own settings: hosts, profiles, keys, theme, sampling.

The file is TOML and belongs to the user: a broken one never keeps the console from opening, and :mod:`config_edit` keeps what it
does not change. :mod:`config_check` checks it, imported only when there is a file, and by the screens only after their first
paint: pydantic's import alone costs a third of the time in which that has to stand.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from .knobs import KnobError, Value, find_knob
from .paths import read_file

EMBEDDED = "embedded"
"""The host that always exists: this machine's embedded engine."""


class Bounds:
    """The values that a number may have, in pydantic's words (``ge``, ``gt``, ``le``): metadata that only the check reads.

    ``annotated_types`` has classes for it, whose import alone would cost a fiftieth of the time to the first paint.
    """

    def __init__(self, **limits: float) -> None:
        self._limits = limits

    def __get_pydantic_core_schema__(self, source: object, handler: Callable[[object], dict[str, object]]) -> dict[str, object]:
        return {**handler(source), **self._limits}


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

    interval_s: Annotated[float, Bounds(ge=0.2, le=60)] = 1.0
    """Seconds between two samples of the metrics."""
    keep_days: Annotated[float, Bounds(gt=0, le=366)] = 7.0


@dataclass(frozen=True)
class ApplyDefaults:
    """``[apply]``: what an apply does when it is not told."""

    rollback_on_failure: bool = False
    drain: bool = False
    """Wait for running requests before a stop."""
    commit_confirm: bool = False
    """Let the host itself put the configuration back when a restart is not confirmed in time (where it has systemd)."""
    drain_timeout_s: Annotated[float, Bounds(ge=0, le=86_400)] = 120.0
    ready_timeout_s: Annotated[float, Bounds(gt=0, le=86_400)] = 1_800.0
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
        return {knobs[key].name: knobs[key].parse(word(value)) for key, value in self.profiles[name].items()}


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
    lost_host: str = ""
    """The ``default_host`` of a broken file, which is not in effect."""


def load_config(path: Path) -> LoadedConfig:
    """Read the settings. A missing file gives the defaults; a broken one gives the defaults and says what is wrong.

    One thing is taken from a broken file all the same: ``read_only``, so that a typing error takes no protection away.
    """
    try:
        data = read_file(path)
    except FileNotFoundError:
        return LoadedConfig(Config())
    except OSError as error:
        return LoadedConfig(Config(), (ConfigProblem(str(path), None, None, f"cannot be read: {error.strerror}"),))
    try:
        return parse_config(data.decode("utf-8-sig"), str(path))
    except UnicodeDecodeError as error:
        from .config_check import broken

        problem = ConfigProblem(str(path), None, None, f"is not UTF-8 text (byte {error.start})")
        return broken(data.decode("utf-8", "replace"), (problem,))


def parse_config(text: str, path: str) -> LoadedConfig:
    """Check the settings in ``text``; ``path`` is used in messages only."""
    from .config_check import check

    return check(text, path)


@dataclass(frozen=True)
class FirstLook:
    """What the first paint takes from the configuration file, read without checking the rest of it."""

    theme: str
    keymap: Mapping[str, str]


def first_look(path: Path) -> FirstLook:
    """Theme and keys as the file names them, where they can be read; :func:`load_config` says later what is wrong with it."""
    data: dict[str, object] = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        text = read_file(path).decode("utf-8-sig")
        import tomllib

        data = tomllib.loads(text)
    theme, keymap = data.get("theme"), data.get("keymap")
    keys = keymap.items() if isinstance(keymap, dict) else ()
    return FirstLook(theme if isinstance(theme, str) else Config.theme, {name: key for name, key in keys if isinstance(key, str)})


def word(value: str | int | float | bool) -> str:
    """A profile's value as a setting's text."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
