"""The cost model learns from rounds: what the start measured wrongly is put right, and nothing makes it absurd."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_launch.embedded.api import Algorithm
from engine_launch.embedded.cost_tracking import CostTracker
from engine_launch.embedded.target import TargetModel
from engine_launch.embedded.verify_cost import NEAR, CostModel
from tests.engine.engines import running
from tests.engine.models import greedy, prompts, submit, tiny_drafter, tiny_engine, tiny_settings

WIDTHS = (1, 5, 9, 17, 33)
TRUE = CostModel(WIDTHS, (0.016, 0.018, 0.020, 0.025, 0.036), 2e-6, 5e-7, 0.006, 0.0015, 0.0015)


def feed(tracker: CostTracker, true: CostModel, rounds: int, widths: tuple[int, int], noise: float = 0.03) -> None:
    """Rounds of one to four requests on a machine for which ``true`` holds, but for noise."""
    draw = random.Random(1)
    for _ in range(rounds):
        requests = draw.choice((1, 1, 4))
        rows = [draw.randint(*widths) for _ in range(requests)]
        contexts = [draw.randint(NEAR, 1200) for _ in range(requests)]
        drafting = true.drafting + (requests - 1) * true.drafting_further
        verify = true.round(rows, contexts) - drafting
        noisy = draw.gauss(1, noise), draw.gauss(1, noise)
        tracker.observe(rows, contexts, verify * noisy[0], drafting * noisy[1], requests)


def scaled(costs: CostModel, factor: float) -> CostModel:
    """The same machine, slower."""
    return CostModel(
        costs.widths,
        tuple(factor * seconds for seconds in costs.base),
        *(factor * one for one in (costs.each, costs.row, costs.drafting, costs.further, costs.drafting_further)),
    )


@pytest.mark.parametrize("factor", [0.3, 6.0])
def test_a_start_on_a_busy_machine_is_forgotten_within_a_few_rounds(factor: float) -> None:
    tracker = CostTracker(scaled(TRUE, factor))
    feed(tracker, TRUE, 8, (5, 9))
    # Also for widths, contexts and numbers of requests that were not among them.
    for rows, contexts in (([17], [100]), ([1], [64]), ([9, 9], [500, 64])):
        assert tracker.model.round(rows, contexts) == pytest.approx(TRUE.round(rows, contexts), rel=0.2)


def test_a_machine_that_becomes_slower_is_followed() -> None:
    tracker = CostTracker(TRUE)
    feed(tracker, TRUE, 300, (3, 12))
    feed(tracker, scaled(TRUE, 2), 40, (3, 12))
    assert tracker.model.round([9], [200]) == pytest.approx(2 * TRUE.round([9], [200]), rel=0.1)


def test_what_one_more_row_costs_is_learned() -> None:
    # The start was disturbed at small widths, so that rows up to 9 seem to cost nothing, and attention went unseen.
    tracker = CostTracker(replace(TRUE, base=(0.022, 0.022, 0.022, 0.025, 0.036), each=0.0, row=0.0))
    assert tracker.model.one_more(6, NEAR) == 0.0
    feed(tracker, TRUE, 400, (2, 16))
    assert tracker.model.one_more(6, NEAR) == pytest.approx(TRUE.one_more(6, NEAR), rel=0.4)
    assert tracker.model.one_more(6, 1064) == pytest.approx(TRUE.one_more(6, 1064), rel=0.4)


def test_one_slow_round_changes_little() -> None:
    tracker = CostTracker(TRUE)
    feed(tracker, TRUE, 100, (3, 12))
    before = tracker.model
    tracker.observe([9], [200], 1.0, 0.5, 1)
    assert tracker.model.round([9], [200]) < 1.25 * before.round([9], [200])
    feed(tracker, TRUE, 10, (3, 12))
    assert tracker.model.round([9], [200]) == pytest.approx(before.round([9], [200]), rel=0.1)


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(1, 65), st.integers(0, 8000)), min_size=1, max_size=8),
            st.floats(1e-5, 10.0),
            st.floats(0.0, 10.0),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_whatever_is_observed_the_model_stays_one(seen: list[tuple[list[tuple[int, int]], float, float, bool]]) -> None:
    tracker = CostTracker(TRUE)
    for requests, verify, drafting, drafted in seen:
        rows, contexts = [one for one, _ in requests], [context for _, context in requests]
        tracker.observe(rows, contexts, verify, drafting, len(rows) if drafted else 0)
        model = tracker.model
        slopes = [(model.base[i + 1] - model.base[i]) / (WIDTHS[i + 1] - WIDTHS[i]) for i in range(len(WIDTHS) - 1)]
        assert model.base[0] > 0
        assert all(slope >= 0 for slope in slopes)
        assert all(later >= earlier - 1e-9 for earlier, later in itertools.pairwise(slopes))
        assert min(model.each, model.row, model.drafting, model.further, model.drafting_further) >= 0
        assert max(*model.base, model.drafting) < 100


def test_rounds_correct_what_the_start_measured(target: TargetModel) -> None:
    with running(tiny_engine(target, tiny_drafter(target), tiny_settings(Algorithm.DDTREE, budget=0))) as engine:
        at_start = engine.stats().verify_curves
        submit(engine, "a", prompts(1, 10)[0], greedy(12)).wait()
        assert engine.stats().verify_curves != at_start
