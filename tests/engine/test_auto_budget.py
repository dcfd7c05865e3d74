"""The automatic budget: trees stop where expected tokens per second are highest, and answers do not change."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine_launch import tree as ddtree
from engine_launch.embedded.api import AUTO_BUDGET_MAX, Algorithm, RequestOverrides
from engine_launch.embedded.auto_budget import Growing, Settled, grow_while_it_pays
from engine_launch.embedded.events import CostsMeasured, DraftRunnerReady, SettingChange
from engine_launch.embedded.target import TargetModel
from engine_launch.embedded.verify_cost import NEAR, CostModel, bounded, convex, line, measure
from engine_launch.tree import ROOT_ONLY
from tests.engine.conftest import TOKENS
from tests.engine.engines import Recorder, oracle_engine, running
from tests.engine.log_lines import RUNNER, Lines
from tests.engine.models import greedy, prompts, submit, tiny_drafter, tiny_engine, tiny_settings, tiny_target
from tests.engine.trees import Candidates, candidates

WIDTHS = (1, 5, 9, 17, 33)

seconds = st.lists(st.floats(0.001, 1.0), min_size=len(WIDTHS), max_size=len(WIDTHS))


@st.composite
def cost_models(draw: st.DrawFn) -> CostModel:
    base = convex(WIDTHS, sorted(draw(seconds)))
    small = st.floats(0.0, 1e-4)
    return CostModel(WIDTHS, base, draw(small), draw(small), draw(st.floats(0.001, 1.0)))


@given(seconds)
def test_fitted_times_never_fall_and_their_slopes_never_fall(measured: list[float]) -> None:
    fitted = convex(WIDTHS, measured)
    slopes = [(fitted[i + 1] - fitted[i]) / (WIDTHS[i + 1] - WIDTHS[i]) for i in range(len(WIDTHS) - 1)]
    assert fitted[0] == measured[0]
    assert all(slope >= 0 for slope in slopes)
    assert all(later >= earlier - 1e-12 for earlier, later in itertools.pairwise(slopes))


def test_times_that_are_convex_already_are_kept() -> None:
    measured = [1.0, 1.4, 2.0, 4.0, 9.0]
    assert convex(WIDTHS, measured) == pytest.approx(measured)
    # One slow measurement is averaged with its neighbour instead of making the next rows look free.
    assert convex(WIDTHS, [1.0, 3.0, 2.0, 4.0, 9.0]) == pytest.approx([1.0, 1.5, 2.0, 4.0, 9.0])


def test_a_disturbed_measurement_of_any_width_leaves_trees_room_beyond_it() -> None:
    times = [1.0, 1.2, 1.6, 2.4, 4.0]
    for disturbed in range(1, len(times)):
        measured = [seconds * (4.0 if number == disturbed else 1.0) for number, seconds in enumerate(times)]
        costs = CostModel(WIDTHS, bounded(WIDTHS, convex(WIDTHS, measured)), 0.0, 0.0, 0.1)
        assert costs.one_more(WIDTHS[-1], NEAR) <= 2.5 * (times[-1] - times[-2]) / (WIDTHS[-1] - WIDTHS[-2])
    assert bounded(WIDTHS, times) == pytest.approx(times)


def test_between_and_beyond_the_measured_widths_times_follow_straight_lines() -> None:
    costs = CostModel((1, 5, 9), (1.0, 1.4, 2.0), 0.001, 0.0005, 0.5)
    assert [costs.base_at(rows) for rows in (1, 3, 5, 7, 9, 13)] == pytest.approx([1.0, 1.2, 1.4, 1.7, 2.0, 2.6])
    assert costs.one_more(5, NEAR) == pytest.approx(0.15)
    assert costs.one_more(5, NEAR + 100) == pytest.approx(0.15 + 0.05)
    assert costs.round([5], [NEAR + 100]) == pytest.approx(0.5 + 1.4 + 100 * (0.001 + 0.0025))
    assert [ms for _, ms in costs.curve(NEAR)] == pytest.approx([1000, 1400, 2000])


def test_the_line_through_noisy_points_has_no_negative_part() -> None:
    assert line((1, 9, 33), (2.0, 10.0, 34.0)) == pytest.approx((1.0, 1.0))
    assert line((1, 9, 33), (3.0, 2.0, 1.0))[1] == 0.0


def speed(costs: CostModel, trees: list[ddtree.Tree], contexts: list[int]) -> float:
    """Expected tokens per second."""
    return sum(1 + tree.expected_drafts for tree in trees) / costs.round([tree.width for tree in trees], contexts)


@given(candidates(), cost_models(), st.integers(NEAR, 5000))
def test_of_all_budgets_the_fastest_is_chosen(given_: Candidates, costs: CostModel, context: int) -> None:
    (tree,) = grow_while_it_pays([Growing(ddtree.Growth(*given_), context)], [], costs, AUTO_BUDGET_MAX)
    others = [ROOT_ONLY, *(ddtree.build(*given_, budget) for budget in range(1, AUTO_BUDGET_MAX + 1))]
    assert speed(costs, [tree], [context]) >= max(speed(costs, [other], [context]) for other in others) * (1 - 1e-9)
    # It is a best-first tree, only stopped.
    assert tree == (ddtree.build(*given_, tree.nodes) if tree.nodes else ROOT_ONLY)


@given(st.lists(candidates(), min_size=2, max_size=3), cost_models(), st.booleans())
def test_requests_of_a_pass_are_sized_together(given_: list[Candidates], costs: CostModel, with_plain: bool) -> None:
    settled = [Settled(ROOT_ONLY, 100)] if with_plain else []
    growing = [Growing(ddtree.Growth(*one), 200) for one in given_]
    trees = grow_while_it_pays(growing, settled, costs, AUTO_BUDGET_MAX)
    contexts = [200] * len(trees) + [100] * len(settled)
    rest = [one.tree for one in settled]
    chosen = speed(costs, [*trees, *rest], contexts)
    for index, one in enumerate(given_):
        bigger = ddtree.build(*one, min(trees[index].nodes + 1, AUTO_BUDGET_MAX))
        assert chosen >= speed(costs, [*trees[:index], bigger, *trees[index + 1 :], *rest], contexts) * (1 - 1e-9)
        # No node outside is more probable than one inside.
        if bigger.nodes > trees[index].nodes and any(tree.nodes for tree in trees):
            assert bigger.logprobs[-1] <= min(logprob for tree in trees for logprob in tree.logprobs) + 1e-9


def test_no_tree_grows_beyond_the_bound_even_when_rows_are_free() -> None:
    ids, logprobs = [[0, 1, 2, 3]] * 7, [[math.log(0.25)] * 4] * 7
    free = CostModel((1, 65), (0.01, 0.01), 0.0, 0.0, 0.001)
    (tree,) = grow_while_it_pays([Growing(ddtree.Growth(ids, logprobs), 10)], [], free, AUTO_BUDGET_MAX)
    assert tree.nodes == AUTO_BUDGET_MAX


def test_measuring_gives_times_that_grow_and_leaves_nothing_behind() -> None:
    target = tiny_target(torch.float32)
    costs = measure(target, tiny_drafter(target))
    assert costs.widths[0] == 1
    assert costs.widths[-1] == AUTO_BUDGET_MAX + 1
    assert all(later >= earlier > 0 for earlier, later in itertools.pairwise(costs.base))
    assert costs.drafting > 0
    assert min(costs.each, costs.row) >= 0


def test_greedy_answers_are_those_of_plain_decoding(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]]
) -> None:
    # The measurement takes five draft caches as well, which the oracle takes for requests.
    with oracle_engine(target, [[]] * 5 + texts, [[]] * 5 + answers, budget=0) as engine:
        started = [
            submit(engine, "auto", texts[0], greedy(TOKENS), record_rounds=True),
            submit(engine, "own", texts[1], greedy(TOKENS), RequestOverrides(ddtree_budget=3), record_rounds=True),
            submit(engine, "plain", texts[2], greedy(TOKENS), RequestOverrides(speculative=False)),
        ]
        assert [answer.wait().ids for answer in started] == answers
        stats = engine.stats()
    auto, own = ([len(event.round.tokens) for event in answer.events if event.round] for answer in started[:2])
    assert len(set(auto)) > 1
    assert set(own) == {3}
    assert stats.avg_tree_nodes == pytest.approx(sum(auto + own) / len(auto + own))
    assert list(stats.verify_curves) == [64, 1024, 4096]


def test_the_cost_is_measured_before_the_first_request_and_only_for_an_automatic_budget(target: TargetModel) -> None:
    class Measured(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.costs: list[CostsMeasured] = []

        def costs_measured(self, event: CostsMeasured) -> None:
            self.costs.append(event)

    for budget, expected in ((0, 1), (8, 0)):
        log = Measured()
        with running(
            tiny_engine(target, tiny_drafter(target), tiny_settings(Algorithm.DDTREE, budget=budget), log=log)
        ) as engine:
            assert len(log.costs) == expected
            # Switched on later, it is measured when the first round needs it, and once.
            assert engine.change("speculative_ddtree_budget", 0)
            for name in "ab":
                submit(engine, name, prompts(1, 10)[0], greedy(4)).wait()
        assert len(log.costs) == 1
        assert log.costs[0].seconds < 3
        assert engine.settings.automatic


def test_auto_is_told_by_its_word_wherever_a_budget_is_told() -> None:
    settings = tiny_settings(Algorithm.DDTREE, budget=0)
    assert (settings.budget_text, settings.largest_tree) == ("auto(max 64)", 64)
    assert replace(settings, tree_budget=9).budget_text == "9"
    assert not tiny_settings(Algorithm.DFLASH, budget=0).automatic
    lines = Lines("info")
    runner: DraftRunnerReady = replace(RUNNER, tree_budget=settings.budget_text)
    lines.log.draft_runner(runner)
    lines.log.setting_changed(SettingChange("speculative_ddtree_budget", 8, 0, True))
    lines.log.setting_changed(SettingChange("speculative_ddtree_budget", 0, 16, True))
    lines.log.setting_changed(SettingChange("speculation", 1, 0, True))
    lines.log.costs_measured(CostsMeasured(0.5, {64: ((1, 9.44), (9, 13.8)), 1024: ((1, 12.0),)}, 4.8))
    first, _, *rest = lines.texts()
    assert "tree_budget=auto(max 64), tree_topk=4" in first
    assert rest == [
        "Hot change applied. speculative_ddtree_budget: 8 -> auto (from /set_internal_state)",
        "Hot change applied. speculative_ddtree_budget: auto -> 16 (from /set_internal_state)",
        "Hot change applied. speculation: 1 -> 0 (from /set_internal_state)",
        "Measured the cost of a round in 0.50 s for the automatic tree budget. draft: 4.8 ms; verify (ms): "
        "at 64 tokens 1 rows 9.4, 9 rows 13.8; at 1024 tokens 1 rows 12.0",
    ]
