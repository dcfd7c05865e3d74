"""Rows of the history. Speeds are tok/s. Times are seconds since the epoch: by this machine's clock of what was measured here, by
the host's of a restart or a hot change, of which it tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True)
class Sample:
    """Live figures at one moment, or the mean of a span of them; ``None`` = not known then."""

    at: float
    decode_tok_s: float | None = None
    commit_length: float | None = None
    running: float | None = None
    queued: float | None = None
    kv_usage: float | None = None


class MarkKind(Enum):
    RESTART = "restart"
    STOP = "stop"
    HOT = "hot change"
    APPLY = "apply"
    FAILURE = "failure"


@dataclass(frozen=True)
class Mark:
    """A moment that the plots show as a line."""

    at: float
    kind: MarkKind
    text: str


@dataclass(frozen=True)
class RequestRow:
    """One prompt that the console sent, without its text."""

    at: float
    ttft_s: float | None
    decode_tok_s: float | None
    commit_length: float | None
    completion_tokens: int | None
    prompt_tokens: int | None = None
    error: str = ""


@dataclass(frozen=True)
class OperationRow:
    """One finished operation."""

    at: float
    operation_id: str
    what: str
    """``apply``, ``start``, ``stop``, ``restart``, ``rollback``."""
    verdict: str
    reason: str
    seconds: float
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds by stage name, of stages that were done; later estimates stand on them."""


@dataclass(frozen=True)
class Baseline:
    """Plain decoding measured on this host, from a start without speculation."""

    at: float
    decode_tok_s: float
    note: str = ""
