"""The GPU kernels on trees of any shape: equal candidates, candidates that are not there, budgets that no tree can fill.

Two paths may be equally probable, and the kernel and ``engine_launch.tree`` may then take either one first. So a tree is held to
what makes it a best one: its paths' probabilities are those of the reference's, it is whole, and each row sees its ancestors.
"""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_launch import tree as reference
from engine_launch.sglang_plugin import kernels
from tests.sglang.test_kernels import Batch

STEP = 8.0
"""Log-probabilities are multiples of 1/8, whose sums are exact in fp32 and often equal."""


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """A few requests whose shapes and sizes differ; ``missing`` candidates of each position are not there (−∞)."""
    requests, length, candidates = draw(st.integers(1, 4)), draw(st.integers(1, 7)), draw(st.integers(1, 6))
    width = draw(st.integers(1, 24))
    source = torch.Generator().manual_seed(draw(st.integers(0, 1 << 20)))
    budgets = [draw(st.integers(0, width - 1)) for _ in range(requests)]
    topks = [draw(st.integers(1, candidates)) for _ in range(requests)]
    batch = Batch(0, width, budgets, topks)
    shape = (requests, length, candidates)
    steps = torch.randint(0, draw(st.sampled_from([1, 2, 6])), shape, generator=source)
    batch.logprobs = -steps.cumsum(-1).float() / STEP
    missing = draw(st.integers(0, candidates - 1))
    if missing:
        batch.logprobs[..., candidates - missing :] = float("-inf")
    batch.ids = torch.stack([torch.randperm(50, generator=source)[:candidates] for _ in range(requests * length)]).view(shape)
    return batch


def likely(batch: Batch, request: int) -> reference.Tree:
    """The reference's tree of the candidates that are there."""
    top = min(batch.topks[request], int((batch.logprobs[request, 0] > float("-inf")).sum()))
    ids, logprobs = (table[request, :, :top].tolist() for table in (batch.ids, batch.logprobs))
    return reference.build(ids, logprobs, batch.budgets[request])


@settings(max_examples=30, deadline=None)
@given(batches())
def test_a_tree_is_a_best_one_and_whole(batch: Batch) -> None:
    tokens, positions, _, parents = batch.build()
    for request in range(len(batch.budgets)):
        expected, length = likely(batch, request), int(batch.lens[request])
        nodes, ids, logprobs = expected.nodes, batch.ids[request], batch.logprobs[request]
        depths, scores, seen = [0], [0.0], [{0}]
        taken: set[tuple[int, int]] = set()
        for node in range(1, batch.width):
            parent = int(parents[request, node])
            if node > nodes:
                assert parent == -1
                continue
            assert 0 <= parent < node
            depth = depths[parent] + 1
            (rank,) = (ids[depth - 1] == tokens[request, node]).nonzero()[0].tolist()
            assert rank < batch.topks[request]
            assert rank == 0 or (parent, rank - 1) in taken, "a less likely child comes after its likelier sibling"
            assert (parent, rank) not in taken
            taken.add((parent, rank))
            depths.append(depth)
            scores.append(scores[parent] + float(logprobs[depth - 1, rank]))
            seen.append({*seen[parent], node})
            assert positions[request, node] == length + depth
        assert scores[1:] == list(expected.logprobs)
        mask = batch.tree_mask(request)
        for node in range(batch.width):
            assert set(mask[node].nonzero().view(-1).tolist()) == (seen[node] if node <= nodes else {node})


@settings(max_examples=30, deadline=None)
@given(batches(), st.data())
def test_the_walk_is_the_references(batch: Batch, data: st.DataObject) -> None:
    tokens, _, _, parents = batch.build()
    block = batch.ids.shape[1] + 1
    predicted = torch.full_like(tokens, 999)
    trees = []
    for request in range(len(batch.budgets)):
        count = likely(batch, request).nodes
        inner = slice(1, count + 1)
        drafts, above = tokens[request, inner].tolist(), parents[request, inner].tolist()
        trees.append(reference.Tree(tuple(drafts), tuple(above), (0,) * count, (0.0,) * count))
        for node in range(batch.width):
            predicted[request, node] = data.draw(st.sampled_from([*drafts, 999, int(batch.anchors[request])]))
    walked = kernels.walk(tokens, parents, predicted, batch.lens, block)
    for request, tree in enumerate(trees):
        nodes, last = reference.walk(tree, predicted[request].tolist().__getitem__)
        count = len(nodes)
        assert (int(walked.commits[request]), int(walked.bonus[request])) == (count, last)
        assert walked.new_seq_lens[request] == batch.lens[request] + count
        assert walked.path[request].tolist() == [*nodes, *[0] * (block - count)]
        drafts = [int(tokens[request, node]) for node in nodes[1:]]
        assert walked.tokens[request].tolist() == [*drafts, last, *[0] * (block - count)]


def test_many_requests_find_their_own_rows() -> None:
    """More requests than one load of lengths takes: the masks of the later ones begin behind all the others'."""
    requests = 70
    batch = Batch(5, 3, [2] * requests, [2] * requests)
    tokens, _, _, parents = batch.build()
    for request in (0, 1, requests // 2, requests - 1):
        tree = batch.expected(request)
        assert tokens[request, 1:].tolist() == list(tree.tokens)
        assert parents[request, 1:].tolist() == list(tree.parents)
        assert torch.equal(batch.tree_mask(request).bool(), reference.visibility(tree))


def test_candidates_that_are_no_numbers_give_no_drafts() -> None:
    """A drafter with broken weights costs rounds, and nothing else."""
    batch = Batch(1, 9, [8, 8], [4, 4])
    batch.logprobs[0] = float("nan")
    tokens, _, _, parents = batch.build()
    assert parents[0].tolist() == [-1] * 9
    assert tokens[1, 1:].tolist() == list(batch.expected(1).tokens)
