"""The tests behind the verdicts. Pure; only the tail of the chi-square distribution comes from scipy."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

Strata = Mapping[Hashable, Counter[int]]
"""Condition (what came before) → how often each token was drawn there."""
LEAST_EXPECTED = 5.0
"""The usual rule for the chi-square approximation; rarer tokens are counted together."""


@dataclass(frozen=True)
class Comparison:
    """Whether two samples come from the same distributions."""

    chi_square: float
    freedom: int
    p: float
    """Probability of a difference this large when they do."""
    draws: int
    """Draws of the second sample that were compared."""
    strata: int

    @property
    def text(self) -> str:
        return f"p = {self.p:.2g} (chi² {self.chi_square:.0f} on {self.freedom}, {self.draws} draws in {self.strata} places)"


def compare(first: Strata, second: Strata, least_draws: int = 20) -> Comparison:
    """Chi-square test of homogeneity, stratum by stratum, added up.

    Args:
        least_draws: strata with fewer draws in either sample are left out.
    """
    chi_square, freedom, draws, used = 0.0, 0, 0, 0
    for place in first.keys() & second.keys():
        a, b = first[place], second[place]
        if min(a.total(), b.total()) < least_draws:
            continue
        value, degrees = _homogeneity(a, b)
        chi_square += value
        freedom += degrees
        draws += b.total()
        used += 1
    return Comparison(chi_square, freedom, chi_square_tail(chi_square, freedom), draws, used)


def _homogeneity(a: Counter[int], b: Counter[int]) -> tuple[float, int]:
    """Chi-square and degrees of freedom of a 2 × k table whose rare columns are put together."""
    total = a.total() + b.total()
    share_a, share_b = a.total() / total, b.total() / total
    columns: list[tuple[int, int]] = []
    rest = [0, 0]
    for token in sorted(a.keys() | b.keys()):
        both = a[token] + b[token]
        if both * min(share_a, share_b) >= LEAST_EXPECTED:
            columns.append((a[token], b[token]))
        else:
            rest[0] += a[token]
            rest[1] += b[token]
    if sum(rest):
        columns.append((rest[0], rest[1]))
    if len(columns) < 2:
        return 0.0, 0
    value = sum(
        (x - (x + y) * share_a) ** 2 / ((x + y) * share_a) + (y - (x + y) * share_b) ** 2 / ((x + y) * share_b)
        for x, y in columns
    )
    return value, len(columns) - 1


def chi_square_tail(value: float, freedom: int) -> float:
    """Probability that chi-square with ``freedom`` degrees exceeds ``value``; 1 without degrees of freedom."""
    if freedom <= 0:
        return 1.0
    from scipy.stats import chi2

    return float(chi2.sf(value, freedom))


def by_place(prompts: Sequence[int], answers: Sequence[Sequence[int]], skip: int = 1) -> dict[Hashable, Counter[int]]:
    """Sort drawn tokens by what came before them.

    Args:
        prompts: a number for each answer's prompt.
        answers: the drawn tokens.
        skip: leave out the first tokens of each answer (the first one comes from prefill, not from a verify).
    """
    places: dict[Hashable, Counter[int]] = {}
    for prompt, tokens in zip(prompts, answers, strict=True):
        for index in range(skip, len(tokens)):
            places.setdefault((prompt, *tokens[:index]), Counter())[tokens[index]] += 1
    return places


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of ``values`` do not exceed; ``ValueError`` without values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def binomial_bound(trials: int, share: float, sigmas: float = 2.58) -> int:
    """A count that ``trials`` draws at ``share`` exceed in fewer than 1 % of cases (normal approximation, plus one)."""
    return math.ceil(trials * share + sigmas * math.sqrt(trials * share * (1 - share))) + 1


def median(values: Sequence[float]) -> float:
    """The middle value; ``ValueError`` without values."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
