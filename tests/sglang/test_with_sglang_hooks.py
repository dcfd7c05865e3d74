"""What DDTREE changes in a scheduler, on SGLang's own classes: hot settings all or none, reports, admission, metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.managers.io_struct import GetInternalStateReqOutput, SetInternalStateReq, SetInternalStateReqOutput

from engine_launch.sglang_plugin import reports, self_test
from engine_launch.sglang_plugin import scheduler_hooks as hooks
from engine_launch.sglang_plugin import worker as workers
from engine_launch.sglang_plugin.options import Options
from engine_launch.sglang_plugin.settings import Settings
from engine_launch.sglang_plugin.stages import StageClock
from engine_launch.sglang_plugin.verify import share_graph_buffers


@pytest.fixture
def scheduler() -> SimpleNamespace:
    """A scheduler's parts that the hooks touch, with a real worker that has no models."""
    worker = workers.DDTreeWorker.__new__(workers.DDTreeWorker)
    worker.__dict__.update(
        limits=Options(budget=16).resolve(8),
        current=Settings(16, 4, 0),
        plant=0,
        draft_window_size=None,
        stages=StageClock(None),
        block_size=8,
        device="cpu",
        _metrics=None,
        _graphs=None,
        _counts=None,
        _counts_key=(),
    )
    reporter = SimpleNamespace(spec_total_num_accept_tokens=7, spec_total_num_forward_ct=3)
    return SimpleNamespace(draft_worker=worker, metrics_reporter=reporter)


def put(scheduler: SimpleNamespace, **values: float) -> tuple[bool, list[dict[str, float]]]:
    """Whether a call was taken, and what SGLang's own function was given; it refuses sizes of 99."""
    passed: list[dict[str, float]] = []

    def original(_: Any, request: Any) -> Any:
        passed.append(request.server_args)
        return SetInternalStateReqOutput(updated=99 not in request.server_args.values())

    return hooks._set_state(original, scheduler, SetInternalStateReq(server_args=values)).updated, passed


def test_hot_settings_are_taken_and_the_mean_begins_anew(scheduler: SimpleNamespace) -> None:
    taken, passed = put(scheduler, speculative_ddtree_budget=32, speculation=0, speculative_draft_window_size=64)
    assert (taken, passed) == (True, [])
    assert scheduler.draft_worker.current == Settings(32, 4, 64, False)
    assert scheduler.draft_worker.draft_window_size == 64
    assert scheduler.metrics_reporter.spec_total_num_forward_ct == 0


@pytest.mark.parametrize("bad", [{"speculative_ddtree_budget": 33}, {"speculative_draft_window_size": 3}, {"speculation": 5}])
def test_one_bad_value_refuses_the_whole_call(scheduler: SimpleNamespace, bad: dict[str, float]) -> None:
    taken, _ = put(scheduler, speculative_ddtree_topk=2, **bad)
    assert not taken
    assert scheduler.draft_worker.current == Settings(16, 4, 0)


def test_other_keys_go_to_sglang_and_its_refusal_takes_ours_back(scheduler: SimpleNamespace) -> None:
    assert put(scheduler, pp_max_micro_batch_size=4) == (True, [{"pp_max_micro_batch_size": 4}])
    assert put(scheduler, speculation=0, pp_max_micro_batch_size=4) == (True, [{"pp_max_micro_batch_size": 4}])
    assert not put(scheduler, speculation=1, pp_max_micro_batch_size=99)[0]
    assert scheduler.draft_worker.current.speculation is False


def test_planted_errors_need_the_tests_own_switch(scheduler: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert put(scheduler, ddtree_plant=1)[1] == [{"ddtree_plant": 1}]
    monkeypatch.setenv("DDTREE_TEST_HOOKS", "1")
    assert put(scheduler, ddtree_plant=1) == (True, [])
    assert scheduler.draft_worker.plant == 1


def test_what_is_in_effect_is_reported(scheduler: SimpleNamespace) -> None:
    put(scheduler, speculative_ddtree_budget=8)
    answer = hooks._get_state(lambda *_: GetInternalStateReqOutput(internal_state={"a": 1}), scheduler, None)
    assert answer.internal_state["a"] == 1
    assert answer.internal_state["speculative_ddtree_budget"] == 8
    assert answer.internal_state["ddtree"]["max_budget"] == 32


def test_sizes_of_a_batch_come_from_the_settings_and_the_requests(scheduler: SimpleNamespace) -> None:
    worker = scheduler.draft_worker
    customs = (None, {"ddtree_budget": 3, "__req__": object()}, {"speculative": False}, {"ddtree_budget": 999})
    reqs = [SimpleNamespace(sampling_params=SimpleNamespace(custom_params=custom)) for custom in customs]
    sizes = worker._tree_sizes(reqs)
    assert sizes == ((16, 4), (3, 4), (0, 4), (16, 4))
    budgets, topks = worker._size_tensors(sizes)
    assert budgets.tolist() == [16, 3, 0, 16]
    assert topks.dtype == torch.int32
    assert worker._size_tensors(sizes)[0] is budgets, "kept while the batch stays"


def test_graph_buffers_are_made_once_and_per_request() -> None:
    made: list[tuple[int, int, int]] = []
    backend = SimpleNamespace(max_context_len=100, device="cpu")
    backend.init_cuda_graph_state = lambda bs, rows, kv_indices_buf: made.append((bs, rows, kv_indices_buf.numel()))
    share_graph_buffers(backend)
    backend.init_cuda_graph_state(8, 8 * 65)
    backend.init_cuda_graph_state(8, 8 * 17)
    assert made == [(8, 8, 800)]


def test_a_request_near_the_contexts_end_has_room_for_two_passes() -> None:
    arguments = SimpleNamespace(max_speculative_num_draft_tokens=65)
    assert hooks._row_headroom(lambda _: 4 + 65, arguments) == 4 + 130


@pytest.mark.parametrize(("warm", "agrees", "ready"), [(True, True, True), (True, False, False), (False, True, False)])
def test_a_server_is_ready_only_after_its_self_test(
    warm: bool, agrees: bool, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr("sglang.srt.utils.kill_process_tree", ended.append)
    monkeypatch.setattr(self_test, "check", lambda *_: agrees)
    outcomes: list[bool] = []
    arguments = SimpleNamespace(url=lambda: "http://127.0.0.1:1", api_key=None, skip_tokenizer_init=False)
    reports.with_self_test(lambda args, _, warm_up: outcomes.append(warm_up(args)), arguments, None, lambda _: warm)
    assert outcomes == [ready]
    assert bool(ended) == (warm and not agrees), "the server ends when its answers differ"
