"""Prometheus text of an engine → one typed sample.

Source of the names: SGLang 0.5.17's ``/metrics`` (prefix ``sglang:``, ``sglang_`` where a scraper renamed it). Per-rank
series are taken from the first tensor and pipeline rank of each data-parallel rank, and added up over data-parallel ranks:
the other tensor ranks repeat the same figures.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .values import whole, whole_of

_PREFIX = re.compile(r"sglang[:_]")
_NAME_END = re.compile(r"[{ ]")
_TTFT = "time_to_first_token_seconds"
_NEEDED = frozenset(
    {
        "realtime_tokens_total",
        "generation_tokens_total",
        "prompt_tokens_total",
        "cached_tokens_total",
        "num_requests_total",
        "spec_verify_calls_total",
        "spec_accepted_drafts_total",
        "num_running_reqs",
        "num_queue_reqs",
        "gen_throughput",
        "spec_accept_length",
        "spec_accept_rate",
        "token_usage",
        "num_used_tokens",
        "max_total_num_tokens",
        "ddtree_draft_kv_bytes",
        "ddtree_budget",
        "ddtree_topk",
        "ddtree_draft_window",
        "ddtree_speculation",
        "ddtree_round_seconds_total",
        "ddtree_rounds_total",
        f"{_TTFT}_bucket",
        f"{_TTFT}_count",
        f"{_TTFT}_sum",
    }
)
"""Families that are parsed. The text of a real server has 450 series and is read once a second: parsing all of it with a
general parser takes 30 ms."""


@dataclass(frozen=True)
class Histogram:
    """Cumulative counts by upper bound, as Prometheus has them, all label sets added up."""

    buckets: tuple[tuple[float, float], ...] = ()
    """(upper bound, observations up to it), ascending; the last bound is infinite."""

    @property
    def count(self) -> float:
        return self.buckets[-1][1] if self.buckets else 0.0

    def since(self, earlier: Histogram) -> Histogram:
        """Observations made after ``earlier``; all of them when the server has restarted in between."""
        before = dict(earlier.buckets)
        steps = tuple((bound, count - before.get(bound, 0.0)) for bound, count in self.buckets)
        return self if any(count < 0 for _, count in steps) else Histogram(steps)

    def quantile(self, share: float) -> float | None:
        """The value below which ``share`` (0 … 1) of the observations lie, linear inside its bucket.

        ``None`` without observations. A quantile in the open last bucket is that bucket's lower bound: it is at least that.
        """
        if self.count <= 0:
            return None
        rank, lower, below = share * self.count, 0.0, 0.0
        for bound, count in self.buckets:
            if count >= rank and count > below:
                if math.isinf(bound):
                    return lower
                # Rounding must not carry it over the bucket's end.
                return min(bound, lower + (bound - lower) * (rank - below) / (count - below))
            lower, below = bound, count
        return lower


@dataclass(frozen=True)
class MetricsSample:
    """One scrape. ``None`` = the server does not export it."""

    realtime_decode_tokens: float | None = None
    """Grows with every decode iteration."""
    realtime_prefill_tokens: float | None = None
    generation_tokens: float | None = None
    """Grows when a request finishes, as do the next four."""
    prompt_tokens: float | None = None
    cached_tokens: float | None = None
    num_requests: float | None = None
    verify_calls: float | None = None
    accepted_drafts: tuple[float, ...] = ()
    """Verifies by accepted drafts, growing with every verify (our engines only)."""
    running: int | None = None
    queued: int | None = None
    gen_throughput: float | None = None
    """tok/s of the last decode-log interval; keeps its value when nothing runs, as do the accept figures."""
    accept_length: float | None = None
    accept_rate: float | None = None
    token_usage: float | None = None
    used_tokens: int | None = None
    max_total_tokens: int | None = None
    draft_kv_bytes: int | None = None
    ttft: Histogram = Histogram()
    round_seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds since the start by part of the round (our engines only)."""
    rounds: float | None = None
    """Rounds that :attr:`round_seconds` sums up."""
    budget: int | None = None
    topk: int | None = None
    draft_window: int | None = None
    """Tokens; 0 = off."""
    speculation: bool | None = None
    problem: str = ""
    """Why the text could not be read; everything else is empty then."""


@dataclass(frozen=True)
class _Series:
    labels: Mapping[str, str]
    value: float


LONGEST_LINE = 10_000
"""Characters; the parser takes seconds for a line of a megabyte, which no engine writes."""


def parse_metrics(text: str | bytes) -> MetricsSample:
    """Read the text of ``/metrics``. Lines that are not needed are skipped; a broken text gives a sample with a problem."""
    # prometheus_client takes 0.1 s to import (its package pulls in its exporters), so it waits for the first sample.
    from prometheus_client.parser import text_string_to_metric_families

    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    families: dict[str, list[_Series]] = {}
    try:
        for family in text_string_to_metric_families(_needed_lines(text)):
            for sample in family.samples:
                series = families.setdefault(sample.name, [])
                # None of these figures can be below zero.
                if math.isfinite(sample.value) and sample.value >= 0:
                    series.append(_Series(sample.labels, float(sample.value)))
    except (ValueError, KeyError, IndexError):
        return MetricsSample(problem="the text is not in Prometheus' format")
    if not families:
        return MetricsSample(problem="the text has no metrics of an SGLang server")
    return _sample(families)


def _needed_lines(text: str) -> str:
    """Only the series that are used, without their ``sglang:`` prefix; samples need no HELP and TYPE lines.

    The format ends every line, the last one too: a last line without an end was cut off, perhaps in its number. Nor is a sum over
    ranks known, or a histogram, of which the rest did not come.
    """
    lines: list[str] = []
    # Not splitlines, which would break a label's value at U+2028 and the like.
    *whole_lines, cut = text.split("\n")
    for line in whole_lines:
        match = _PREFIX.match(line)
        if match is None or len(line) > LONGEST_LINE:
            continue
        rest = line[match.end() :].removesuffix("\r")
        end = min((at for at in (rest.find("{"), rest.find(" ")) if at >= 0), default=-1)
        if end > 0 and rest[:end] in _NEEDED:
            lines.append(rest)
    if lines and (match := _PREFIX.match(cut)) is not None:
        name = _name(lines[-1])
        if name.startswith(_name(cut[match.end() :])):
            lines = [line for line in lines if _name(line) != name]
    return "\n".join(lines) + "\n"


def _name(line: str) -> str:
    """The series' name at the beginning of a line, or as much as there is of it."""
    return _NAME_END.split(line, 1)[0]


def _sample(families: Mapping[str, list[_Series]]) -> MetricsSample:
    def total(name: str, **labels: str) -> float | None:
        series = _first_ranks(
            item for item in families.get(name, []) if all(item.labels.get(key) == wanted for key, wanted in labels.items())
        )
        values = [item.value for item in series]
        return sum(values) if values else None

    def mean(name: str) -> float | None:
        values = [item.value for item in _first_ranks(families.get(name, []))]
        # A rank that has not decoded yet reports 0, which is no commit length.
        values = [value for value in values if value > 0] or values
        return sum(values) / len(values) if values else None

    def whole(name: str) -> int | None:
        return whole_of(total(name))

    usage = [item.value for item in families.get("token_usage", [])]
    prefill = [total("realtime_tokens_total", mode=mode) for mode in ("prefill_compute", "prefill_cache")]
    speculation = whole("ddtree_speculation")
    return MetricsSample(
        realtime_decode_tokens=total("realtime_tokens_total", mode="decode"),
        realtime_prefill_tokens=sum(value for value in prefill if value is not None)
        if any(v is not None for v in prefill)
        else None,
        generation_tokens=total("generation_tokens_total"),
        prompt_tokens=total("prompt_tokens_total"),
        cached_tokens=total("cached_tokens_total"),
        num_requests=total("num_requests_total"),
        verify_calls=total("spec_verify_calls_total"),
        accepted_drafts=_by_accepted(families.get("spec_accepted_drafts_total", [])),
        running=whole("num_running_reqs"),
        queued=whole("num_queue_reqs"),
        gen_throughput=total("gen_throughput"),
        accept_length=mean("spec_accept_length"),
        accept_rate=mean("spec_accept_rate"),
        token_usage=max(usage, default=None),
        used_tokens=whole("num_used_tokens"),
        max_total_tokens=whole("max_total_num_tokens"),
        draft_kv_bytes=whole("ddtree_draft_kv_bytes"),
        ttft=_histogram(families.get(f"{_TTFT}_bucket", [])),
        round_seconds={item.labels.get("part", ""): item.value for item in families.get("ddtree_round_seconds_total", [])},
        rounds=total("ddtree_rounds_total"),
        budget=whole("ddtree_budget"),
        topk=whole("ddtree_topk"),
        draft_window=whole("ddtree_draft_window"),
        speculation=bool(speculation) if speculation is not None else None,
    )


def _first_ranks(series: Iterable[_Series]) -> list[_Series]:
    """Of each data-parallel rank only its first tensor and pipeline rank (under DP attention rank DP1 is TP1, not TP0)."""
    items = list(series)
    first: dict[str, tuple[int, int]] = {}
    for item in items:
        place = _place(item)
        dp = item.labels.get("dp_rank", "")
        first[dp] = min(first.get(dp, place), place)
    return [item for item in items if _place(item) == first[item.labels.get("dp_rank", "")]]


def _place(item: _Series) -> tuple[int, int]:
    return _number(item.labels.get("pp_rank")), _number(item.labels.get("tp_rank"))


def _number(text: str | None) -> int:
    return whole(text) or 0


_MOST_ACCEPTED = 1024
"""No tree is deeper; a larger label is no count of drafts."""


def _by_accepted(series: Iterable[_Series]) -> tuple[float, ...]:
    counts: dict[int, float] = {}
    for item in _first_ranks(series):
        accepted = _number(item.labels.get("accepted"))
        if accepted > _MOST_ACCEPTED:
            continue
        counts[accepted] = counts.get(accepted, 0.0) + item.value
    return tuple(counts.get(accepted, 0.0) for accepted in range(max(counts) + 1)) if counts else ()


def _histogram(series: Iterable[_Series]) -> Histogram:
    counts: dict[float, float] = {}
    for item in series:
        try:
            bound = float(item.labels.get("le", ""))
        except ValueError:
            continue
        counts[bound] = counts.get(bound, 0.0) + item.value
    return Histogram(tuple(sorted(counts.items())))
