"""The drafter's candidates: the best of the whole vocabulary, also where ranks hold slices of it that are padded or uneven."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine_launch.sglang_plugin.candidates import CandidateHead

HIDDEN, BLOCK, PADDED_TO = 16, 4, 8


class Ranks:
    """Groups of ranks that are threads of this process."""

    def __init__(self, count: int) -> None:
        self.world_size = count
        self._barrier = threading.Barrier(count, timeout=20)
        self._parts: list[Tensor | None] = [None] * count
        self._local = threading.local()

    def all_gather_into_tensor(self, out: Tensor, part: Tensor) -> None:
        assert part.is_contiguous()
        self._parts[self._local.rank] = part
        self._barrier.wait()
        out.copy_(torch.cat([given for given in self._parts if given is not None]))
        self._barrier.wait()

    def run(self, heads: list[CandidateHead], hidden: Tensor) -> list[tuple[Tensor, Tensor]]:
        found: list[Any] = [None] * self.world_size

        def work(rank: int) -> None:
            self._local.rank = rank
            try:
                found[rank] = heads[rank].take(hidden)
            except BaseException:
                self._barrier.abort()
                raise

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(self.world_size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert None not in found
        return found


def slice_of(weight: Tensor, rank: int, ranks: int) -> SimpleNamespace:
    """What a rank's ``lm_head`` holds: its rows, then padding, which nothing may choose."""
    whole = len(weight)
    each = -(-whole // (PADDED_TO * ranks)) * PADDED_TO
    begin, end = min(rank * each, whole), min((rank + 1) * each, whole)
    rows = torch.full((each, weight.shape[1]), 1e4, dtype=weight.dtype)
    rows[: end - begin] = weight[begin:end]
    indices = SimpleNamespace(num_org_elements=end - begin, org_vocab_start_index=begin, num_added_elements=0)
    return SimpleNamespace(weight=rows, shard_indices=indices)


def heads_of(weight: Tensor, group: Any, topk: int) -> list[CandidateHead]:
    count = group.world_size
    return [CandidateHead(slice_of(weight, rank, count), group, block=BLOCK, topk=topk, max_bs=8) for rank in range(count)]


@settings(max_examples=40, deadline=None)
@given(
    ranks=st.sampled_from([1, 2, 4]),
    vocabulary=st.integers(1, 70),
    topk=st.integers(1, 12),
    batch=st.integers(1, 3),
    seed=st.integers(0, 1 << 20),
)
def test_they_are_the_best_of_the_whole_vocabulary_on_every_rank(
    ranks: int, vocabulary: int, topk: int, batch: int, seed: int
) -> None:
    source = torch.Generator().manual_seed(seed)
    weight = torch.randn(vocabulary, HIDDEN, generator=source, dtype=torch.float64)
    hidden = torch.randn(batch * BLOCK, HIDDEN, generator=source, dtype=torch.float64)
    group = Ranks(ranks)
    found = group.run(heads_of(weight, group, topk), hidden)
    ids, logprobs = found[0]
    for other_ids, other_logprobs in found[1:]:
        assert torch.equal(ids, other_ids)
        assert torch.equal(logprobs, other_logprobs)
    rows = hidden.view(batch, BLOCK, HIDDEN)[:, 1:].reshape(-1, HIDDEN)
    expected = torch.log_softmax(rows @ weight.T, dim=-1)
    there = min(topk, vocabulary)
    best = expected.topk(there, dim=-1)
    assert torch.equal(ids[:, :there], best.indices)
    assert torch.allclose(logprobs[:, :there].double(), best.values, atol=1e-4)
    # What the vocabulary does not have is never taken into a tree.
    assert bool((logprobs[:, there:] == float("-inf")).all())


def test_a_graph_finds_them_in_the_same_place_every_time() -> None:
    weight = torch.randn(20, HIDDEN)
    (head,) = heads_of(weight, Ranks(1), 4)
    places = head.ids.data_ptr(), head.logprobs.data_ptr()
    hidden = torch.randn(2 * BLOCK, HIDDEN)
    head(hidden)
    ids, logprobs = head.take(hidden)
    assert torch.equal(head.ids[:6], ids)
    assert torch.equal(head.logprobs[:6], logprobs)
    assert (head.ids.data_ptr(), head.logprobs.data_ptr()) == places


@pytest.mark.parametrize(
    ("lm_head", "ranks", "why"),
    [
        (SimpleNamespace(weight=torch.zeros(4, 4, dtype=torch.int8)), 1, "not quantised"),
        (SimpleNamespace(weight=torch.zeros(4, 4, dtype=torch.float8_e4m3fn)), 1, "not quantised"),
        (SimpleNamespace(), 1, "not quantised"),
        (None, 1, "not quantised"),
        (SimpleNamespace(weight=torch.zeros(4, 4)), 2, "which part of the vocabulary"),
        (
            SimpleNamespace(
                weight=torch.zeros(4, 4),
                shard_indices=SimpleNamespace(num_org_elements=3, org_vocab_start_index=0, num_added_elements=1),
            ),
            1,
            "was added",
        ),
    ],
)
def test_a_head_that_cannot_be_borrowed_is_refused(lm_head: Any, ranks: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        CandidateHead(lm_head, Ranks(ranks), block=BLOCK, topk=4, max_bs=1)
