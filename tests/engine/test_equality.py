"""Speculation does not change what the target says: greedy answers are equal token for token, sampled ones in distribution."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from scipy.stats import chi2

from engine_launch import tree as ddtree
from engine_launch.embedded.api import Algorithm, SamplingParams
from engine_launch.embedded.sampling import Sampler, probabilities
from engine_launch.embedded.target import Segment, TargetModel
from engine_launch.tree import Tree
from tests.engine.conftest import TOKENS
from tests.engine.models import (
    OracleDrafter,
    drafter_config,
    greedy,
    submit,
    target_config,
    target_weights,
    tiny_drafter,
    tiny_engine,
    tiny_settings,
)

BUDGETS = (1, 2, 7, 8, 16, 32, 64)


def speculative_answers(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]], algorithm: Algorithm, budget: int, window: int = 0
) -> list[list[int]]:
    drafter = OracleDrafter(
        tiny_drafter(target, drafter_config("ssf", window=16)),
        [[*text, *answer] for text, answer in zip(texts, answers, strict=True)],
        accuracy=0.9,
        decoys=0.4,
    )
    engine = tiny_engine(target, drafter, tiny_settings(algorithm, budget=budget, draft_window=window))
    try:
        started = [submit(engine, str(i), text, greedy(TOKENS)) for i, text in enumerate(texts)]
        return [answer.wait().ids for answer in started]
    finally:
        engine.close()


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("window", [0, 8])
def test_greedy_tree_answers_equal_plain_ones(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]], budget: int, window: int
) -> None:
    assert speculative_answers(target, texts, answers, Algorithm.DDTREE, budget, window) == answers


@pytest.mark.parametrize("window", [0, 8])
def test_greedy_chain_answers_equal_plain_ones(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]], window: int
) -> None:
    assert speculative_answers(target, texts, answers, Algorithm.DFLASH, 1, window) == answers


@pytest.mark.parametrize("algorithm", [Algorithm.DFLASH, Algorithm.DDTREE])
def test_a_real_drafter_without_training_gives_equal_answers_too(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]], algorithm: Algorithm
) -> None:
    engine = tiny_engine(target, tiny_drafter(target), tiny_settings(algorithm, budget=16))
    try:
        started = [submit(engine, str(i), text, greedy(TOKENS)) for i, text in enumerate(texts)]
        assert [answer.wait().ids for answer in started] == answers
    finally:
        engine.close()


def causal_in_row_order(tree: Tree) -> torch.Tensor:
    return torch.ones(tree.width, tree.width, dtype=torch.bool).tril()


def position_is_row(tree: Tree, start: int) -> list[int]:
    return [start + row for row in range(tree.width)]


@pytest.mark.parametrize(("function", "fault"), [("visibility", causal_in_row_order), ("positions", position_is_row)])
def test_a_wrong_tree_is_seen_as_wrong(
    target: TargetModel,
    texts: list[list[int]],
    answers: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    fault: Callable[..., object],
) -> None:
    """The comparison above is not vacuous: the classic faults of tree verification break it."""
    monkeypatch.setattr(ddtree, function, fault)
    assert speculative_answers(target, texts, answers, Algorithm.DDTREE, 16) != answers


def test_commits_that_forget_to_compact_are_seen_as_wrong(
    target: TargetModel, texts: list[list[int]], answers: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine_launch.embedded.target_kv import TargetKV

    def commit_prefix(self: TargetKV, path: tuple[int, ...]) -> None:
        self.length += len(path)

    monkeypatch.setattr(TargetKV, "commit", commit_prefix)
    assert speculative_answers(target, texts, answers, Algorithm.DDTREE, 16) != answers


VOCAB = 6
DRAWS = 3000
SIGNIFICANCE = 1e-3
ANSWER = 3
PROMPT = (3, 4, 2)


@pytest.fixture(scope="module")
def small() -> TargetModel:
    config = target_config(VOCAB, context=16)
    weights = target_weights(config, torch.float64, seed=3)
    # Flat enough that many answers are likely, peaked enough that temperatures can be told apart.
    weights["norm"] *= 0.5
    return TargetModel(config, weights)


def exact_joint(target: TargetModel, params: SamplingParams) -> dict[tuple[int, ...], float]:
    """Probability of every answer of three tokens, from the target's own logits."""
    joint: dict[tuple[int, ...], float] = {}
    for answer in itertools.product(range(VOCAB), repeat=ANSWER):
        ids = [*PROMPT, *answer[:-1]]
        with torch.inference_mode():
            kv = target.new_kv(16)
            out = target.forward(torch.tensor(ids), torch.arange(len(ids)), [Segment(kv, len(ids))])
            rows = target.logits(out.hidden[len(PROMPT) - 1 :])
        joint[answer] = 1.0
        for row, token in zip(rows, answer, strict=True):
            joint[answer] *= float(probabilities(row, params)[token])
    return joint


def drawn(target: TargetModel, algorithm: Algorithm, params: SamplingParams) -> Counter[tuple[int, ...]]:
    """Answers of many seeds, decoded with a drafter that knows nothing."""
    drafter = None if algorithm is Algorithm.PLAIN else tiny_drafter(target, drafter_config("sf", vocab=VOCAB))
    engine = tiny_engine(target, drafter, tiny_settings(algorithm, budget=9, topk=4), max_running=64, chunk=256)
    try:
        counts: Counter[tuple[int, ...]] = Counter()
        for batch in range(0, DRAWS, 1000):
            started = [
                submit(engine, str(seed), PROMPT, replace(params, max_new_tokens=ANSWER, seed=seed))
                for seed in range(batch, batch + 1000)
            ]
            counts.update(tuple(answer.wait().ids) for answer in started)
        return counts
    finally:
        engine.close()


def p_value(counts: Counter[tuple[int, ...]], joint: dict[tuple[int, ...], float]) -> float:
    """Chi-square over the answers that are expected at least five times; the others are one class together."""
    total = sum(counts.values())
    assert all(joint[answer] > 0 for answer in counts), "an answer came up that cannot"
    common = [answer for answer, probability in joint.items() if probability * total >= 5]
    rest_expected = total - sum(joint[answer] * total for answer in common)
    rest = total - sum(counts[answer] for answer in common)
    statistic = sum((counts[answer] - joint[answer] * total) ** 2 / (joint[answer] * total) for answer in common)
    classes = len(common)
    if rest_expected >= 5:
        statistic += (rest - rest_expected) ** 2 / rest_expected
        classes += 1
    return float(chi2.sf(statistic, classes - 1))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [Algorithm.DFLASH, Algorithm.DDTREE])
def test_sampled_answers_follow_the_targets_distribution(small: TargetModel, algorithm: Algorithm) -> None:
    params = SamplingParams(temperature=0.8)
    joint = exact_joint(small, params)
    assert sum(joint.values()) == pytest.approx(1.0)
    counts = drawn(small, algorithm, params)
    assert p_value(counts, joint) > SIGNIFICANCE
    # The same test, with as many draws, rejects a neighbouring temperature and a fallback to greedy.
    assert p_value(counts, exact_joint(small, SamplingParams(temperature=0.7))) < SIGNIFICANCE
    best = max(joint, key=lambda answer: joint[answer])
    assert p_value(Counter({best: DRAWS}), joint) < SIGNIFICANCE


@pytest.mark.slow
def test_top_k_and_top_p_hold_at_every_node(small: TargetModel) -> None:
    params = SamplingParams(temperature=0.8, top_k=4, top_p=0.8)
    joint = exact_joint(small, params)
    assert 0 < sum(probability > 0 for probability in joint.values()) < VOCAB**ANSWER / 2
    assert p_value(drawn(small, Algorithm.DDTREE, params), joint) > SIGNIFICANCE


@pytest.mark.parametrize("algorithm", [Algorithm.PLAIN, Algorithm.DFLASH, Algorithm.DDTREE])
def test_a_seed_gives_the_same_answer_in_every_mode(target: TargetModel, texts: list[list[int]], algorithm: Algorithm) -> None:
    sampling = SamplingParams(30, temperature=0.9, top_p=0.95, seed=11)
    found = []
    for mode in (Algorithm.PLAIN, algorithm):
        drafter = None if mode is Algorithm.PLAIN else tiny_drafter(target)
        engine = tiny_engine(target, drafter, tiny_settings(mode, budget=12))
        try:
            found.append(submit(engine, "a", texts[0], sampling).wait().ids)
        finally:
            engine.close()
    assert found[0] == found[1]


def test_another_seed_gives_another_answer(target: TargetModel, texts: list[list[int]]) -> None:
    engine = tiny_engine(target)
    try:
        first, second, again = (
            submit(engine, str(i), texts[0], SamplingParams(30, temperature=1.0, seed=seed)).wait().ids
            for i, seed in enumerate((1, 2, 1))
        )
    finally:
        engine.close()
    assert first == again != second


def test_filters_keep_what_they_should() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64).log()
    assert probabilities(logits, SamplingParams(top_k=2)).tolist() == pytest.approx([4 / 7, 3 / 7, 0, 0])
    assert probabilities(logits, SamplingParams(top_p=0.69)).tolist() == pytest.approx([4 / 7, 3 / 7, 0, 0])
    assert probabilities(logits, SamplingParams(top_p=0.71)).tolist() == pytest.approx([4 / 9, 3 / 9, 2 / 9, 0])
    assert probabilities(logits, SamplingParams(min_p=0.5)).tolist() == pytest.approx([4 / 9, 3 / 9, 2 / 9, 0])
    cold = probabilities(logits, SamplingParams(temperature=0.5))
    assert cold.tolist() == pytest.approx([16 / 30, 9 / 30, 4 / 30, 1 / 30])


def test_a_draw_never_takes_a_token_that_was_filtered_out() -> None:
    logits = torch.tensor([-1.0, 5.0, 4.9, -2.0])
    for seed in range(200):
        assert Sampler(SamplingParams(temperature=2.0, top_k=2, seed=seed), 0).choose(logits) in (1, 2)


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2**-53])
def test_even_the_ends_of_the_unit_interval_give_a_token_that_can_occur(monkeypatch: pytest.MonkeyPatch, uniform: float) -> None:
    monkeypatch.setattr(torch, "rand", lambda *args, **kwargs: torch.tensor(uniform, dtype=torch.float64))
    logits = torch.tensor([-50.0, 5.0, 4.9, -50.0])
    chosen = Sampler(SamplingParams(temperature=1.0, top_k=2), 0).choose(logits)
    assert chosen == (1 if uniform == 0.0 else 2)


def test_temperature_zero_and_top_k_one_are_greedy() -> None:
    logits = torch.tensor([1.0, 3.0, 2.0])
    for params in (SamplingParams(temperature=0.0), SamplingParams(temperature=5.0, top_k=1)):
        assert Sampler(params, 0).choose(logits) == 1
