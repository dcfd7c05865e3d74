"""Live figures from two scrapes: what runs *now*, each with the name of the source it comes from.

Gauges of an SGLang server keep their last value when nothing runs and cover one log interval only, so they stand beside
the figures and never in their place. Decode throughput comes from ``realtime_tokens_total{mode="decode"}``, which grows
every iteration; ``generation_tokens_total``, ``num_requests_total`` and ``spec_verify_calls_total`` grow when a request
*finishes*, so they give the commit length of finished requests and no throughput: an 8k-token answer would read 0 and then
a spike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .log_events import DecodeBatch
from .metrics_text import Histogram as Histogram
from .metrics_text import MetricsSample as MetricsSample
from .metrics_text import parse_metrics as parse_metrics
from .rates import FAST_S as FAST_S
from .rates import Rates as Rates

COUNTERS = "counters"
LOG_LINE = "decode log line"
GAUGE = "gauge"
EVERY_VERIFY = "every verify"
FINISHED = "finished requests"


LEAST_LENGTH = 0.5
"""A commit length below it is none."""
STILL_S = 10.0
"""A gauge that has not changed by one digit for so long is stuck: a running server rewrites it every log interval."""


def rates_between(
    old: MetricsSample | None,
    new: MetricsSample,
    seconds: float,
    *,
    previous: Rates | None = None,
    decode_line: DecodeBatch | None = None,
) -> Rates:
    """Figures of the ``seconds`` between two scrapes.

    A counter that went back means that the server restarted in between: nothing is said about that interval.

    Args:
        previous: the figures before, so that a commit length of which nothing new is known is kept and marked stale.
        decode_line: the newest decode line of this interval, for servers without the realtime counter. One that counts
            idle time must not be given.
    """
    old = old if old is not None and not old.problem and seconds > 0 else None
    decode, source = _decode(old, new, seconds, decode_line)
    commit, commit_source = _commit(old, new)
    # Where every verify is counted and none was, whatever was decoded was decoded plainly: that has no commit length.
    stale = commit is None and (not _moves(old, new) or bool(new.accepted_drafts))
    if commit is None and previous is not None:
        commit, commit_source = previous.commit_length, previous.commit_source
    ttft = new.ttft.since(old.ttft) if old is not None else Histogram()
    round_s, round_shares = _round(old, new)
    return Rates(
        decode_tok_s=decode,
        decode_source=source,
        decode_gauge_tok_s=new.gen_throughput,
        commit_length=commit,
        commit_source=commit_source,
        commit_stale=stale,
        accept_length_gauge=new.accept_length or None,
        running=new.running,
        queued=new.queued,
        ttft_p50_s=ttft.quantile(0.5),
        ttft_p95_s=ttft.quantile(0.95),
        kv_usage=new.token_usage,
        kv_tokens=new.used_tokens,
        draft_kv_bytes=new.draft_kv_bytes,
        cached_share=_cached_share(old, new),
        accept_histogram=_accepted(old, new),
        round_s=round_s,
        round_shares=round_shares,
    )


def _growth(old: float | None, new: float | None) -> float | None:
    """How much a counter grew; ``None`` when one value is missing or the counter began anew."""
    return new - old if old is not None and new is not None and new >= old else None


def _decode(old: MetricsSample | None, new: MetricsSample, seconds: float, line: DecodeBatch | None) -> tuple[float | None, str]:
    if new.realtime_decode_tokens is not None:
        grown = _growth(old.realtime_decode_tokens, new.realtime_decode_tokens) if old is not None else None
        return (grown / seconds, COUNTERS) if grown is not None else (None, "")
    if line is not None and line.throughput is not None:
        return line.throughput, LOG_LINE
    if old is None:
        return None, ""
    if not _moves(old, new):
        idle = new.running == 0 or seconds >= STILL_S
        return (0.0, COUNTERS) if idle else (None, "")
    return new.gen_throughput, GAUGE if new.gen_throughput is not None else ""


def _moves(old: MetricsSample | None, new: MetricsSample) -> bool:
    """Whether anything at all changed between the scrapes; without an earlier one nothing is known to have."""
    if old is None:
        return False
    if new.realtime_decode_tokens is not None:
        return new.realtime_decode_tokens != old.realtime_decode_tokens
    return (new.gen_throughput, new.generation_tokens, new.used_tokens) != (
        old.gen_throughput,
        old.generation_tokens,
        old.used_tokens,
    )


def _commit(old: MetricsSample | None, new: MetricsSample) -> tuple[float | None, str]:
    if old is None:
        return None, ""
    accepted = _accepted(old, new)
    if accepted:
        return _mean_commit(accepted), EVERY_VERIFY
    tokens = _growth(old.generation_tokens, new.generation_tokens)
    requests = _growth(old.num_requests, new.num_requests)
    verifies_done = _growth(old.verify_calls if old.verify_calls is not None else 0.0, new.verify_calls)
    if tokens is None or requests is None or not verifies_done:
        return None, ""
    # The first token of each request comes from its prefill, not from a verify. Requests that are only scored have none, so that
    # too many are taken off; every verify brings one token, of which a request's end may cut the last.
    length = (tokens - requests) / verifies_done
    return (length, FINISHED) if length >= LEAST_LENGTH else (None, "")


def _mean_commit(accepted: Sequence[int]) -> float:
    """Tokens per verify, of verifies by accepted drafts."""
    return sum((drafts + 1) * count for drafts, count in enumerate(accepted)) / sum(accepted)


def _accepted(old: MetricsSample | None, new: MetricsSample) -> tuple[int, ...]:
    """Verifies of the interval by accepted drafts; empty when there were none or the server does not count them."""
    if old is None or not new.accepted_drafts:
        return ()
    before = (*old.accepted_drafts, *([0.0] * len(new.accepted_drafts)))
    steps = tuple(int(count - earlier) for count, earlier in zip(new.accepted_drafts, before, strict=False))
    return steps if all(step >= 0 for step in steps) and any(steps) else ()


def _round(old: MetricsSample | None, new: MetricsSample) -> tuple[float | None, dict[str, float]]:
    """Mean seconds of the interval's rounds, and the share of each part."""
    rounds = _growth(old.rounds, new.rounds) if old is not None else None
    if old is None or not rounds:
        return None, {}
    parts = {part: max(0.0, seconds - old.round_seconds.get(part, 0.0)) for part, seconds in new.round_seconds.items()}
    whole = sum(parts.values())
    return (whole / rounds, {part: seconds / whole for part, seconds in parts.items()}) if whole > 0 else (None, {})


def _cached_share(old: MetricsSample | None, new: MetricsSample) -> float | None:
    if old is None:
        return None
    prompt = _growth(old.prompt_tokens, new.prompt_tokens)
    cached = _growth(old.cached_tokens or 0.0, new.cached_tokens or 0.0)
    return min(1.0, cached / prompt) if prompt and cached is not None else None


class RateMeter:
    """Figures over spans of their own from a stream of samples: throughput over the newest seconds, the rarer figures over
    longer ones. Pure: the moments are given, never asked for.
    """

    def __init__(self, *, fast_s: float = FAST_S, span_s: float = 60.0) -> None:
        """
        Args:
            fast_s: span of throughput and commit length.
            span_s: span of the TTFT quantiles, the cached share, the accept histogram and the round's parts.
        """
        self._fast_s = fast_s
        self._span_s = span_s
        self._samples: list[tuple[float, MetricsSample]] = []
        self._begun: tuple[float, float | None] | None = None
        """The moment of the sample that verifies are counted from, and its time of day; ``None``: the next one."""
        self._rates = Rates()

    @property
    def rates(self) -> Rates:
        return self._rates

    def restart(self) -> None:
        """Forget everything: another process answers from now on."""
        self._samples.clear()
        self._begun = None
        self._rates = Rates()

    def begin_anew(self) -> None:
        """Another setting is in effect: no verify, commit length or round from before it counts any more; throughput goes on."""
        self._begun = None
        self._rates = replace(
            self._rates,
            commit_length=None,
            commit_source="",
            accept_histogram=(),
            accept_since=None,
            changed=True,
            round_s=None,
            round_shares={},
        )

    def add(
        self, sample: MetricsSample, at: float, decode_line: DecodeBatch | None = None, *, time_of_day: float | None = None
    ) -> Rates:
        """The figures at ``at`` (seconds, any monotonic clock). A sample that could not be read changes nothing.

        Args:
            time_of_day: the same moment in seconds since the epoch, for :attr:`Rates.accept_since`.
        """
        if sample.problem:
            return self._rates
        if self._samples and _went_back(self._samples[-1][1], sample):
            self.restart()
        self._samples.append((at, sample))
        self._samples = [item for item in self._samples if at - item[0] <= self._span_s] or [(at, sample)]
        if self._begun is None:
            self._begun = at, time_of_day
        begun_at, begun_time = self._begun
        counted = [item for item in self._samples if item[0] >= begun_at]
        fast_at, fast = _nearest(self._samples, at - self._fast_s)
        rates = rates_between(fast, sample, at - fast_at, previous=self._rates, decode_line=decode_line)
        if fast_at < begun_at:
            first_at, first = _nearest(counted, at - self._fast_s)
            anew = rates_between(first, sample, at - first_at, previous=self._rates)
            rates = replace(rates, commit_length=anew.commit_length, commit_source=anew.commit_source)
        slow_at, slow = counted[0]
        wide = rates_between(slow, sample, at - slow_at)
        if rates.decode_tok_s is None and wide.decode_tok_s == 0.0:
            # Only a longer look tells a stuck gauge from a slow one.
            rates = replace(rates, decode_tok_s=0.0, decode_source=wide.decode_source, commit_stale=True)
        # While nothing runs, the verifies are those of the last minute in which something did, and do not shrink to its end.
        last, other = (self._rates, wide) if rates.commit_stale else (wide, self._rates)
        kept = bool(self._rates.accept_histogram) and (rates.commit_stale or not wide.accept_histogram)
        accepted = self._rates.accept_histogram if kept else wide.accept_histogram
        rounds = last if last.round_s is not None else other
        since = self._rates.accept_since if kept else begun_time if slow_at == begun_at or not accepted else None
        self._rates = replace(
            rates,
            commit_length=_mean_commit(accepted) if rates.commit_stale and accepted else rates.commit_length,
            ttft_p50_s=wide.ttft_p50_s if wide.ttft_p50_s is not None else self._rates.ttft_p50_s,
            ttft_p95_s=wide.ttft_p95_s if wide.ttft_p95_s is not None else self._rates.ttft_p95_s,
            cached_share=wide.cached_share if wide.cached_share is not None else self._rates.cached_share,
            accept_histogram=accepted,
            accept_since=since,
            changed=self._rates.changed,
            round_s=rounds.round_s,
            round_shares=rounds.round_shares,
        )
        return self._rates


def _nearest(samples: Sequence[tuple[float, MetricsSample]], moment: float) -> tuple[float, MetricsSample | None]:
    """The newest sample from before ``moment``, else the oldest one that is not the newest."""
    earlier = samples[:-1]
    if not earlier:
        return samples[-1][0], None
    before = [item for item in earlier if item[0] <= moment + 0.25]
    return before[-1] if before else earlier[0]


def _went_back(old: MetricsSample, new: MetricsSample) -> bool:
    pairs = (
        (old.realtime_decode_tokens, new.realtime_decode_tokens),
        (old.generation_tokens, new.generation_tokens),
        (old.prompt_tokens, new.prompt_tokens),
    )
    return any(before is not None and after is not None and after < before for before, after in pairs)
