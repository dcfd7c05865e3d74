"""What an operation says while it runs and at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ..evidence.journal import LogLine
from ..plan import Mode


class Verdict(Enum):
    """How an operation ended. Only :attr:`CONFIRMED` means that the change is known to be in effect."""

    CONFIRMED = "confirmed"
    UNKNOWN = "applied, not confirmable"
    """Everything worked, and this engine gives no evidence of at least one changed setting."""
    NO_RESTART = "no restart happened"
    PROCESS_DIED = "the process died"
    OTHER_VALUE = "another value is in effect"
    NO_LINE = "no confirmation line"
    TIMED_OUT = "timed out"
    REFUSED = "refused"
    """Nothing was changed: a finding, a lock, a file that changed since the plan, or the engine said no."""
    UNNEEDED = "nothing to do"
    """What was asked for is so already. Nothing was changed, and nothing was proven anew."""
    WRITE_FAILED = "the write failed"
    """The file is as it was, and so is all else; only a hot change, which is written down last, is in effect by then."""
    LINK_DOWN = "unknown, the link is down"
    """The link to the host was lost and did not come back in time: the change goes on there, and the operation stays open."""
    NOT_READY = "not ready"
    BAD_ANSWER = "no good answer"
    ROLLBACK_FAILED = "the roll-back failed"
    """The worst case: neither the new nor the old configuration is known to run."""
    CANCELLED = "cancelled"


class StageStatus(Enum):
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True)
class Stage:
    """One step of an operation."""

    name: str
    status: StageStatus
    seconds: float = 0.0
    evidence: str = ""
    """What shows that it is done, or why it failed, in words."""
    line: int | None = None
    """Log line of this start that says so."""
    expected_s: float | None = None
    """From this host's earlier starts."""


@dataclass(frozen=True)
class StageEvent:
    """A stage began, moved or ended."""

    operation_id: str
    stage: Stage
    planned: tuple[str, ...]
    """All stages of the operation, in order."""
    elapsed_s: float
    """Since the operation began."""
    left_s: float | None = None
    """Estimated from earlier starts; ``None`` when there were none."""
    progress: tuple[int, int] | None = None
    """Done and total of a bar that the engine draws."""
    rolling_back: bool = False


OnEvent = Callable[[StageEvent], None]


@dataclass(frozen=True)
class ApplyResult:
    """How an operation ended."""

    confirmed: bool
    verdict: Verdict
    reason: str
    """One or two sentences: what happened, why, what to do."""
    operation_id: str
    mode: Mode
    stages: tuple[Stage, ...]
    invocation_id: str | None = None
    """Of the start that runs now, as far as it is known."""
    lines: tuple[LogLine, ...] = ()
    """Log lines that show the cause."""
    rolled_back: bool = False
    """The previous configuration was restored *and* confirmed."""
    rollback: ApplyResult | None = None
    seconds: float = 0.0

    @classmethod
    def not_begun(cls, verdict: Verdict, reason: str, invocation_id: str | None = None) -> ApplyResult:
        """The answer to what is refused or needs no doing, given before there is an operation."""
        return cls(False, verdict, reason, "", Mode.RESTART, (), invocation_id)

    @property
    def good(self) -> bool:
        """What was asked for is so: it was done and confirmed, or needed no doing."""
        return self.confirmed or self.verdict is Verdict.UNNEEDED

    @property
    def words(self) -> str:
        """Verdict and reason as one sentence, the verdict once: many reasons say it themselves."""
        return self.reason if self.verdict.value in self.reason else f"{self.verdict.value}: {self.reason}"


class StageFailed(Exception):
    """A stage failed; carries the verdict, the reason and the lines that show it."""

    def __init__(self, verdict: Verdict, reason: str, lines: tuple[LogLine, ...] = ()) -> None:
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason
        self.lines = lines


@dataclass(frozen=True)
class Timeouts:
    """Longest waits, in seconds."""

    restart: float = 90.0
    """From asking for a restart to a new invocation id."""
    ready: float = 1_800.0
    """From the new process to a server that answers."""
    prompt: float = 120.0
    drain: float = 120.0
    hot: float = 5.0
    """For a hot change to show in the log and in the engine's report."""
    link: float = 60.0
    """For a lost link to come back, in a step that has no time of its own: 24 s until a dead one is noticed, and some tries. The
    lock on the host outlives a dead link by 90 s, so what is waited for longer might go on beside another console's change."""
