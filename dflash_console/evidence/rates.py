"""Live figures of a running engine, as a record. ``metrics.py`` computes them; every snapshot holds one from the first on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FAST_S = 2.0
"""Span of live throughput and commit length: long enough for two scrapes, short enough to follow."""


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
    """``every verify`` (counted by accepted drafts as they happen) or ``finished requests``."""
    commit_stale: bool = False
    """Nothing ran in the last interval, or only plain decoding: the value is the last one known, where verifies are counted
    that of :attr:`accept_histogram`."""
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
    """Verifies by accepted drafts: of the last minute in which there were some, and none from before a start or a hot change."""
    accept_since: float | None = None
    """Where counting began anew less than that minute ago: when, in seconds since the epoch by this machine's clock."""
    changed: bool = False
    """It began anew because a setting was changed while the engine ran."""
    round_s: float | None = None
    """Mean seconds of one draft-and-verify round in the span; ``None`` when there was none or the engine does not say."""
    round_shares: Mapping[str, float] = field(default_factory=dict)
    """What parts of a round take, 0 … 1 each and 1 together: ``verify``, ``draft`` …"""
