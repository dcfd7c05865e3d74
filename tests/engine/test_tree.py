"""The draft tree: best-first building is optimal, parents come first, the walk follows the target."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine_launch import tree as ddtree
from engine_launch.tree import Tree
from tests.engine.trees import Candidates, candidates


def paths(tree: Tree) -> list[tuple[int, ...]]:
    """Token path from the root to each node."""
    found: list[tuple[int, ...]] = [()]
    for token, parent in zip(tree.tokens, tree.parents, strict=True):
        found.append((*found[parent], token))
    return found[1:]


def all_prefixes(ids: list[list[int]], logprobs: list[list[float]]) -> dict[tuple[int, ...], float]:
    scores: dict[tuple[int, ...], float] = {}
    for depth in range(1, len(ids) + 1):
        for ranks in itertools.product(*(range(len(row)) for row in ids[:depth])):
            path = tuple(ids[d][r] for d, r in enumerate(ranks))
            scores[path] = sum(logprobs[d][r] for d, r in enumerate(ranks))
    return scores


@given(candidates(), st.integers(1, 40))
def test_a_built_tree_holds_the_most_probable_prefixes(given_: Candidates, budget: int) -> None:
    ids, logprobs = given_
    tree = ddtree.build(ids, logprobs, budget)
    scores = all_prefixes(ids, logprobs)
    best = sorted(scores.values(), reverse=True)[:budget]
    assert tree.nodes == min(budget, len(scores))
    assert sorted(tree.logprobs, reverse=True) == pytest.approx(best, abs=1e-9)
    for path, logprob in zip(paths(tree), tree.logprobs, strict=True):
        assert scores[path] == pytest.approx(logprob, abs=1e-9)


@given(candidates(), st.integers(1, 40))
def test_parents_come_first_and_no_node_is_there_twice(given_: Candidates, budget: int) -> None:
    tree = ddtree.build(*given_, budget)
    assert all(parent < node for node, parent in enumerate(tree.parents, start=1))
    depths = (0, *tree.depths)
    assert all(depths[node] == depths[parent] + 1 for node, parent in enumerate(tree.parents, start=1))
    assert len(set(paths(tree))) == tree.nodes
    assert all(a >= b - 1e-9 for a, b in itertools.pairwise(tree.logprobs))


def test_ties_always_give_the_same_tree() -> None:
    half = math.log(0.5)
    built = [ddtree.build([[5, 6], [7, 8]], [[half, half], [half, half]], 4) for _ in range(3)]
    assert len(set(built)) == 1
    assert built[0].tokens == (5, 6, 7, 8)
    assert built[0].parents == (0, 0, 1, 1)


def test_the_worked_example_of_the_paper_comes_out() -> None:
    probabilities = [[0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.7, 0.2, 0.1]]
    logprobs = [[math.log(p) for p in row] for row in probabilities]
    tree = ddtree.build([[0, 1, 2]] * 3, logprobs, 6)
    assert [round(math.exp(logprob), 3) for logprob in tree.logprobs] == [0.6, 0.3, 0.3, 0.24, 0.21, 0.168]
    assert tree.expected_drafts == pytest.approx(1.818)


def test_one_candidate_per_position_and_a_budget_of_the_horizon_is_the_chain() -> None:
    ids, logprobs = [[4], [5], [6]], [[-0.1], [-0.2], [-0.3]]
    tree = ddtree.build(ids, logprobs, 3)
    assert tree == ddtree.chain([4, 5, 6], [-0.1, -0.2, -0.3])
    assert tree.is_chain


@given(candidates(), st.integers(1, 40))
def test_a_node_sees_its_ancestors_and_itself_and_nothing_else(given_: Candidates, budget: int) -> None:
    tree = ddtree.build(*given_, budget)
    seen = ddtree.visibility(tree)
    for node in range(tree.width):
        ancestors, at = {node}, node
        while at:
            at = tree.parents[at - 1]
            ancestors.add(at)
        assert {index for index in range(tree.width) if seen[node, index]} == ancestors


def test_a_chain_sees_causally_and_stands_at_consecutive_positions() -> None:
    tree = ddtree.chain([3, 4], [-1.0, -1.0])
    assert torch.equal(ddtree.visibility(tree), torch.ones(3, 3, dtype=torch.bool).tril())
    assert ddtree.positions(tree, 10) == [10, 11, 12]


def test_siblings_share_a_position() -> None:
    tree = ddtree.build([[1, 2], [3]], [[-0.6, -0.8], [-0.1]], 4)
    assert ddtree.positions(tree, 5) == [5, *(5 + depth for depth in tree.depths)]
    assert sorted(tree.depths) == [1, 1, 2, 2]


def test_the_walk_follows_the_target_until_it_leaves_the_tree() -> None:
    # root ─ 7 (node 1) ─ 9 (node 3);  root ─ 8 (node 2) ─ 9 (node 4)
    tree = Tree((7, 8, 9, 9), (0, 0, 1, 2), (1, 1, 2, 2), (-1.0, -1.1, -2.0, -2.1))
    choices = {0: 8, 2: 9, 4: 5}
    asked: list[int] = []

    def choose(node: int) -> int:
        asked.append(node)
        return choices[node]

    assert ddtree.walk(tree, choose) == ((0, 2, 4), 5)
    assert asked == [0, 2, 4]


def test_the_walk_stops_at_once_when_no_child_fits() -> None:
    assert ddtree.walk(ddtree.ROOT_ONLY, lambda node: 3) == ((0,), 3)


def test_candidates_are_normalised_over_the_whole_vocabulary() -> None:
    logits = torch.randn(2, 3, 50, dtype=torch.float64)
    ids, logprobs = ddtree.top_candidates(logits, 4)
    expected = torch.log_softmax(logits.float(), dim=-1)
    assert ids.shape == logprobs.shape == (2, 3, 4)
    assert torch.allclose(logprobs, expected.gather(-1, ids), atol=1e-5)
    assert torch.equal(ids[..., 0], logits.argmax(-1))
