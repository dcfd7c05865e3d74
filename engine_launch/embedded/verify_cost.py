"""What a round costs on this machine, by rows and context, so that trees can stop growing when they should.

The model of a verify pass of ``N`` rows in all, of ``R`` requests with ``n`` rows each at ``c`` tokens of context:

    base(N) + (R - 1) * further + sum over requests of (c - NEAR) * (each + row * n)

``base`` is measured at a short context for a few widths and made convex, so that the first node that does not pay is the last
one worth looking at (CaDDTree, arXiv 2606.01813). The attention's share grows with the context and is measured at a second one.
All times are in seconds. What is measured here is where :mod:`engine_launch.embedded.cost_tracking` starts from.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from engine_launch.embedded.drafter import ContextRows, Drafter, DraftQuery
from engine_launch.embedded.target import Segment, TargetModel
from engine_launch.embedded.target_kv import TargetKV
from engine_launch.embedded.vocabulary import best_candidates, best_token

NEAR, FAR = 64, 1088
"""Tokens of context at which a verify is measured."""
NEAR_WIDTHS = (1, 3, 5, 9, 13, 17, 25, 33, 49, 65)
FAR_WIDTHS = (1, 9, 33)
TOGETHER, TOGETHER_ROWS = 4, 3
"""Requests of a pass that shows what each further one costs, and the rows of each."""
MEASURING_SECONDS = 1.0
"""After so long no other repetition is begun."""
REPETITIONS = 5
LAST_SLOPE = 2.0
"""So many times the slope before it the last one may be. When something disturbs a measurement, a wider one shows it; the widest
has none behind it, and a time far too long would stay, since trees would never become so wide that rounds could correct it."""
APPENDED = 4
"""Tokens committed by a usual verify."""


@dataclass(frozen=True)
class CostModel:
    """Seconds that the parts of a round take."""

    widths: tuple[int, ...]
    base: tuple[float, ...]
    """Of a verify at :data:`NEAR` tokens, for ``widths``; convex and increasing."""
    each: float
    """More per request and token of context."""
    row: float
    """More per row and token of context."""
    drafting: float
    """Draft, candidates and append of one request."""
    further: float = 0.0
    """More of a verify for each request beyond the first, with the same rows in all."""
    drafting_further: float = 0.0
    """More of draft, candidates and append for each request beyond the first."""

    def base_at(self, rows: int) -> float:
        """Between the measured widths by straight lines, beyond them by the last one."""
        index, share = knots(self.widths, rows)
        return self.base[index] + share * (self.base[index + 1] - self.base[index])

    def round(self, rows: Sequence[int], contexts: Sequence[int]) -> float:
        """Of a round whose requests have so many rows and so much context."""
        attention = sum((context - NEAR) * (self.each + self.row * one) for one, context in zip(rows, contexts, strict=True))
        more = (len(rows) - 1) * (self.further + self.drafting_further)
        return self.drafting + self.base_at(sum(rows)) + more + attention

    def one_more(self, rows: int, context: int) -> float:
        """Of one more row to a pass of ``rows`` rows, in a request with so much context."""
        return self.base_at(rows + 1) - self.base_at(rows) + max(0.0, (context - NEAR) * self.row)

    def curve(self, context: int) -> tuple[tuple[int, float], ...]:
        """Milliseconds of a verify of one request, by rows."""
        further = context - NEAR
        return tuple(
            (width, 1e3 * (base + further * (self.each + self.row * width)))
            for width, base in zip(self.widths, self.base, strict=True)
        )


def knots(widths: Sequence[int], rows: int) -> tuple[int, float]:
    """Between which widths ``rows`` lies: index of the left one, and the share of the right one (beyond 1 behind the last)."""
    index = min(max(bisect_right(widths, rows) - 1, 0), len(widths) - 2)
    left, right = widths[index], widths[index + 1]
    return index, (rows - left) / (right - left)


def measure(target: TargetModel, drafter: Drafter) -> CostModel:
    """Time verify passes of several widths at two contexts and of several requests, and draft passes; about a second."""
    far = min(FAR, target.config.max_position_embeddings - max(NEAR_WIDTHS))
    with torch.inference_mode():
        alone = [_kv(target, far + max(NEAR_WIDTHS))]
        several = [_kv(target, NEAR + TOGETHER_ROWS) for _ in range(TOGETHER)]
        jobs: dict[tuple[str, int], Callable[[], object]] = {}
        for width in NEAR_WIDTHS:
            jobs["near", width] = _verify(target, drafter, alone, NEAR, width)
        for width in FAR_WIDTHS:
            jobs["far", width] = _verify(target, drafter, alone, far, width)
        jobs["together", TOGETHER] = _verify(target, drafter, several, NEAR, TOGETHER_ROWS)
        for requests in (1, TOGETHER):
            jobs["draft", requests] = _draft(target, drafter, requests)
        best = _fastest(jobs)
    base = bounded(NEAR_WIDTHS, convex(NEAR_WIDTHS, [best["near", width] for width in NEAR_WIDTHS]))
    growth = [(best["far", width] - best["near", width]) / (far - NEAR) if far > NEAR else 0.0 for width in FAR_WIDTHS]
    each, row = line(FAR_WIDTHS, growth)
    start = CostModel(NEAR_WIDTHS, base, each, row, best["draft", 1])
    more = (best["together", TOGETHER] - start.base_at(TOGETHER * TOGETHER_ROWS)) / (TOGETHER - 1)
    drafting_more = (best["draft", TOGETHER] - best["draft", 1]) / (TOGETHER - 1)
    return replace(start, further=max(0.0, more), drafting_further=max(0.0, drafting_more))


def _kv(target: TargetModel, tokens: int) -> TargetKV:
    kv = target.new_kv(tokens)
    # What memory happens to hold could be numbers that are slow to compute with.
    kv.keys.zero_()
    kv.values.zero_()
    return kv


def _fastest(jobs: Mapping[tuple[str, int], Callable[[], object]]) -> dict[tuple[str, int], float]:
    """The shortest of several times for each job: what else the machine does can only make a time longer."""
    best: dict[tuple[str, int], float] = {}
    begin = time.perf_counter()
    for _ in range(REPETITIONS):
        for key, job in jobs.items():
            start = time.perf_counter()
            job()
            taken = time.perf_counter() - start
            best[key] = min(best.get(key, taken), taken)
        if time.perf_counter() - begin > MEASURING_SECONDS:
            break
    return best


def _verify(target: TargetModel, drafter: Drafter, caches: Sequence[TargetKV], context: int, width: int) -> Callable[[], object]:
    ids, positions = torch.zeros(width * len(caches), dtype=torch.long), torch.full((width * len(caches),), context)
    # A tree that is a star has a mask as any other tree.
    visible = torch.eye(width, dtype=torch.bool)
    visible[:, 0] = True

    def run() -> object:
        for kv in caches:
            kv.length = context
        output = target.forward(ids, positions, [Segment(kv, width, visible) for kv in caches], drafter.taps)
        return best_token(target.logits(output.hidden)).tolist()

    return run


def _draft(target: TargetModel, drafter: Drafter, requests: int) -> Callable[[], object]:
    ids, positions = torch.zeros(APPENDED, dtype=torch.long), torch.arange(APPENDED)
    features = target.forward(ids, positions, [Segment(target.new_kv(APPENDED), APPENDED)], drafter.taps).features
    assert features is not None
    caches = [drafter.new_kv(0) for _ in range(requests)]

    def run() -> object:
        drafter.append([ContextRows(kv, features) for kv in caches])
        ids, logprobs = best_candidates(drafter.draft([DraftQuery(kv, 0) for kv in caches]), 4)
        return ids.tolist(), logprobs.tolist()

    return run


def convex(widths: Sequence[int], seconds: Sequence[float]) -> tuple[float, ...]:
    """The measured times with slopes that never fall and are never negative (neighbouring slopes are averaged until it is so)."""
    slopes: list[tuple[float, int]] = []
    for left in range(len(widths) - 1):
        run = widths[left + 1] - widths[left]
        slopes.append(((seconds[left + 1] - seconds[left]) / run, run))
        while len(slopes) > 1 and slopes[-2][0] > slopes[-1][0]:
            (one, first), (other, second) = slopes[-2:]
            slopes[-2:] = [((one * first + other * second) / (first + second), first + second)]
    found = [seconds[0]]
    runs = iter(slopes)
    slope, left_over = next(runs)
    for left in range(len(widths) - 1):
        run = widths[left + 1] - widths[left]
        if not left_over:
            slope, left_over = next(runs)
        found.append(found[-1] + max(0.0, slope) * run)
        left_over -= run
    return tuple(found)


def bounded(widths: Sequence[int], seconds: Sequence[float]) -> tuple[float, ...]:
    """The same times (three at least, convex), the last slope at most :data:`LAST_SLOPE` times the one before it."""
    before = (seconds[-2] - seconds[-3]) / (widths[-2] - widths[-3])
    most = seconds[-2] + LAST_SLOPE * before * (widths[-1] - widths[-2])
    return (*seconds[:-1], min(seconds[-1], most))


def line(xs: Sequence[int], ys: Sequence[float]) -> tuple[float, float]:
    """Least squares ``y = a + b x`` with neither negative: ``(a, b)``."""
    count = len(xs)
    mean_x, mean_y = sum(xs) / count, sum(ys) / count
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = max(0.0, sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread)
    return max(0.0, mean_y - slope * mean_x), slope
