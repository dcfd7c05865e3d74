"""Figures of a batch of requests, and whether two answers are the same."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from ..evidence.metrics_text import MetricsSample
from .records import CommitSource, RequestRecord, mean_commit_length


@dataclass(frozen=True)
class LoadSummary:
    """A batch in one line. ``None`` = no request reports it."""

    requests: int
    failed: int
    completion_tokens: int | None
    """Of the requests that report a count."""
    wall_s: float
    tok_s: float | None
    """All tokens ÷ the batch's wall time, prefill and waiting included."""
    decode_tok_s: float | None
    """Median of the requests' own decode throughput."""
    ttft_p50_s: float | None
    ttft_p95_s: float | None
    commit_length: float | None
    """Over all verifies (long answers weigh more), not the mean of the requests' means."""
    accept_histogram: tuple[int, ...]
    verify_calls: int | None
    commit_source: CommitSource = CommitSource.NONE


def summarise(records: Sequence[RequestRecord], wall_s: float) -> LoadSummary:
    """The batch's figures; ``wall_s`` is the time from the first request sent to the last answer ended."""
    tokens = [record.completion_tokens for record in records if record.completion_tokens is not None]
    speeds = [record.decode_tok_s for record in records if record.decode_tok_s is not None]
    waits = [record.ttft_s for record in records if record.ttft_s is not None]
    verifies = [record.verify_calls for record in records if record.verify_calls is not None]
    histogram = sum_histograms([record.accept_histogram for record in records])
    from_histogram, weighted = mean_commit_length(histogram), _weighted_commit_length(records)
    if from_histogram is not None:
        source = CommitSource.HISTOGRAM
    else:
        source = CommitSource.NONE if weighted is None else CommitSource.VERIFY_CALLS
    return LoadSummary(
        requests=len(records),
        failed=sum(not record.ok for record in records),
        completion_tokens=sum(tokens) if tokens else None,
        wall_s=wall_s,
        tok_s=sum(tokens) / wall_s if tokens and wall_s > 0 else None,
        decode_tok_s=statistics.median(speeds) if speeds else None,
        ttft_p50_s=quantile(waits, 0.5),
        ttft_p95_s=quantile(waits, 0.95),
        commit_length=from_histogram if from_histogram is not None else weighted,
        accept_histogram=histogram,
        verify_calls=sum(verifies) if verifies else None,
        commit_source=source,
    )


def counted(summary: LoadSummary, records: Sequence[RequestRecord], before: MetricsSample, after: MetricsSample) -> LoadSummary:
    """A batch whose answers carry no figures of verifies, with those of the server's counters around it.

    Only where the counters grew by exactly these requests and their tokens: then nothing else was answered in between, and the
    verifies are theirs too. Else ``summary`` stays as it is.
    """
    if summary.commit_length is not None or summary.failed or any(record.completion_tokens is None for record in records):
        return summary
    tokens, requests, verifies = (
        (new or 0.0) - (old or 0.0)
        for old, new in (
            (before.generation_tokens, after.generation_tokens),
            (before.num_requests, after.num_requests),
            (before.verify_calls, after.verify_calls),
        )
    )
    if (tokens, requests) != (summary.completion_tokens, len(records)) or verifies <= 0:
        return summary
    # The first token of each request comes from its prefill, not from a verify.
    length = (tokens - requests) / verifies
    return replace(summary, commit_length=length, verify_calls=int(verifies), commit_source=CommitSource.COUNTERS)


def sum_histograms(histograms: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Histograms added up, each as long as its own longest run of accepted drafts."""
    return tuple(sum(column) for column in zip_longest(*histograms, fillvalue=0))


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value that ``share`` of ``values`` do not exceed (nearest rank); ``None`` of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def _weighted_commit_length(records: Sequence[RequestRecord]) -> float | None:
    weights = [(record.commit_length, record.verify_calls) for record in records]
    known = [(length, calls) for length, calls in weights if length is not None and calls]
    total = sum(calls for _, calls in known)
    return sum(length * calls for length, calls in known) / total if total else None


@dataclass(frozen=True)
class SameOutput:
    """Whether two answers to one prompt agree, and where they part."""

    same: bool
    by: str
    """``tokens`` when both answers name their ids, else ``text``."""
    at: int | None = None
    """Index of the first token or character that differs; ``None`` when they agree."""


def same_output(left: RequestRecord, right: RequestRecord) -> SameOutput:
    """Compare two greedy answers: speculation must not change a single token."""
    by_tokens = bool(left.token_ids and right.token_ids)
    pairs = zip_longest(left.token_ids, right.token_ids) if by_tokens else zip_longest(left.text, right.text)
    at = next((index for index, (one, other) in enumerate(pairs) if one != other), None)
    return SameOutput(at is None, "tokens" if by_tokens else "text", at)
