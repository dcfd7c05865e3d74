"""Walking a tree with one draw per node gives exactly the target's distribution; the statistics would see a wrong one."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from scipy.stats import chi2

from engine_launch import tree as reference
from engine_launch.sglang_plugin import verify
from engine_launch.sglang_plugin.verify import choose

VOCABULARY, DEPTH, DRAWS = 5, 3, 20_000
TREE = reference.build([[0, 1, 2]] * 2, [[-0.7, -1.0, -2.0], [-0.5, -1.2, -2.5]], 6)


def sampling(temperature: float, top_k: int = 1 << 30, top_p: float = 1.0, min_p: float = 0.0, count: int = 1) -> SimpleNamespace:
    def column(value: float) -> torch.Tensor:
        return torch.full((count,), value)

    return SimpleNamespace(
        is_all_greedy=False,
        temperatures=column(temperature)[:, None],
        top_ks=torch.full((count,), top_k),
        top_ps=column(top_p),
        min_ps=column(min_p),
        need_top_k_sampling=top_k < 1 << 30,
        need_top_p_sampling=top_p < 1,
        need_min_p_sampling=min_p > 0,
    )


def logits_after(prefix: tuple[int, ...]) -> torch.Tensor:
    """The toy target: every prefix has logits of its own."""
    seed = sum((token + 1) * 7**place for place, token in enumerate(prefix, start=1))
    return torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 1.5


def distribution(prefix: tuple[int, ...], info: SimpleNamespace) -> torch.Tensor:
    """By hand: temperature, then top-k, top-p and min-p on what is left."""
    probabilities = torch.softmax(logits_after(prefix) / info.temperatures[0, 0], dim=-1)
    order = probabilities.argsort(descending=True)
    kept, total = torch.zeros(VOCABULARY), 0.0
    for place, token in enumerate(order.tolist()):
        share = float(probabilities[token])
        if (
            place < int(info.top_ks[0])
            and total <= float(info.top_ps[0])
            and share >= float(info.min_ps[0] * probabilities.max())
        ):
            kept[token] = share
        total += share
    return kept / kept.sum()


def walked(info: SimpleNamespace) -> dict[tuple[int, ...], int]:
    """How often each first ``DEPTH`` tokens come out of rounds over the tree (and plain rounds after it, where it ends early)."""
    paths: list[tuple[int, ...]] = [()]
    for parent, token in zip(TREE.parents, TREE.tokens, strict=True):
        paths.append((*paths[parent], token))
    rows = torch.stack([logits_after(path) for path in paths])
    every = sampling(float(info.temperatures[0, 0]), int(info.top_ks[0]), float(info.top_ps[0]), float(info.min_ps[0]), DRAWS)
    drawn = choose(rows.repeat(DRAWS, 1), every, len(paths))
    plain = {
        prefix: iter(choose(logits_after(prefix).repeat(DRAWS, 1), every, 1)[:, 0].tolist())
        for length in range(1, DEPTH)
        for prefix in itertools.product(range(VOCABULARY), repeat=length)
    }
    counts: dict[tuple[int, ...], int] = {}
    for row in drawn.tolist():
        path, bonus = reference.walk(TREE, row.__getitem__)
        tokens = (*(TREE.tokens[node - 1] for node in path[1:]), bonus)
        while len(tokens) < DEPTH:
            tokens = (*tokens, next(plain[tokens]))
        counts[tokens[:DEPTH]] = counts.get(tokens[:DEPTH], 0) + 1
    return counts


def p_value(counts: dict[tuple[int, ...], int], info: SimpleNamespace) -> float:
    statistic, cells = 0.0, 0
    for tokens in itertools.product(range(VOCABULARY), repeat=DEPTH):
        expected = float(DRAWS)
        for place in range(DEPTH):
            expected *= float(distribution(tokens[:place], info)[tokens[place]])
        if expected < 1e-9:
            assert tokens not in counts, "a token that the sampler must not draw was drawn"
            continue
        statistic += (counts.get(tokens, 0) - expected) ** 2 / expected
        cells += 1
    return float(chi2.sf(statistic, cells - 1))


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.8},
        {"temperature": 1.0, "top_k": 3},
        {"temperature": 1.0, "top_p": 0.7},
        {"temperature": 1.2, "min_p": 0.2},
    ],
)
def test_frequencies_are_the_targets(settings: dict[str, float]) -> None:
    torch.manual_seed(5)
    info = sampling(**settings)  # type: ignore[arg-type]
    assert p_value(walked(info), info) > 0.01


def test_the_same_test_sees_another_temperature() -> None:
    torch.manual_seed(5)
    assert p_value(walked(sampling(0.7)), sampling(0.8)) < 1e-6


def test_greedy_requests_take_the_best_token_also_beside_others() -> None:
    logits = torch.randn(2 * 7, VOCABULARY)
    info = sampling(1.0, count=2)
    info.top_ks = torch.tensor([1, 1 << 30])
    info.need_top_k_sampling = True
    assert torch.equal(choose(logits, info, 7)[0], logits.view(2, 7, -1)[0].argmax(-1))
    assert torch.equal(choose(logits, None, 7), logits.view(2, 7, -1).argmax(-1))


@pytest.mark.parametrize("top_k", [1 << 30, 3])
def test_logits_that_are_no_numbers_are_mended_where_sglang_mends_them(top_k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_SANITIZE_NAN_LOGITS", "1")
    logits = torch.zeros(7, VOCABULARY)
    logits[2] = float("nan")
    logits[3, 1] = float("inf")
    drawn = choose(logits, sampling(1.0, top_k), 7)
    assert ((drawn >= 0) & (drawn < VOCABULARY)).all()
    assert int(drawn[0, 3]) == 1


@pytest.mark.parametrize("top_k", [1 << 30, 3])
def test_rows_that_are_drawn_in_parts_keep_their_own_settings(top_k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_ROWS_AT_ONCE", 4)
    logits = torch.randn(3 * 7, VOCABULARY)
    info = sampling(1e-4, top_k, count=3)  # so cold that a draw is the best token
    info.temperatures[1] = 1e4
    drawn = choose(logits, info, 7)
    best = logits.view(3, 7, -1).argmax(-1)
    assert torch.equal(drawn[[0, 2]], best[[0, 2]])
    assert drawn.shape == (3, 7)
    assert drawn.dtype == torch.int64
