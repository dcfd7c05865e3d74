"""What is known about one service at one moment: immutable snapshots that screens, drift and plans read.

Every value knows its source and its age. *Unknown* is a value of its own: not zero, not "off", not "mismatch".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from engine_launch.spec.drafter_config import DrafterConfig

from .evidence.engine_log import StartLog
from .evidence.metrics import MetricsSample
from .evidence.process import ProcessEvidence
from .evidence.server import Loads, ServerInfo
from .hosts.service import ServiceConfig, ServiceState
from .knobs import Value


class Known(Enum):
    """How much a reading says."""

    VALUE = "value"
    ABSENT = "absent"
    """The source was read and does not name the setting (a flag that is not given, a key that is not logged)."""
    UNKNOWN = "unknown"
    """The source could not be read."""


@dataclass(frozen=True)
class Reading:
    """One setting as one source gives it."""

    known: Known
    value: Value | None = None
    text: str = ""
    """As the source wrote it, or a short phrase for the screen ("5 of 6 layers, 2048")."""
    where: str = ""
    """File and line, endpoint and field, or log line number."""
    why: str = ""
    """For ``UNKNOWN``: why; for a value: a remark."""


UNREAD = Reading(Known.UNKNOWN, why="not read yet")


T = TypeVar("T")


@dataclass(frozen=True)
class Aged(Generic[T]):
    """A value with the moment it was read, by this machine's monotonic clock (for ages only, never for order on a host)."""

    value: T
    at: float

    def age(self, now: float) -> float:
        return max(0.0, now - self.at)


@dataclass(frozen=True)
class Rates:
    """Live figures of the last sampling interval, each from the best source there was (its label says which)."""

    decode_tok_s: float | None = None
    decode_source: str = ""
    """``counters`` (realtime_tokens_total), ``decode log line`` or ``gauge``."""
    decode_gauge_tok_s: float | None = None
    """The engine's own gauge beside it; it sticks when idle."""
    commit_length: float | None = None
    """Tokens per verify of the requests that finished in the span; ``None`` when none did."""
    commit_source: str = ""
    commit_stale: bool = False
    """Nothing ran in the last interval: the value is the last one known."""
    accept_length_gauge: float | None = None
    running: int | None = None
    queued: int | None = None
    ttft_p50_s: float | None = None
    ttft_p95_s: float | None = None
    kv_usage: float | None = None
    """0 … 1."""
    kv_tokens: int | None = None
    draft_kv_bytes: int | None = None
    cached_share: float | None = None
    """Prompt tokens served from the prefix cache ÷ prompt tokens, in the span."""
    accept_histogram: tuple[int, ...] = ()
    """Verifies by accepted drafts, in the span shown by the panel."""


@dataclass(frozen=True)
class GpuRow:
    """One GPU as ``nvidia-smi`` reports it; ``None`` = it could not say."""

    index: int
    name: str
    utilisation: float | None
    memory_used: float | None
    """MiB."""
    memory_total: float | None
    power: float | None
    """Watt."""
    temperature: float | None
    """°C."""
    note: str = ""


@dataclass(frozen=True)
class HostState:
    """A snapshot of one host's service. Each part is replaced when its source is read; a part that is ``None`` was never read."""

    host: str
    unit: str
    embedded: bool = False
    """The host is this machine's embedded engine (a small model on this CPU)."""
    service: Aged[ServiceState] | None = None
    config: Aged[ServiceConfig] | None = None
    process: Aged[ProcessEvidence] | None = None
    server: Aged[ServerInfo] | None = None
    loads: Aged[Loads] | None = None
    metrics: Aged[MetricsSample] | None = None
    rates: Rates = Rates()
    log: Aged[StartLog] | None = None
    """What the log of the present start has said so far."""
    drafter: Aged[DrafterConfig] | None = None
    gpus: Aged[tuple[GpuRow, ...]] | None = None
    ready: bool = False
    problems: Mapping[str, str] = field(default_factory=dict)
    """Source → why it cannot be read right now (one sentence)."""
    revision: int = 0
    """Grows with every snapshot."""

    def newest(self) -> float | None:
        """When the newest part was read (monotonic)."""
        parts = (self.service, self.config, self.process, self.server, self.loads, self.metrics, self.log)
        times = [part.at for part in parts if part is not None]
        return max(times, default=None)
