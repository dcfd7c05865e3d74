"""What a line of an engine's log can tell, as records. Formats: SGLang 0.5.17 and its DFLASH and DDTREE relatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from .terminal_text import Progress


@dataclass(frozen=True)
class Rank:
    """Which process of the engine wrote the line; ``None`` = the prefix does not say."""

    dp: int | None = None
    tp: int | None = None
    ep: int | None = None
    pp: int | None = None

    @property
    def first(self) -> bool:
        """The line comes from the first tensor and pipeline rank, or from an engine without ranks."""
        return not self.tp and not self.pp


NO_RANK = Rank()


class ModelPart(Enum):
    """Which model a loading line speaks of."""

    TARGET = "target"
    DRAFT = "draft"
    UNKNOWN = "unknown"


class WarningKind(Enum):
    """Warnings that change what a measurement means."""

    NO_EFFECT = "flag has no effect"
    GREEDY_FALLBACK = "temperature is ignored"
    BACKEND_FALLBACK = "attention backend replaced"
    BLOCK_MISMATCH = "block size differs from the drafter's"
    GRAPH_SKIPPED = "no CUDA graph"
    REQUEST_CAP = "running requests capped"
    HOT_REFUSED = "change refused"


@dataclass(frozen=True)
class ServerArgsLine:
    """The effective value of every flag at start, as the engine printed it (secrets masked)."""

    settings: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class LoadWeight:
    ended: bool
    part: ModelPart = ModelPart.UNKNOWN
    model_type: str = ""
    """Class name: ``Qwen3ForCausalLM``, ``DFlashDraftModel``."""
    seconds: float | None = None
    memory_gb: float | None = None


@dataclass(frozen=True)
class DraftRunner:
    """The line that confirms the drafter's settings."""

    algorithm: str
    values: Mapping[str, str]
    """Every ``key=value`` of the line, unknown keys too."""


@dataclass(frozen=True)
class DDTreeWorker:
    """The second confirmation line of engines that print the tree apart from the drafter."""

    values: Mapping[str, str]


@dataclass(frozen=True)
class MaskToken:
    values: Mapping[str, str]


@dataclass(frozen=True)
class KvPool:
    tokens: int | None
    dtype: str
    gigabytes: float | None
    """K and V together."""


@dataclass(frozen=True)
class GraphCapture:
    ended: bool
    what: str = ""
    """``target verify``, ``draft verify`` …; empty when the line does not say."""
    seconds: float | None = None


@dataclass(frozen=True)
class SchedulerSummary:
    """``max_total_num_tokens=…, max_running_requests=…, context_len=…``: limits that the engine computed."""

    values: Mapping[str, str]


@dataclass(frozen=True)
class Ready:
    pass


@dataclass(frozen=True)
class DecodeBatch:
    """One decode line: figures over the interval since the line before."""

    running: int | None = None
    queued: int | None = None
    tokens: int | None = None
    token_usage: float | None = None
    accept_len: float | None = None
    """Committed tokens per request and verify, bonus included (commit length)."""
    accept_rate: float | None = None
    """As printed. Builds differ in what they divide by, so it is never derived nor compared between chain and tree."""
    graph: bool | None = None
    """A captured graph ran (CUDA, NPU or CPU)."""
    throughput: float | None = None
    """tok/s, idle time before the first line of a burst included."""
    iteration: int | None = None


@dataclass(frozen=True)
class PrefillBatch:
    new_sequences: int | None = None
    new_tokens: int | None = None
    cached_tokens: int | None = None
    running: int | None = None
    queued: int | None = None
    token_usage: float | None = None
    throughput: float | None = None

    @property
    def from_idle(self) -> bool:
        """Nothing was running when this prefill began."""
        return self.running == 0


@dataclass(frozen=True)
class FirstVerify:
    algorithm: str
    detail: str
    """As printed: ``num_correct_drafts_per_req=[3]``."""


@dataclass(frozen=True)
class HotChange:
    """A setting that was changed, or refused, while the engine ran."""

    name: str
    """The engine's name: ``speculative_ddtree_budget``."""
    old: str
    new: str
    accepted: bool
    reason: str = ""

    @property
    def differs(self) -> bool:
        """The setting has another value now: it was taken, and is not what it was."""
        return self.accepted and _amount(self.old) != _amount(self.new)


@dataclass(frozen=True)
class EngineWarning:
    kind: WarningKind
    text: str
    flag: str = ""
    """The flag it speaks of, when it names one."""


@dataclass(frozen=True)
class AccessLine:
    method: str
    path: str
    status: int


@dataclass(frozen=True)
class ErrorLine:
    text: str


@dataclass(frozen=True)
class TracebackStart:
    text: str


@dataclass(frozen=True)
class Other:
    text: str


EngineEvent = (
    ServerArgsLine
    | LoadWeight
    | Progress
    | DraftRunner
    | DDTreeWorker
    | MaskToken
    | KvPool
    | GraphCapture
    | SchedulerSummary
    | Ready
    | DecodeBatch
    | PrefillBatch
    | FirstVerify
    | HotChange
    | EngineWarning
    | AccessLine
    | ErrorLine
    | TracebackStart
    | Other
)
"""What one line tells."""


@dataclass(frozen=True)
class ReadLine:
    """One event with what its line's prefix says."""

    event: EngineEvent
    rank: Rank = NO_RANK
    stamp: str = ""
    """Date and time as the engine printed them (its own clock and zone), possibly without the date."""
    text: str = ""
    """The line without prefix and escapes."""


_WORDS = {"none": 0.0, "off": 0.0, "auto": 0.0, "false": 0.0, "on": 1.0, "true": 1.0}
"""How engines report what ``/set_internal_state`` takes as a number."""


def _amount(value: str) -> float | str:
    try:
        return _WORDS[value.lower()] if value.lower() in _WORDS else float(value)
    except ValueError:
        return value
