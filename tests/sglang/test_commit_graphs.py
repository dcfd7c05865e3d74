"""Which recorded size serves a batch, and what it commits."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from engine_launch.sglang_plugin.commit_graphs import CommitGraphs
from engine_launch.sglang_plugin.commit_recording import CaptureFailed, record_with_own_helper

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
        raise RuntimeError("CUDA out of memory")

    made.record(refuse)
    assert [record.message for record in caplog.records] == ["DDTREE commits without CUDA graphs: CUDA out of memory"]
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


def test_features_of_another_width_go_to_sglang_which_refuses_them() -> None:
    seen: list[tuple[int, ...]] = []
    made = CommitGraphs(
        lambda features, *_: seen.append(tuple(features.shape)), [4], block=BLOCK, features=5, dtype=torch.float32, device="cpu"
    )
    made.record(lambda call: call)
    commit(made, [1])
    assert seen == [(BLOCK, 2)]


class Helper:
    """As SGLang's: it works in a buffer that it replaces by a larger one when more rows come."""

    def __init__(self) -> None:
        self.weights = torch.ones(2)
        self.room = torch.empty(0)
        self.rotary_emb = SimpleNamespace(cos_sin_cache=torch.zeros(9))

    def run(self, rows: int) -> Tensor:
        if rows > len(self.room):
            self.room = torch.empty(rows)
        return self.room[:rows].fill_(float(self.weights[0]))


class Worker:
    """Holds a helper and gives it up when a call fails, as SGLang's worker does."""

    def __init__(self) -> None:
        self._fused_kv_helper: Helper | None = Helper()
        self._use_fused_kv_materialize = True
        self.used: list[weakref.ref[Tensor]] = []
        self.fails = False
        attention = SimpleNamespace(rotary_emb=SimpleNamespace(cos_sin_cache=torch.zeros(9)))
        self.draft_model = SimpleNamespace(layers=[SimpleNamespace(self_attn=attention)])

    def append(self, features: Tensor, *_: Tensor) -> None:
        helper = self._fused_kv_helper
        if helper is None or self.fails:
            self._fused_kv_helper, self._use_fused_kv_materialize = None, False
            return
        helper.run(len(features))
        tables = [part.rotary_emb.cos_sin_cache for part in (helper, self.draft_model.layers[0].self_attn)]
        self.used += [weakref.ref(used) for used in (helper.room, helper.weights, *tables)]

    def graphs(self, sizes: list[int]) -> CommitGraphs:
        return CommitGraphs(self.append, sizes, block=BLOCK, features=2, dtype=torch.float32, device="cpu")


def call_once(call: Callable[[], None]) -> Callable[[], None]:
    call()
    return lambda: None


def test_what_recorded_calls_work_in_stays_when_the_helper_takes_larger_buffers_or_is_given_up() -> None:
    worker = Worker()
    made = worker.graphs([1, 2, 4])
    helper = worker._fused_kv_helper
    assert helper is not None
    record_with_own_helper(made, worker, call_once)
    assert worker._fused_kv_helper is helper
    assert made.sizes == (1, 2, 4)
    helper.run(1000)
    helper.rotary_emb = SimpleNamespace(cos_sin_cache=torch.zeros(99))
    worker._fused_kv_helper = helper = None
    worker.draft_model.layers.clear()
    assert all(used() is not None for used in worker.used)


def test_a_helper_that_fails_while_it_is_recorded_is_not_lost_and_layers_one_by_one_are_not_recorded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = Worker()
    worker.fails = True
    helper = worker._fused_kv_helper
    made = worker.graphs([1, 2])
    record_with_own_helper(made, worker, call_once)
    assert (worker._fused_kv_helper, worker._use_fused_kv_materialize) == (helper, True)
    assert made.sizes == ()
    assert "SGLang's own helper failed" in caplog.text


def test_a_drafter_without_the_helper_is_recorded_as_it_is() -> None:
    worker = Worker()
    worker._fused_kv_helper, worker._use_fused_kv_materialize = None, False
    made = worker.graphs([1])
    record_with_own_helper(made, worker, call_once)
    assert made.sizes == (1,)
    assert worker._fused_kv_helper is None


def test_a_capture_that_is_broken_off_ends_the_start_and_leaves_the_worker_as_it_was() -> None:
    def break_off(call: Callable[[], None]) -> Callable[[], None]:
        raise CaptureFailed("operation not permitted when stream is capturing")

    worker = Worker()
    helper = worker._fused_kv_helper
    with pytest.raises(CaptureFailed, match="not permitted"):
        record_with_own_helper(worker.graphs([1]), worker, break_off)
    assert worker._fused_kv_helper is helper
