"""What is known about an answer: its chunks while it streams, its figures when it has ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class CommitSource(Enum):
    """Where a request's commit length comes from, best first."""

    HISTOGRAM = "histogram"
    """Mean of the request's own histogram (accepted drafts + 1)."""
    VERIFY_CALLS = "verify calls"
    """(tokens − 1) ÷ verify calls: the first token comes from prefill, not from a verify."""
    COUNTERS = "server's counters over the run"
    """(tokens − requests) ÷ verify calls of a whole run, where the counters show that nothing else was answered meanwhile."""
    REPORTED = "server's accept length"
    """The server's own figure, where it is all there is."""
    NONE = "not reported"


class SpeedSource(Enum):
    """Where a request's decode throughput comes from."""

    CLIENT = "client clock"
    """Tokens after the first chunk ÷ time between the first and the last chunk."""
    ENGINE = "engine"
    """The engine's figure; the answer came in one piece, so there is no interval to measure here."""
    NONE = "not measured"


@dataclass(frozen=True)
class Chunk:
    """One event of a stream that brought something: with speculation usually all tokens of one verify."""

    request: int
    """Which of the parallel requests, from 0."""
    text: str
    """New text; may be empty when the tokens end in the middle of a character."""
    at: float
    """Seconds since the request was sent."""
    tokens: int | None = None
    """New tokens; ``None`` when the server does not say (a chunk is not a token)."""
    token_ids: tuple[int, ...] = ()
    """Their ids, where the server gives them."""
    first: bool = False
    """The first one that brought something: its token comes from prefill."""
    reasoning: bool = False
    """Text of the model's reasoning, not of its answer."""


@dataclass(frozen=True)
class RequestRecord:
    """One request's figures. ``None`` = the server does not report it and it cannot be measured here."""

    request: int
    text: str = ""
    reasoning_text: str = ""
    token_ids: tuple[int, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """As the server counts them; never the number of chunks."""
    cached_tokens: int | None = None
    """Prompt tokens that came from the prefix cache."""
    chunks: int = 0
    """Events that brought text or tokens."""
    ttft_s: float | None = None
    """Seconds from sending to the first text or token; an event that names the role only does not count."""
    total_s: float = 0.0
    """Seconds from sending to the end of the stream."""
    decode_tok_s: float | None = None
    decode_source: SpeedSource = SpeedSource.NONE
    commit_length: float | None = None
    """Tokens per verify: accepted drafts + 1."""
    commit_source: CommitSource = CommitSource.NONE
    accept_histogram: tuple[int, ...] = ()
    """Index = accepted drafts of a verify, value = how many verifies accepted so many."""
    verify_calls: int | None = None
    reported_accept_length: float | None = None
    """The server's own figure (SGLang: tokens ÷ verifies, the prefill's token among them)."""
    finish_reason: str | None = None
    """``stop``, ``length``, ``abort`` …"""
    error: str | None = None
    """One sentence when the request failed; the figures then cover what came before."""
    endpoint: str = ""
    """Which of the server's endpoints answered: a user's turn may be answered by either (``load/client.py``)."""
    note: str = ""
    """What this server does not report, and why; empty when it reports everything."""

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def tokens_per_chunk(self) -> float | None:
        """A cross-check of the commit length: about equal when each verify makes one event."""
        if self.completion_tokens is None or self.chunks == 0:
            return None
        return self.completion_tokens / self.chunks

    @property
    def counted(self) -> str:
        """The answer's length in words: tokens, or chunks said to be chunks."""
        if self.completion_tokens is None:
            return f"≈ {self.chunks} chunks, not tokens"
        return f"{self.completion_tokens} tokens"


def mean_commit_length(histogram: tuple[int, ...]) -> float | None:
    """Tokens per verify of a histogram of accepted drafts; ``None`` when there was no verify."""
    verifies = sum(histogram)
    if verifies <= 0:
        return None
    return sum((accepted + 1) * count for accepted, count in enumerate(histogram)) / verifies
