"""The statistics behind the verdicts tell alike from different."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable

import pytest

from tests.gpu.statistics import binomial_bound, by_place, compare, median, quantile


def drawn(weights: list[float], draws: int, seed: int, places: int = 10) -> dict[Hashable, Counter[int]]:
    source = random.Random(seed)
    return {place: Counter(source.choices(range(len(weights)), weights, k=draws)) for place in range(places)}


def test_samples_of_one_distribution_are_rejected_about_as_often_as_the_level_says() -> None:
    ps = [compare(drawn([5, 3, 1, 1], 200, seed), drawn([5, 3, 1, 1], 200, 1000 + seed)).p for seed in range(100)]
    assert sum(p < 0.01 for p in ps) <= 5
    assert 0.3 < sum(ps) / len(ps) < 0.7


def test_a_slightly_sharper_distribution_is_rejected() -> None:
    sharper = [weight ** (0.8 / 0.7) for weight in (0.5, 0.3, 0.1, 0.1)]
    assert compare(drawn([5, 3, 1, 1], 2000, 1), drawn(sharper, 2000, 2)).p < 0.01


def test_greedy_draws_are_rejected() -> None:
    greedy: dict[Hashable, Counter[int]] = {place: Counter({0: 200}) for place in range(10)}
    assert compare(drawn([5, 3, 1, 1], 200, 1), greedy).p < 1e-6


def test_places_with_few_draws_do_not_count() -> None:
    result = compare(drawn([1, 1], 10, 1), drawn([1, 1], 10, 2))
    assert (result.strata, result.draws, result.p) == (0, 0, 1.0)


def test_draws_are_sorted_by_what_came_before_and_the_prefill_token_is_left_out() -> None:
    places = by_place([0, 0, 1], [(5, 6, 7), (5, 6, 8), (5, 9)])
    assert places == {(0, 5): Counter({6: 2}), (0, 5, 6): Counter({7: 1, 8: 1}), (1, 5): Counter({9: 1})}


def test_quantile_is_a_value_that_the_share_does_not_exceed() -> None:
    values = [float(i) for i in range(1000)]
    assert quantile(values, 0.999) == 998.0
    assert quantile([1.0], 0.5) == 1.0
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_median() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([1.0, 2.0]) == 1.5


def test_the_bound_is_above_the_mean_and_near_it() -> None:
    assert 8 < binomial_bound(8192, 0.001) < 20
