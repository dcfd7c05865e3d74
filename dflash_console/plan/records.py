"""What a plan is made from, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from engine_launch.spec.drafter_config import DrafterConfig

from ..evidence.file_edits import FileEdit
from ..knobs import KNOBS, Source, Value, show_value


class PlanError(Exception):
    """No plan can be made; the message is one sentence: what is missing and what to do."""


class Mode(Enum):
    """How a change reaches the engine."""

    AUTO = "auto"
    """Hot when the running engine takes every changed setting, else with a restart."""
    HOT = "hot"
    RESTART = "restart"


@dataclass(frozen=True)
class Change:
    """What is wanted. ``None`` as a value takes the flag away and leaves the setting to the engine."""

    settings: Mapping[str, Value | None] = field(default_factory=dict)
    mode: Mode = Mode.AUTO
    persist: bool = False
    """After a confirmed hot change, write it into the configuration too."""
    commit_confirm: bool = False
    """Let the host itself put the configuration back unless the change is confirmed in time."""


class Severity(Enum):
    """What a finding does to a plan: an error blocks it, a warning asks, an info only tells."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Finding:
    """One thing that was found before anything was changed."""

    severity: Severity
    code: str
    """Stable, for scripts: ``window_below_block``."""
    message: str
    """One sentence: what, why, what to do."""
    knob: str = ""

    @classmethod
    def error(cls, code: str, message: str, knob: str = "") -> Finding:
        return cls(Severity.ERROR, code, message, knob)

    @classmethod
    def warning(cls, code: str, message: str, knob: str = "") -> Finding:
        return cls(Severity.WARNING, code, message, knob)

    @classmethod
    def info(cls, code: str, message: str, knob: str = "") -> Finding:
        return cls(Severity.INFO, code, message, knob)


@dataclass(frozen=True)
class KnobChange:
    """One setting that the plan changes."""

    knob: str
    old: Value | None
    """In effect now, else as configured; ``None`` = not known or left to the engine."""
    new: Value | None
    sources: tuple[Source, ...]
    """Which sources can prove the new value; empty = it can be applied and not confirmed."""
    how: str
    """The same in words."""

    @property
    def confirmable(self) -> bool:
        return bool(self.sources)


@dataclass(frozen=True)
class Predictions:
    """What to expect; ``None`` = too little is known to say. Arithmetic, not measurement."""

    verify_width: int | None = None
    """Rows of the target's verify pass: tree budget + 1, or the block size of a chain."""
    verify_ms: float | None = None
    """Of one verify so wide, from the curve that the engine measured; ``None`` where it has measured none."""
    draft_kv_bytes_per_request: int | None = None
    """At ``context`` tokens."""
    draft_kv_bytes_total: int | None = None
    """For ``requests`` requests at ``context`` tokens each."""
    draft_kv_bytes_now: int | None = None
    """Per request at ``context`` tokens with the windows in effect now."""
    context: int | None = None
    requests: int | None = None
    restart_s: float | None = None
    """From asking for the restart to an answered prompt, from this host's own earlier starts."""
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    """The same by stage."""


@dataclass(frozen=True)
class Survey:
    """What had to be asked of the host for this very plan."""

    drafter: DrafterConfig | None = None
    """Of the drafter that the plan would run."""
    drafter_path: str = ""
    drafter_digest: str = ""
    drafter_problem: str = ""
    port_taken: bool = False
    """Something that is not this service listens on the port that the plan would use."""
    port_holder: str = ""
    """Who that is (``pid 4021 (python3, old.service)``), where it can be seen."""
    gpu_strangers: tuple[str, ...] = ()
    """Processes that are not this unit's and hold GPU memory, with how much."""
    unit_problems: tuple[str, ...] = ()
    """What would make the change fail for certain."""
    unit_remarks: tuple[str, ...] = ()
    """What the service manager complains about already, and runs the unit nevertheless."""
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    undo_problem: str = ""
    """Why the host has no timer that could put the configuration back; asked only for a change with commit-confirm."""
    longest_start_s: float = 1_800.0
    """For how long a start is waited for, in seconds: what a timer waits where no earlier start was timed."""


@dataclass(frozen=True)
class Plan:
    """What applying would do. Texts and commands may hold keys and so never take part in ``repr``; what is meant for the
    screen (:attr:`diff`, :attr:`shown_command`) is masked."""

    host: str
    unit: str
    mode: Mode
    """``HOT`` or ``RESTART``, never ``AUTO``."""
    target: str
    """The file that would be written; several, comma-separated."""
    edits: tuple[FileEdit, ...]
    """Every file that would change."""
    diff: str
    """Unified; empty when no file would change."""
    command: tuple[str, ...] = field(repr=False)
    """The effective command after the change."""
    old_command: tuple[str, ...] = field(repr=False)
    """The effective command before it."""
    shown_command: tuple[str, ...]
    changes: tuple[KnobChange, ...]
    predictions: Predictions
    findings: tuple[Finding, ...]
    hot_values: Mapping[str, float] = field(default_factory=dict)
    """Name and number of each setting to post to the running engine."""
    persist: bool = False
    digests: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of every file that the plan was made from, by path; apply refuses when one has changed."""
    invocation_id: str | None = None
    """The start that was running when the plan was made."""
    drafter: DrafterConfig | None = field(default=None, repr=False)
    """Of the drafter that the plan would run."""
    undo_after_s: int | None = None
    """Seconds after which the host itself puts the files back, unless the change was confirmed; ``None`` = no timer."""
    takes_up: str = ""
    """The operation that was cut off and that this plan undoes or finishes; empty for a plan of its own."""

    @property
    def hot_numbers(self) -> dict[str, str]:
        """Each setting to post with its number, and in brackets what that stands for where it does not say so: ``0 (auto)``."""
        named = [change for change in self.changes if change.knob in KNOBS and change.new is not None]
        words = {KNOBS[change.knob].hot_name: show_value(change.new) for change in named}
        numbers = {name: f"{value:g}" for name, value in self.hot_values.items()}
        return {
            name: number if (word := words.get(name, number)) == number else f"{number} ({word})"
            for name, number in numbers.items()
        }

    @property
    def blocked(self) -> bool:
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def writes(self) -> bool:
        """Whether a file of the configuration would change."""
        return bool(self.edits)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.WARNING)
