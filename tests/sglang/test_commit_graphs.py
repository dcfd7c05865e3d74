"""Which recorded size serves a batch, and what it commits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from engine_launch.sglang_plugin.commit_graphs import CommitGraphs

BLOCK = 3


class Drafter:
    """Notes what is appended: by request its slots and features, as far as they are committed."""

    def __init__(self) -> None:
        self.appended: list[list[tuple[int, float]]] = []
        self.sizes: list[int] = []

    def append(self, features: Tensor, positions: Tensor, slots: Tensor, commits: Tensor) -> None:
        assert torch.equal(positions, slots + 1000) or not commits.any()
        self.sizes.append(len(commits))
        by_request = features.view(len(commits), BLOCK, -1)[:, :, 0]
        self.appended = [
            list(zip(slots[row, :count].tolist(), by_request[row, :count].tolist(), strict=True))
            for row, count in enumerate(commits.tolist())
            if count
        ]


def graphs(drafter: Drafter, sizes: list[int]) -> CommitGraphs:
    return CommitGraphs(drafter.append, sizes, block=BLOCK, features=2, dtype=torch.float32, device="cpu")


def commit(made: CommitGraphs, commits: list[int], dtype: torch.dtype = torch.float32) -> list[list[tuple[int, float]]]:
    """One round with these commit lengths; what is to be appended."""
    bs, width = len(commits), 5
    inputs = made.inputs(bs)
    inputs.slots.copy_(torch.arange(bs * BLOCK).view(bs, BLOCK) + 10)
    inputs.positions.copy_(inputs.slots + 1000)
    inputs.commits.copy_(torch.tensor(commits))
    hidden = torch.arange(bs * width * 2, dtype=dtype).view(-1, 2)
    rows = torch.tensor([row * width + step for row in range(bs) for step in (0, 2, 4)])
    made.commit(inputs, hidden, rows)
    return [
        [(10 + row * BLOCK + step, 2.0 * (row * width + 2 * step)) for step in range(count)] for row, count in enumerate(commits)
    ]


@pytest.mark.parametrize(("commits", "size"), [([2], 1), ([1, 3], 2), ([3, 2, 1], 4), ([1] * 5, 5)])
def test_a_batch_takes_the_next_larger_size_and_the_rest_of_it_commits_nothing(commits: list[int], size: int) -> None:
    drafter = Drafter()
    made = graphs(drafter, [1, 2, 4])
    made.record(lambda call: call)
    full = commit(made, [3, 3, 3, 3])
    assert drafter.appended == full
    drafter.sizes.clear()
    assert commit(made, commits) == drafter.appended
    assert drafter.sizes == [size]


def test_only_sizes_up_to_thirty_two_are_recorded_the_largest_first() -> None:
    recorded: list[Callable[[], None]] = []
    drafter = Drafter()
    made = graphs(drafter, [1, 8, 64, 32, 8])

    def record(call: Callable[[], None]) -> Callable[[], None]:
        call()
        recorded.append(call)
        return call

    made.record(record)
    assert made.sizes == (1, 8, 32)
    assert drafter.sizes == [32, 8, 1]


def test_what_cannot_be_recorded_is_appended_as_it_is_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    drafter = Drafter()
    made = graphs(drafter, [1, 2])

    def refuse(call: Callable[[], None]) -> Callable[[], None]:
        raise RuntimeError("operation not permitted when stream is capturing")

    made.record(refuse)
    assert [record.message for record in caplog.records] == [
        "DDTREE commits without CUDA graphs: operation not permitted when stream is capturing"
    ]
    assert made.sizes == ()
    assert commit(made, [2, 1]) == drafter.appended


def test_features_of_another_type_than_recorded_are_appended_as_they_are() -> None:
    drafter = Drafter()
    made = graphs(drafter, [4])
    made.record(lambda call: call)
    drafter.sizes.clear()
    assert commit(made, [2, 1], torch.float64) == drafter.appended
    assert drafter.sizes == [2]


def test_given_up_graphs_are_used_no_more() -> None:
    drafter = Drafter()
    made = graphs(drafter, [4])
    made.record(lambda call: call)
    inputs = made.inputs(1)
    made.give_up()
    assert made.inputs(1).slots.data_ptr() != inputs.slots.data_ptr()
    assert commit(made, [2]) == drafter.appended
