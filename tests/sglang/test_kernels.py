"""The GPU kernels of the tree against ``engine_launch.tree``, in Triton's interpreter on the CPU."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from engine_launch import tree as reference
from engine_launch.sglang_plugin import host_builder, kernels, plants

BLOCK, CANDIDATES = 8, 8


class Batch:
    """Random candidates for a few requests with prefixes and budgets of their own."""

    def __init__(self, seed: int, width: int, budgets: list[int], topks: list[int]) -> None:
        generator = torch.Generator().manual_seed(seed)
        count = len(budgets)
        logits = torch.randn(count, BLOCK - 1, 60, generator=generator) * 2
        self.ids, self.logprobs = reference.top_candidates(logits, CANDIDATES)
        self.lens = torch.randint(1, 40, (count,), generator=generator)
        self.anchors = torch.randint(100, 200, (count,), generator=generator)
        self.table = torch.randperm(count * 200, generator=generator).view(count, 200).int()
        self.rows = torch.randperm(count, generator=generator)
        self.width, self.budgets, self.topks = width, budgets, topks
        self.mask = torch.full((int(width * (self.lens.sum() + count * width)),), 77, dtype=torch.uint8)

    def build(self, plant: int = 0) -> tuple[torch.Tensor, ...]:
        return self._build(kernels.build, plant)

    def build_on_host(self, plant: int = 0) -> tuple[torch.Tensor, ...]:
        return self._build(host_builder.build, plant)

    def _build(self, builder: Callable[..., tuple[torch.Tensor, ...]], plant: int) -> tuple[torch.Tensor, ...]:
        counts = [torch.tensor(values, dtype=torch.int32) for values in (self.budgets, self.topks)]
        prefix = (self.ids, self.logprobs, self.anchors, *counts, self.lens, self.rows, self.table)
        return builder(*prefix, self.mask, self.width, plant)

    def expected(self, request: int) -> reference.Tree:
        top = self.topks[request]
        ids = self.ids[request, :, :top].tolist()
        return reference.build(ids, self.logprobs[request, :, :top].tolist(), self.budgets[request])

    def tree_mask(self, request: int) -> torch.Tensor:
        """The cells of tree rows against tree columns, as the attention kernel finds them."""
        width, length = self.width, int(self.lens[request])
        begin = sum(width * (int(other) + width) for other in self.lens[:request])
        rows = self.mask[begin : begin + width * (length + width)].view(width, length + width)
        assert bool((rows[:, :length] == 77).all()), "cells of the prefix are not touched"
        return rows[:, length:]


CASES = [
    (2, [1, 0, 1], [1, 2, 8]),
    (8, [7, 7, 7], [1, 4, 8]),
    (9, [8, 3, 8, 1], [4, 8, 2, 1]),
    (17, [16, 16, 5, 0], [8, 2, 4, 4]),
    (65, [64, 31], [8, 4]),
]


@pytest.mark.parametrize(("width", "budgets", "topks"), CASES)
def test_trees_are_those_of_the_reference(width: int, budgets: list[int], topks: list[int]) -> None:
    batch = Batch(width, width, budgets, topks)
    tokens, positions, slots, parents = batch.build()
    for request in range(len(budgets)):
        tree = batch.expected(request)
        length, nodes = int(batch.lens[request]), tree.nodes
        assert tokens[request, 0] == batch.anchors[request]
        assert tokens[request, 1 : nodes + 1].tolist() == list(tree.tokens)
        assert parents[request, 1 : nodes + 1].tolist() == list(tree.parents)
        assert positions[request, : nodes + 1].tolist() == reference.positions(tree, length)
        assert slots[request].tolist() == batch.table[batch.rows[request], length : length + width].tolist()
        mask = batch.tree_mask(request)
        assert torch.equal(mask[: nodes + 1, : nodes + 1].bool(), reference.visibility(tree))
        assert not mask[: nodes + 1, nodes + 1 :].any(), "no node sees a filler"


def test_fillers_see_only_themselves_and_have_no_parent() -> None:
    batch = Batch(3, 9, [3, 8], [4, 4])
    tokens, positions, _, parents = batch.build()
    fillers = torch.arange(4, 9)
    assert parents[0, fillers].tolist() == [-1] * 5
    assert torch.equal(batch.tree_mask(0)[4:], torch.eye(9, dtype=torch.uint8)[4:])
    assert tokens[0, fillers].eq(batch.anchors[0]).all()
    assert positions[0, fillers].eq(batch.lens[0]).all()


@pytest.mark.parametrize(("width", "budgets", "topks"), CASES)
def test_the_walk_follows_the_target_as_the_reference_does(width: int, budgets: list[int], topks: list[int]) -> None:
    batch = Batch(width + 1, width, budgets, topks)
    tokens, _, _, parents = batch.build()
    chooser = random.Random(width)
    for _ in range(6):
        predicted = torch.full_like(tokens, 999)
        for request in range(len(budgets)):
            for node in range(width):
                children = [child for child in range(1, width) if parents[request, child] == node]
                if children and chooser.random() < 0.8:
                    predicted[request, node] = tokens[request, chooser.choice(children)]
        kept = torch.zeros(len(budgets), dtype=torch.int32)
        walked = kernels.walk(tokens, parents, predicted, batch.lens, BLOCK, kept)
        assert torch.equal(kept, walked.commits)
        for request in range(len(budgets)):
            choices = predicted[request].tolist()
            nodes, last = reference.walk(batch.expected(request), choices.__getitem__)
            count = len(nodes)
            assert walked.commits[request] == count
            assert walked.bonus[request] == last
            assert walked.new_seq_lens[request] == batch.lens[request] + count
            assert walked.path[request].tolist() == [*nodes, *[0] * (BLOCK - count)]
            rows = walked.rows.view(-1, BLOCK)[request] - request * width
            assert torch.equal(rows, walked.path[request]), "the verify pass has a request's nodes in one stretch"
            drafts = [int(tokens[request, node]) for node in nodes[1:]]
            assert walked.tokens[request].tolist() == [*drafts, last, *[0] * (BLOCK - count)]


def test_rows_of_the_accepted_path_move_to_the_front_in_every_buffer() -> None:
    buffers = [torch.randn(50, 3, 4), torch.randn(50, 3, 4), torch.randn(50, 1, 600).bfloat16()]
    before = [buffer.clone() for buffer in buffers]
    slots = torch.tensor([[40, 41, 3, 17, 5], [10, 11, 12, 13, 14]])
    path = torch.tensor([[0, 2, 4, 0], [0, 1, 0, 0]])
    kernels.RowMover(buffers)(slots, path, torch.tensor([3, 2], dtype=torch.int32))
    for old, new in zip(before, buffers, strict=True):
        expected = old.clone()
        expected[41], expected[3] = old[3], old[5]
        assert torch.equal(new, expected)


@pytest.mark.parametrize("plant", [plants.PLANT_MASK, plants.PLANT_POSITION])
def test_a_planted_error_changes_what_it_names(plant: int) -> None:
    good, bad = Batch(5, 9, [8], [4]), Batch(5, 9, [8], [4])
    _, positions, _, _ = good.build()
    _, shifted, _, _ = bad.build(plant)
    assert torch.equal(good.tree_mask(0), bad.tree_mask(0)) == (plant != plants.PLANT_MASK)
    assert torch.equal(positions, shifted) == (plant != plants.PLANT_POSITION)


@pytest.mark.parametrize("plant", range(3))
def test_the_builder_on_the_host_gives_the_same(plant: int) -> None:
    here, there = Batch(7, 17, [16, 4, 0], [4, 8, 4]), Batch(7, 17, [16, 4, 0], [4, 8, 4])
    for kernel, host in zip(here.build(plant), there.build_on_host(plant), strict=True):
        assert torch.equal(kernel, host)
    assert torch.equal(here.mask, there.mask)


def test_warming_up_compiles_every_width_and_moves_nothing() -> None:
    buffer = torch.randn(8, 2, 4)
    before = buffer.clone()
    kernels.warm_up((1, 9), BLOCK, CANDIDATES, "cpu", kernels.RowMover([buffer]))
    assert torch.equal(buffer, before)
