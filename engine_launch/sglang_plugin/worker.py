"""The worker: one round of draft, tree, verify and commit for the running batch.

Built on SGLang's DFLASH worker, from which it takes prefill, the compact draft cache and the writing of features into the
draft KV. What differs: the drafter gives the best candidates per position instead of its best chain; a tree is built from
them; the target verifies all nodes in one pass, each seeing only its ancestors; the longest path that the target agrees with
is kept, its KV rows are moved to the front, and the features of exactly its nodes go to the drafter.

Here are the methods that SGLang calls and the order of a round; its parts are in ``draft_pass``, ``kernels`` and ``verify``,
what is checked and logged at the start in ``start``, what tests switch in ``switches``.
"""

from __future__ import annotations

import logging
import os
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from sglang.srt.distributed import get_tp_group
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.runtime_context import get_exec, get_parallel
from sglang.srt.speculative.dflash_utils import apply_dflash_verify_logits_adjustments
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2
from torch import Tensor

from engine_launch.sglang_plugin import (
    block_kernel,
    commit_recording,
    draft_pass,
    draft_pool,
    kernels,
    plants,
    settings,
    start,
    weights,
)
from engine_launch.sglang_plugin.arguments import block_of
from engine_launch.sglang_plugin.batch_sizes import SizeTensors, sizes_of
from engine_launch.sglang_plugin.candidates import CandidateHead
from engine_launch.sglang_plugin.commit_graphs import CommitGraphs, CommitInputs
from engine_launch.sglang_plugin.metrics import TreeMetrics
from engine_launch.sglang_plugin.options import Limits, Options
from engine_launch.sglang_plugin.ring import DraftRing, PrefillRows
from engine_launch.sglang_plugin.stages import StageClock
from engine_launch.sglang_plugin.switches import Switches
from engine_launch.sglang_plugin.verify import (
    VerifyGraphs,
    choose,
    host_bound,
    mask_buffer,
    read_every_mask,
    share_graph_buffers,
    verify,
)
from engine_launch.spec.tree_sizes import MAX_WINDOW

_logger = logging.getLogger(__name__)
_NO_WINDOW = MAX_WINDOW << 8
"""Tokens; a window that no request fills is none."""

_running: DDTreeWorker | None = None


def running_worker() -> DDTreeWorker | None:
    """The worker of this process, if there is one."""
    return _running


class DDTreeWorker(DFlashWorkerV2):  # type: ignore[misc]
    """Speculative decoding with DDTREE for one rank."""

    def __init__(self, server_args: Any, gpu_id: int, ps: Any, nccl_port: int, target_worker: Any) -> None:
        block = block_of(server_args)
        self.limits: Limits = Options.load().resolve(block, server_args.speculative_draft_window_size)
        start.check_width(self.limits, int(server_args.speculative_num_draft_tokens))
        # The DFLASH worker reads its block where these arguments hold the tree's width.
        own_args = deepcopy(server_args)
        own_args.override("ddtree.block", speculative_num_draft_tokens=block)
        stock_logger = logging.getLogger(DFlashWorkerV2.__module__)
        stock_logger.addFilter(start.without_dflash_lines)
        try:
            super().__init__(own_args, gpu_id, ps, nccl_port, target_worker)
        finally:
            stock_logger.removeFilter(start.without_dflash_lines)
        self.current = settings.Settings(self.limits.budget, self.limits.topk, self.draft_window_size or 0)
        start.check_target(self.page_size, self.model_runner)
        start.keep_embedding_type(self.draft_model_runner)
        # The window may be switched on later, so the drafter's own table is kept in any case.
        self.use_compact_draft_cache = True
        self._set_window(self.current.window)
        self.speculative_num_draft_tokens = self.limits.budget + 1
        self._group = get_tp_group() if get_tp_group().world_size > 1 else None
        self._head: CandidateHead | None = None
        self._graphs: VerifyGraphs | None = None
        self._commit_graphs: CommitGraphs | None = None
        self._mover: kernels.RowMover | None = None
        self._size_tensors = SizeTensors(self.device)
        self._first_verify_logged = False
        self.draft_shape = draft_pool.draft_shape(self.draft_model_runner, get_parallel().attn_tp_size)
        self.ring_plan = start.plan_ring(self.limits, self.draft_shape, server_args)
        self._ring: DraftRing | None = None
        self._prefill_rows: PrefillRows | None = None
        self.plant = plants.PLANT_NONE
        self._switches = Switches(self._group)
        self.held = self.lost_graphs = ""
        self._metrics: TreeMetrics | None = None
        timing = os.environ.get("DDTREE_TIMING") == "1"
        self.stages = StageClock(torch.get_device_module(self.device).synchronize if timing else None)
        if self.ps.tp_rank == 0:
            start.log_start(self.draft_model_runner, self.draft_model, self.limits, self.current)
        global _running
        _running = self

    # -- start ---------------------------------------------------------------------------------------------------------

    def _validate_phase1_sampling_support(self, batch: Any) -> None:
        """DFLASH warns here that it falls back to greedy decoding; DDTREE draws with SGLang's own sampler everywhere."""

    def alloc_memory_pool(
        self, memory_pool_config: Any = None, req_to_token_pool: Any = None, token_to_kv_pool_allocator: Any = None
    ) -> None:
        """The drafter's pool: as many rows as the target's, or those of the rings."""
        if self.ring_plan is not None:
            self._ring = self.ring_plan.allocate(memory_pool_config.max_running_requests, self.device)
            memory_pool_config = replace(memory_pool_config, max_total_num_tokens=self._ring.total)
        super().alloc_memory_pool(memory_pool_config, req_to_token_pool, token_to_kv_pool_allocator)
        pool = self.draft_model_runner.token_to_kv_pool
        if self._ring is not None and type(pool) is not MHATokenToKVPool:
            raise ValueError(
                f"--speculative-ddtree-draft-pool ring does not work with a draft KV cache of kind {type(pool).__name__}: "
                "leave it out."
            )
        if self.ps.tp_rank == 0:
            draft_pool.log_pool(pool, self._ring, self.ring_plan, self.model_runner.max_total_num_tokens)

    def init_attention_backends(self) -> None:
        super().init_attention_backends()
        backend = self.model_runner.attn_backend
        start.check_backend(backend, self._need_mamba_verify_commit)
        read_every_mask(backend)
        share_graph_buffers(backend)

    def init_cuda_graphs(self) -> None:
        self._head = CandidateHead(
            getattr(self.target_worker.model_runner.model, "lm_head", None),
            get_tp_group(),
            block=self.block_size,
            topk=self.limits.max_topk,
            max_bs=max(get_exec().graph.cuda_graph_config.decode.bs or [1]),
        )
        super().init_cuda_graphs()
        self._graphs = VerifyGraphs(self.model_runner, self.limits.widths)
        self._mover = start.row_mover(self.model_runner.token_to_kv_pool)
        kernels.warm_up(self.limits.widths, self.block_size, self.limits.max_topk, self.device, self._mover)
        table, own_table = (runner.req_to_token_pool.req_to_token for runner in (self.model_runner, self.draft_model_runner))
        block_kernel.warm_up(self.block_size, table, own_table, self._ring)
        sizes = get_exec().graph.cuda_graph_config.decode.bs or [] if self._graphs.widths else []
        self._commit_graphs = commit_recording.of_worker(self, self._append_accepted, sizes)
        if self.ps.tp_rank == 0:
            _logger.info(
                "DDTREE verify graphs captured. widths=%s, commit batch sizes=%s",
                list(self._graphs.widths),
                list(self._commit_graphs.sizes),
            )

    def _maybe_build_draft_sampler(self) -> CandidateHead | None:
        """What the DFLASH worker folds into the draft's graph: here, the candidates."""
        return self._head

    # -- weights that change while running, see weights.py -------------------------------------------------------------

    def update_weights_from_disk(self, recv_req: Any) -> tuple[bool, str]:
        """SGLang gives the target's checkpoint, which the target has taken already; there is nothing in it for the drafter."""
        return True, weights.TARGET_ONLY

    def update_weights_from_ipc(self, recv_req: Any) -> tuple[bool, str]:
        """As :meth:`update_weights_from_disk`."""
        return True, weights.TARGET_ONLY

    def update_weights_from_tensor(self, recv_req: Any) -> Any:
        """Here SGLang leaves the target to the draft worker."""
        return self.target_worker.update_weights_from_tensor(recv_req)

    def hold(self, reason: str) -> None:
        """Refuse every new request with ``reason``; an empty text ends that."""
        self.held = reason

    def give_up_graphs(self, reason: str) -> None:
        """Hold for good. Requests that run already end in eager passes of the target, which alone decides their tokens."""
        self.held = self.lost_graphs = reason
        assert self._graphs is not None
        assert self._commit_graphs is not None
        self._graphs.give_up()
        self._commit_graphs.give_up()

    # -- settings that change while running ----------------------------------------------------------------------------

    def change_setting(self, name: str, value: float) -> None:
        """Put one hot setting into effect from the next round on. Raises ValueError when it is not taken."""
        self._put(settings.change(self.current, self.limits, name, value))

    def restore_settings(self, settings_before: settings.Settings) -> None:
        """Take back changes of a call that was refused in part."""
        self._put(settings_before)

    def _put(self, new: settings.Settings) -> None:
        self.current = new
        self._set_window(new.window)
        self.stages.reset()
        if self._metrics is not None:
            self._metrics.settings(new)

    def start_metrics(self, metrics: TreeMetrics) -> None:
        """From now on, report settings and commit lengths."""
        self._metrics = metrics
        metrics.settings(self.current)

    def on_verify_complete_cpu(self, num_correct_drafts_per_req: list[int], batch_size: int = 0) -> None:
        """SGLang calls this when a round's numbers have come to the host."""
        if self._metrics is not None:
            self._metrics.round(num_correct_drafts_per_req, self.speculative_num_draft_tokens - 1)

    def report(self) -> dict[str, Any]:
        """For ``/server_info``: limits of this start."""
        limits = self.limits
        return {
            "block_size": limits.block,
            "max_budget": limits.max_budget,
            "max_topk": limits.max_topk,
            "verify_widths": list(limits.widths),
            "graph_widths": [] if self._graphs is None else list(self._graphs.widths),
            "commit_graphs": [] if self._commit_graphs is None else list(self._commit_graphs.sizes),
            "draft_pool": draft_pool.describe(self.draft_model_runner.token_to_kv_pool, self._ring),
        }

    def prefix_tail(self, own: int) -> int:
        """Tokens at a prompt's end that a prefix-cache hit must leave to be computed; ``own`` is what the cache itself asks."""
        return own if self._ring is None else max(own, self._ring.tail)

    def _set_window(self, window: int) -> None:
        self.draft_window_size = window or _NO_WINDOW

    # -- a round ---------------------------------------------------------------------------------------------------------

    def forward_batch_generation(self, batch: Any, on_publish: Any = None, grammar_barrier: Any = None) -> Any:
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch or batch.forward_mode.is_idle():
            if self._ring is not None and not batch.forward_mode.is_idle():
                self._prefill_rows = self._ring.prefill(batch.reqs, batch.prefix_lens, batch.extend_lens)
            return super().forward_batch_generation(batch, on_publish, grammar_barrier)
        if self._ring is not None:
            self._ring.decoded(batch.reqs)
        return self._decode(batch, on_publish)

    def _append_target_hidden_to_draft_kv_by_loc(
        self, *, target_hidden: Tensor, cache_loc: Tensor, positions: Tensor, **committed: Any
    ) -> None:
        """Prefill gives the target's slots; with the ring the features go to its rows instead, those that it keeps."""
        taken, self._prefill_rows = self._prefill_rows, None
        if taken is not None:
            cache_loc = taken.rows
            if taken.kept is not None:
                target_hidden, positions = target_hidden[taken.kept], positions[taken.kept]
        super()._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=target_hidden, cache_loc=cache_loc, positions=positions, **committed
        )

    def _decode(self, batch: Any, on_publish: Any) -> Any:
        batch.seq_lens.record_stream(torch.get_device_module(self.device).current_stream())
        self.stages.begin()
        draft_input = batch.spec_info
        bs, block = len(batch.seq_lens), int(self.block_size)
        prefix_lens = batch.seq_lens
        sizes = sizes_of(batch.reqs, self.current, self.limits)
        widest = max(budget for budget, _ in sizes)
        assert self._graphs is not None
        assert self._head is not None
        width = self.limits.width_for(widest) if self._graphs.widths else widest + 1
        self.speculative_num_draft_tokens = width

        assert self._commit_graphs is not None
        inputs = self._commit_graphs.inputs(bs)
        drafted = draft_pass.lay_out_block(self, batch, draft_input, inputs)
        if widest:
            ids, logprobs = draft_pass.draft(self, self._head, batch, draft_input, drafted)
            ids, logprobs = self._switches.propose(batch.reqs, prefix_lens, ids, logprobs)
        else:
            ids = torch.zeros((bs, block - 1, 1), dtype=torch.int64, device=self.device)
            logprobs = torch.zeros((bs, block - 1, 1), dtype=torch.float32, device=self.device)

        self.stages.end("draft")
        bound = host_bound(batch, draft_input, block)
        mask = mask_buffer(self.model_runner.attn_backend, bs, width, bound, self.device)
        budgets, topks = self._size_tensors.of(sizes)
        tokens, node_positions, node_slots, parents = self._switches.builder()(
            ids,
            logprobs,
            draft_input.bonus_tokens.view(-1),
            budgets,
            topks,
            prefix_lens,
            batch.req_pool_indices,
            self.model_runner.req_to_token_pool.req_to_token,
            mask,
            width,
            self.plant,
        )

        self.stages.end("build")
        self._switches.compare_ranks(tokens, parents)
        self._graphs.use(width)
        logits_output, in_graph = verify(self.target_worker, batch, tokens, node_positions, node_slots, mask, width, bound)
        sampling_info = batch.sampling_info
        if sampling_info is not None:
            apply_dflash_verify_logits_adjustments(
                next_token_logits=logits_output.next_token_logits, sampling_info=sampling_info, draft_token_num=width
            )
        predicted = choose(logits_output.next_token_logits, sampling_info, width, self._group)
        self.stages.end("verify")
        walked = kernels.walk(tokens, parents, predicted, prefix_lens, block, inputs.commits)
        if on_publish is not None:
            on_publish(walked.new_seq_lens)
        self._commit(logits_output.hidden_states, node_slots, walked, inputs)
        logits_output.hidden_states = None
        self.stages.end("commit")
        self._log_first_verify(walked.commits)
        return GenerationBatchResult(
            logits_output=logits_output,
            next_token_ids=walked.tokens.reshape(-1),
            accept_lens=walked.commits,
            can_run_cuda_graph=in_graph,
            next_draft_input=self._make_next_draft_input_decode(bonus_tokens=walked.bonus, new_seq_lens=walked.new_seq_lens),
            speculative_num_draft_tokens=block,
            new_seq_lens=walked.new_seq_lens,
        )

    def _commit(self, hidden: Tensor, node_slots: Tensor, walked: kernels.Walk, inputs: CommitInputs) -> None:
        """Accepted rows to the front of the target's KV, their features to the drafter's."""
        bs, width = node_slots.shape
        if width > 1 and self.plant != plants.PLANT_MOVE:
            assert self._mover is not None
            self._mover(node_slots, walked.path, walked.commits)
        rows = walked.rows
        if self.plant == plants.PLANT_FEATURE:
            nodes = torch.arange(int(self.block_size), device=rows.device).clamp_max(width - 1)
            rows = (torch.arange(0, bs * width, width, device=rows.device)[:, None] + nodes).reshape(-1)
        assert self._commit_graphs is not None
        self._commit_graphs.commit(inputs, hidden.view(bs * width, -1), rows)

    def _append_accepted(self, features: Tensor, positions: Tensor, slots: Tensor, commits: Tensor) -> None:
        """Features of each request's first ``commits`` rows to the draft KV, as stock DFLASH appends them."""
        super()._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=features,
            cache_loc=slots.reshape(-1),
            cache_loc_2d=slots,
            positions=positions.reshape(-1),
            commit_lens=commits,
        )

    def _log_first_verify(self, commits: Tensor) -> None:
        if self._first_verify_logged:
            return
        self._first_verify_logged = True
        if self.ps.tp_rank == 0:
            correct = [count - 1 for count in commits.tolist()]
            _logger.info("DDTREE verify completed. num_correct_drafts_per_req=%s", correct)
