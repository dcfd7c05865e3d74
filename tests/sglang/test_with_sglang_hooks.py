"""What DDTREE changes in a scheduler, on SGLang's own classes: hot settings all or none, reports, admission, metrics."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from sglang.srt.managers.io_struct import GetInternalStateReqOutput, SetInternalStateReq, SetInternalStateReqOutput
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.mem_cache.base_prefix_cache import InsertParams
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.model_executor.pool_configurator import DefaultPoolConfigurator, MemoryPoolConfig
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.speculative.dflash_utils import scale_kv_cell_size_per_token_for_dflash, validate_dflash_request
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2

from engine_launch.sglang_plugin import reports, self_test, start
from engine_launch.sglang_plugin import scheduler_hooks as hooks
from engine_launch.sglang_plugin import worker as workers
from engine_launch.sglang_plugin.batch_sizes import SizeTensors, sizes_of
from engine_launch.sglang_plugin.draft_pool import RingPlan
from engine_launch.sglang_plugin.options import Options
from engine_launch.sglang_plugin.ring import DraftRing
from engine_launch.sglang_plugin.settings import FIELDS, Settings
from engine_launch.sglang_plugin.stages import StageClock
from engine_launch.sglang_plugin.verify import VerifyGraphs, share_graph_buffers
from engine_launch.spec.draft_pool import KvShape


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
        _commit_graphs=None,
        _ring=None,
        ring_plan=None,
        draft_shape=KvShape(1, 10),
        draft_model_runner=SimpleNamespace(token_to_kv_pool=SimpleNamespace(size=100, get_kv_size_bytes=lambda: (400, 400))),
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


@pytest.mark.parametrize("name", ["speculative_accept_threshold_single", "speculative_accept_threshold_acc"])
def test_what_no_tree_asks_for_is_refused_and_not_taken_without_effect(scheduler: SimpleNamespace, name: str) -> None:
    assert put(scheduler, **{name: 0.5}) == (False, [])
    assert put(scheduler, **{name: 0.5, "speculation": 0}) == (False, [])
    assert scheduler.draft_worker.current.speculation is True


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e400])
def test_no_number_ends_the_scheduler(scheduler: SimpleNamespace, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDTREE_TEST_HOOKS", "1")
    for name in (*FIELDS, "ddtree_plant"):
        assert not put(scheduler, **{name: value})[0]
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
    assert answer.internal_state["ddtree"]["draft_pool"] == {"kind": "stock", "rows": 100, "bytes": 800}


@pytest.fixture
def ring(scheduler: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> DraftRing:
    """The scheduler's worker with a ring of 16 tokens for 2 requests, drafter of 10 bytes a token, blocks of 8."""
    worker = scheduler.draft_worker
    worker.ring_plan = RingPlan(16, 8, 2, worker.draft_shape, None)
    worker._ring = worker.ring_plan.allocate(2, "cpu")
    worker._prefill_rows = None
    monkeypatch.setattr(workers, "_running", worker)
    found: DraftRing = worker._ring
    return found


def test_the_rings_bytes_come_first_and_a_token_costs_the_target_alone(
    scheduler: SimpleNamespace, ring: DraftRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sized() -> int:
        configurator = DefaultPoolConfigurator.__new__(DefaultPoolConfigurator)
        configurator._cell_size = hooks._token_bytes(
            scale_kv_cell_size_per_token_for_dflash, target_cell_size_per_token=100, target_num_layers=2, draft_num_layers=1
        )
        return int(hooks._pool_sizes(DefaultPoolConfigurator.calculate_pool_sizes, configurator, 60_490, 1).max_total_num_tokens)

    plan = scheduler.draft_worker.ring_plan
    assert sized() == 600
    own, stock = plan.foretold()
    assert (own.tokens, own.draft_rows, own.draft_bytes) == (600, ring.total, 490)
    plan.left_for_target(60_490)
    with pytest.raises(ValueError, match="--max-running-requests"):
        plan.left_for_target(490)
    scheduler.draft_worker.ring_plan = None
    assert sized() == 60_490 // 110 == stock.tokens, "the drafter's own size, not that of a target's layer"
    monkeypatch.setattr(workers, "_running", None)
    assert sized() == 60_490 // 150, "without DDTREE as SGLang does it"


def test_the_drafters_pool_gets_the_rings_rows(
    scheduler: SimpleNamespace, ring: DraftRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, given = scheduler.draft_worker, []
    pool = MHATokenToKVPool(1, 1, torch.float16, 1, 2, 1, "cpu", False, enable_alt_stream=False)
    worker.__dict__.update(
        draft_model_runner=SimpleNamespace(token_to_kv_pool=pool),
        ps=SimpleNamespace(tp_rank=0),
        model_runner=SimpleNamespace(max_total_num_tokens=7),
    )
    monkeypatch.setattr(DFlashWorkerV2, "alloc_memory_pool", lambda _, config, *__: given.append(config))
    config = MemoryPoolConfig(max_total_num_tokens=600, max_running_requests=2)
    worker.alloc_memory_pool(memory_pool_config=config, req_to_token_pool=None, token_to_kv_pool_allocator=None)
    assert (given[0].max_total_num_tokens, given[0].max_running_requests) == (ring.total, 2)
    assert config.max_total_num_tokens == 600, "the target's own is not changed"
    assert worker.report()["draft_pool"]["rows_per_request"] == 24
    worker.draft_model_runner.token_to_kv_pool = SimpleNamespace()
    with pytest.raises(ValueError, match="draft KV cache of kind SimpleNamespace"):
        worker.alloc_memory_pool(memory_pool_config=config)


def test_a_prefill_is_written_into_the_ring_and_a_commit_where_it_is_told(
    scheduler: SimpleNamespace, ring: DraftRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, written = scheduler.draft_worker, []
    monkeypatch.setattr(DFlashWorkerV2, "_append_target_hidden_to_draft_kv_by_loc", lambda _, **given: written.append(given))
    features, slots = torch.arange(30.0).view(30, 1), torch.arange(500, 530)

    def stock_prefill(worker: Any, batch: Any, *_: Any) -> None:
        worker._append_target_hidden_to_draft_kv_by_loc(target_hidden=features, cache_loc=slots, positions=torch.arange(30))

    monkeypatch.setattr(DFlashWorkerV2, "forward_batch_generation", stock_prefill)
    mode = SimpleNamespace(is_extend=lambda: True, is_idle=lambda: False)
    batch = SimpleNamespace(
        forward_mode=mode, reqs=[SimpleNamespace(req_pool_idx=2)], prefix_lens=[0], extend_lens=[30], is_extend_in_batch=True
    )
    worker.forward_batch_generation(batch)
    assert written[0]["positions"].tolist() == list(range(14, 30))
    assert written[0]["target_hidden"].view(-1).tolist() == [float(i) for i in range(14, 30)]
    assert written[0]["cache_loc"].tolist() == [ring.row(2, position) for position in range(14, 30)]
    worker._append_target_hidden_to_draft_kv_by_loc(
        target_hidden=features, cache_loc=slots, positions=slots, cache_loc_2d=slots.view(5, 6), commit_lens=slots[:5]
    )
    assert written[1]["cache_loc"] is slots
    assert written[1]["commit_lens"].numel() == 5


def test_a_prefix_hit_leaves_the_rings_window_to_be_computed(scheduler: SimpleNamespace, ring: DraftRing) -> None:
    cache = RadixCache.create_simulated()
    tokens = array("q", range(100, 140))
    cache.insert(InsertParams(key=RadixKey(tokens), value=torch.arange(40)))
    scheduler.tree_cache = cache

    def found(prompt: array[int]) -> int:
        req = Req("r", "", prompt, SamplingParams())
        req.init_next_round_input(cache)
        return len(req.prefix_indices)

    assert found(tokens) == 39
    hooks._lengthen_tail(scheduler)
    assert found(tokens) == 40 - 16
    assert found(tokens[:10]) == 0
    assert found(tokens + array("q", range(16))) == 40


def test_sizes_of_a_batch_come_from_the_settings_and_the_requests(scheduler: SimpleNamespace) -> None:
    customs = (None, {"ddtree_budget": 3, "__req__": object()}, {"speculative": False}, {"ddtree_budget": 999}, "abc")
    reqs = [SimpleNamespace(sampling_params=SimpleNamespace(custom_params=custom)) for custom in customs]
    sizes = sizes_of(reqs, scheduler.draft_worker.current, scheduler.draft_worker.limits)
    assert sizes == ((16, 4), (3, 4), (0, 4), (16, 4), (16, 4)), "a request that admission refused may be in a batch once more"
    tensors = SizeTensors("cpu")
    budgets, topks = tensors.of(sizes)
    assert budgets.tolist() == [16, 3, 0, 16, 16]
    assert topks.dtype == torch.int32
    assert tensors.of(sizes)[0] is budgets, "kept while the batch stays"


def test_graph_buffers_are_made_once_and_per_request() -> None:
    made: list[tuple[int, int, int]] = []
    backend = SimpleNamespace(max_context_len=100, device="cpu", req_to_token=torch.zeros(9, 134))
    backend.init_cuda_graph_state = lambda bs, rows, kv_indices_buf: made.append((bs, rows, kv_indices_buf.numel()))
    share_graph_buffers(backend)
    backend.init_cuda_graph_state(8, 8 * 65)
    backend.init_cuda_graph_state(8, 8 * 17)
    assert made == [(8, 8, 8 * 134)]
    assert backend.max_context_len == 134, "the mask, too, holds a round that begins beyond the context"


def test_a_width_with_larger_batches_than_the_widest_has_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def runner(_: Any, attn_backend: Any, speculative_num_draft_tokens: int) -> SimpleNamespace:
        return SimpleNamespace(max_bs=50 if speculative_num_draft_tokens == 16 else 48)

    monkeypatch.setattr("sglang.srt.model_executor.runner.decode_cuda_graph_runner.DecodeCudaGraphRunner", runner)
    target = SimpleNamespace(attn_backend=None, decode_cuda_graph_runner=SimpleNamespace(max_bs=48))
    graphs = VerifyGraphs(target, (1, 16, 33))
    assert graphs.widths == (1, 33)
    graphs.use(16)
    assert target.decode_cuda_graph_runner is None


@pytest.mark.parametrize(
    ("tokens", "commit", "length", "reason"),
    [
        ([5, 6, 2, 7, 8], 5, 3, "matched"),  # the stop comes before the last token allowed
        ([5, 6, 7, 2, 8], 5, 4, "length"),  # the stop is the last one: as in plain decoding
        ([5, 6, 7, 8, 2], 5, 4, "length"),
        ([5, 6, 7, 2], 1, 4, "length"),
        ([5, 6, 2], 2, 3, "matched"),
        ([5, 6, 7], 2, None, None),
    ],
)
def test_a_stop_before_the_last_token_allowed_ends_an_answer(
    tokens: list[int], commit: int, length: int | None, reason: str | None
) -> None:
    req = Req("r", "", [1], SamplingParams(max_new_tokens=4, stop_token_ids={2}), vocab_size=100)
    req.sampling_params.normalize(None)
    req.output_ids.extend(tokens)
    hooks._finish(Req.update_finish_state, req, commit)
    assert list(req.output_ids) == tokens
    assert req.finished_len == length
    assert (req.finished_reason.to_json()["type"] if reason else req.finished_reason) == (
        "stop" if reason == "matched" else reason
    )


class Letters:
    """A tokenizer of one letter per token; 2 is its end and has no letter."""

    eos_token_id = 2
    additional_stop_token_ids = None

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, tokens: Any) -> str:
        return "".join(chr(token) for token in tokens if token != 2)


@pytest.mark.parametrize(
    ("stops", "commit", "length", "matched"),
    [
        ({"stop": ["zz", "c"]}, "abczz", 3, "c"),  # the order of the text counts, and not that of the request
        ({"stop": ["c", "zz"]}, "abczz", 3, "c"),
        ({"stop": ["zz"]}, "ab\2zz", 3, 2),  # what follows the end was never written
        ({"stop": ["zz"]}, "abzz\2", 4, "zz"),
        ({"stop": ["zz"]}, "abcde", None, None),
        ({"stop_regex": ["b+$"]}, "abbc", 2, "b+$"),
        ({"stop_regex": ["c."], "stop": ["b"]}, "abcd", 2, "b"),
        ({"stop_regex": ["c."]}, "abcd", 4, "c."),
    ],
)
def test_of_several_ends_in_one_commit_the_first_one_counts(
    stops: dict[str, Any], commit: str, length: int | None, matched: object
) -> None:
    def finished(step: int) -> tuple[int | None, object, list[int]]:
        req = Req("r", "", [1], SamplingParams(max_new_tokens=100, **stops), vocab_size=1000, eos_token_ids={2})
        req.tokenizer = Letters()
        req.sampling_params.normalize(req.tokenizer)
        for begin in range(0, len(commit), step):
            if req.finished():
                break
            req.output_ids.extend(ord(letter) for letter in commit[begin : begin + step])
            hooks._finish(Req.update_finish_state, req, len(commit[begin : begin + step]))
        found = req.finished_len if req.finished() else None
        return found, getattr(req.finished_reason, "matched", None), list(req.output_ids[:found])

    assert finished(len(commit)) == finished(1), "plain decoding"
    assert finished(len(commit))[:2] == (length, matched)


@pytest.mark.parametrize(
    "asked",
    [{"logit_bias": [5]}, {"logit_bias": {"5": "x"}}, {"top_k": 1 << 40}, {"max_new_tokens": 5.5}, {"frequency_penalty": 1.0}],
)
def test_a_refused_request_asks_for_nothing_in_the_batch_that_ends_it(
    scheduler: SimpleNamespace, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler.draft_worker.held = ""
    monkeypatch.setattr(workers, "_running", scheduler.draft_worker)
    req = Req("r", "", [1], SamplingParams(**asked), custom_logit_processor="x", return_hidden_states=True)
    assert hooks._validate_request(validate_dflash_request, req, True)
    assert req.sampling_params == neutral_parameters()
    assert (req.custom_logit_processor, req.return_hidden_states) == (None, False)


def neutral_parameters() -> SamplingParams:
    made = SamplingParams(max_new_tokens=1)
    made.normalize(None)
    return made


def test_a_request_near_the_contexts_end_has_room_for_two_passes() -> None:
    arguments = SimpleNamespace(max_speculative_num_draft_tokens=65)
    assert hooks._row_headroom(lambda _: 4 + 65, arguments) == 4 + 130


@pytest.mark.parametrize(("asked", "given"), [(None, 1000 - 300 - 2 * 33 - 1), (700, 633), (20, 20)])
@pytest.mark.parametrize("cap", [None, 500])
def test_an_answer_that_fills_the_pool_leaves_room_for_the_round_that_ends_it(
    asked: int | None, given: int, cap: int | None
) -> None:
    """A round reserves two passes beyond what is committed; the target's context would allow more."""
    scheduler = SimpleNamespace(
        max_new_tokens_limit=cap,
        page_size=1,
        max_req_len=4000,
        max_total_num_tokens=1000,
        server_args=SimpleNamespace(dcp_size=1, speculative_num_draft_tokens=33),
    )
    req = Req("r", "", [1] * 300, SamplingParams(max_new_tokens=asked))
    hooks._leave_room(Scheduler.init_req_max_new_tokens, scheduler, req)
    assert req.sampling_params.max_new_tokens == min(given, cap or given)


def test_a_prompt_that_fills_the_pool_gets_no_tokens_and_no_less() -> None:
    scheduler = SimpleNamespace(
        max_new_tokens_limit=None,
        page_size=1,
        max_req_len=4000,
        max_total_num_tokens=1000,
        server_args=SimpleNamespace(dcp_size=1, speculative_num_draft_tokens=33),
    )
    req = Req("r", "", [1] * 990, SamplingParams(max_new_tokens=50))
    hooks._leave_room(Scheduler.init_req_max_new_tokens, scheduler, req)
    assert (req.sampling_params.max_new_tokens, req.sampling_params.min_new_tokens) == (0, 0)


def test_a_worker_whose_flags_are_not_the_servers_does_not_start() -> None:
    limits = Options(budget=16).resolve(8)
    start.check_width(limits, 33)
    with pytest.raises(ValueError, match=r"trees of up to 33 rows, but the server's arguments reserve 9"):
        start.check_width(limits, 9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.bfloat16])
def test_an_eager_pass_of_the_drafter_gets_embeddings_in_its_own_type(dtype: torch.dtype) -> None:
    runner = ModelRunner.__new__(ModelRunner)
    runner.__dict__.update(support_pp=False, is_generation=True, dtype=dtype)
    start.keep_embedding_type(runner)
    embeds = torch.tensor([[1.0 + 2.0**-9]], dtype=dtype)
    batch = SimpleNamespace(input_embeds=embeds, replace_embeds=None, replace_positions=None)
    assert torch.equal(runner._extend_forward_kwargs(batch, None)["input_embeds"], embeds)
    assert runner._extend_forward_kwargs(SimpleNamespace(**{**vars(batch), "input_embeds": None}), None) == {}


def test_rows_with_scales_of_their_own_are_not_moved() -> None:
    pool = MHATokenToKVPool.__new__(MHATokenToKVPool)
    pool.__dict__.update(
        k_buffer=[torch.zeros(4, 1, 8)], v_buffer=[torch.zeros(4, 1, 8)], dtype=torch.uint8, kv_cache_layout="nhd"
    )
    assert start.row_mover(pool) is not None
    pool.quant_method = pool.kv_quant_method = object()
    assert pool.is_quantized_kv_cache
    with pytest.raises(ValueError, match=r"KV cache of kind MHATokenToKVPool \(torch.uint8\): give another --kv-cache-dtype"):
        start.row_mover(pool)


@pytest.mark.parametrize(("warm", "agrees", "ready"), [(True, True, True), (True, False, False), (False, True, False)])
def test_a_server_is_ready_only_after_its_self_test(
    warm: bool, agrees: bool, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr("sglang.srt.utils.kill_process_tree", ended.append)
    asked: list[object] = []

    def check(*given: object) -> bool:
        asked.append(given)
        return agrees

    monkeypatch.setattr(self_test, "check", check)
    outcomes: list[bool] = []
    arguments = SimpleNamespace(
        url=lambda: "https://127.0.0.1:1", api_key=None, skip_tokenizer_init=False, ssl_verify=lambda: False
    )
    reports.with_self_test(lambda args, _, warm_up: outcomes.append(warm_up(args)), arguments, None, lambda _: warm)
    assert outcomes == [ready]
    assert asked == ([("https://127.0.0.1:1", None, False, False)] if warm else [])
    assert bool(ended) == (warm and not agrees), "the server ends when its answers differ"


def test_the_warm_up_is_reached_as_sglang_calls_it() -> None:
    """By names alone, from a thread: an error there would leave a server that is never ready."""
    seen: list[tuple[object, object]] = []
    hook = reports._for_ddtree(lambda original, server_args, launch_callback: seen.append((server_args, launch_callback)))
    arguments, other = SimpleNamespace(speculative_algorithm="DDTREE"), SimpleNamespace(speculative_algorithm="DFLASH")
    hook(None, server_args=arguments, launch_callback=1)
    assert seen == [(arguments, 1)]
    assert hook(lambda server_args, launch_callback: "stock", server_args=other, launch_callback=1) == "stock"
    assert seen == [(arguments, 1)]
