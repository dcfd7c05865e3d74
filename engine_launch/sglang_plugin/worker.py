"""The worker: one round of draft, tree, verify and commit for the running batch.

Built on SGLang's DFLASH worker, from which it takes prefill, the compact draft cache and the writing of features into the
draft KV. What differs: the drafter gives the best candidates per position instead of its best chain; a tree is built from
them; the target verifies all nodes in one pass, each seeing only its ancestors; the longest path that the target agrees with
is kept, its KV rows are moved to the front, and the features of exactly its nodes go to the drafter.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from sglang.srt.distributed import get_tp_group
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.runtime_context import get_exec, get_parallel
from sglang.srt.speculative.dflash_utils import (
    apply_dflash_verify_logits_adjustments,
    get_dflash_attention_sliding_window_size,
)
from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2, _prepare_dflash_draft_block_unchecked
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from torch import Tensor

from engine_launch.sglang_plugin import draft_pool, kernels, plants, ring_kernel, settings
from engine_launch.sglang_plugin.arguments import block_of
from engine_launch.sglang_plugin.candidates import CandidateHead
from engine_launch.sglang_plugin.metrics import TreeMetrics
from engine_launch.sglang_plugin.options import Limits, Options
from engine_launch.sglang_plugin.ring import DraftRing, PrefillRows
from engine_launch.sglang_plugin.stages import StageClock
from engine_launch.sglang_plugin.verify import TreeVerifyInput, VerifyGraphs, choose, read_every_mask, share_graph_buffers

_logger = logging.getLogger(__name__)
_NO_WINDOW = settings.MAX_WINDOW << 8
"""Tokens; a window that no request fills is none."""

_running: DDTreeWorker | None = None


def running_worker() -> DDTreeWorker | None:
    """The worker of this process, if there is one."""
    return _running


Proposer = Callable[[list[Any], Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""A test's stand-in for the drafter's candidates: requests, committed lengths, ids and log-probabilities → the latter two."""


class DDTreeWorker(DFlashWorkerV2):  # type: ignore[misc]
    """Speculative decoding with DDTREE for one rank."""

    def __init__(self, server_args: Any, gpu_id: int, ps: Any, nccl_port: int, target_worker: Any) -> None:
        block = block_of(server_args)
        self.limits: Limits = Options.load().resolve(block, server_args.speculative_draft_window_size)
        # The DFLASH worker reads its block where these arguments hold the tree's width.
        own_args = deepcopy(server_args)
        own_args.override("ddtree.block", speculative_num_draft_tokens=block)
        stock_logger = logging.getLogger(DFlashWorkerV2.__module__)
        stock_logger.addFilter(_without_dflash_lines)
        try:
            super().__init__(own_args, gpu_id, ps, nccl_port, target_worker)
        finally:
            stock_logger.removeFilter(_without_dflash_lines)
        self.current = settings.Settings(self.limits.budget, self.limits.topk, self.draft_window_size or 0)
        self._check_target()
        # The window may be switched on later, so the drafter's own table is kept in any case.
        self.use_compact_draft_cache = True
        self._set_window(self.current.window)
        self.speculative_num_draft_tokens = self.limits.budget + 1
        self._group = get_tp_group() if get_tp_group().world_size > 1 else None
        self._head: CandidateHead | None = None
        self._graphs: VerifyGraphs | None = None
        self._mover: kernels.RowMover | None = None
        self._counts_key: tuple[tuple[int, int], ...] = ()
        self._counts: tuple[Tensor, Tensor] | None = None
        self._first_verify_logged = False
        self._ranks_logged = False
        self.ring_plan = self._plan_ring(server_args)
        self._ring: DraftRing | None = None
        self._prefill_rows: PrefillRows | None = None
        self.plant = plants.PLANT_NONE
        self._proposer = _load_proposer(os.environ.get("DDTREE_PROPOSER", ""))
        self._build_on_host = os.environ.get("DDTREE_TEST_BUILDER") == "host"
        self._metrics: TreeMetrics | None = None
        timing = os.environ.get("DDTREE_TIMING") == "1"
        self.stages = StageClock(torch.get_device_module(self.device).synchronize if timing else None)
        self._check_ranks = os.environ.get("DDTREE_CHECK_RANKS") == "1" and self._group is not None
        self._log_start()
        global _running
        _running = self

    # -- start ---------------------------------------------------------------------------------------------------------

    def _check_target(self) -> None:
        """Raises ValueError for a target whose attention cannot verify a tree."""
        runner = self.model_runner
        if self.page_size not in (None, 1):
            raise ValueError(f"DDTREE needs --page-size 1, not {self.page_size}: a tree's branches cannot share a page.")
        if runner.sliding_window_size is not None:
            raise ValueError(
                "DDTREE does not work with a target whose layers have a sliding window: its kernel counts rows, not depths."
            )

    def _validate_phase1_sampling_support(self, batch: Any) -> None:
        """DFLASH warns here that it falls back to greedy decoding; DDTREE draws with SGLang's own sampler everywhere."""

    def _log_start(self) -> None:
        if self.ps.tp_rank != 0:
            return
        layers_window = get_dflash_attention_sliding_window_size(self.draft_model.config)
        _logger.info(
            "Initialized DDTREE draft runner. attention_backend=%s, model=%s, block_size=%d, tree_budget=%d, tree_topk=%d, "
            "layers_window=%s, draft_window_size=%s, compact_cache=%s, draft_pool=%s",
            self.draft_model_runner.server_args.attention_backend,
            type(self.draft_model).__name__,
            self.block_size,
            self.current.budget,
            self.current.topk,
            None if layers_window is None else layers_window + 1,
            self.current.window or None,
            self.current.window > 0,
            "ring" if self.limits.ring_window else "stock",
        )

    def _plan_ring(self, server_args: Any) -> draft_pool.RingPlan | None:
        limits = self.limits
        if not limits.ring_window:
            return None
        shape = draft_pool.draft_shape(self.draft_model_runner, get_parallel().attn_tp_size)
        requests = int(server_args.max_running_requests)
        return draft_pool.RingPlan(limits.ring_window, limits.block, requests, shape, server_args.max_total_tokens)

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
        if type(backend).__name__ != "TritonAttnBackend":
            raise ValueError(
                "DDTREE needs an attention backend with tree masks: give --attention-backend triton "
                f"(it is {type(backend).__name__})."
            )
        if self._need_mamba_verify_commit:
            raise ValueError("DDTREE does not work with recurrent layers (Mamba, linear attention): a tree has no one state.")
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
        self._mover = _row_mover(self.model_runner.token_to_kv_pool)
        kernels.warm_up(self.limits.widths, self.block_size, self.limits.max_topk, self.device, self._mover)
        if self._ring is not None:
            ring_kernel.warm_up(self._ring, self.draft_model_runner.req_to_token_pool.req_to_token)
        if self.ps.tp_rank == 0:
            _logger.info("DDTREE verify graphs captured. widths=%s", list(self._graphs.widths))

    def _maybe_build_draft_sampler(self) -> CandidateHead | None:
        """What the DFLASH worker folds into the draft's graph: here, the candidates."""
        return self._head

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
            "draft_pool": draft_pool.describe(self.draft_model_runner.token_to_kv_pool, self._ring),
        }

    def prefix_tail(self, own: int) -> int:
        """Tokens at a prompt's end that a prefix-cache hit must leave to be computed; ``own`` is what the cache itself asks."""
        return own if self._ring is None else max(own, self._ring.tail)

    def _set_window(self, window: int) -> None:
        self.draft_window_size = window or _NO_WINDOW

    def _tree_sizes(self, reqs: list[Any]) -> tuple[tuple[int, int], ...]:
        """Budget and top-k of each request of the batch; budget 0 is plain decoding."""
        shared = settings.own(None, self.current, self.limits)
        sizes = []
        for req in reqs:
            custom = req.sampling_params.custom_params
            try:
                sizes.append(settings.own(custom, self.current, self.limits) if custom else shared)
            except ValueError:  # refused at admission; what slips through decodes with the server's settings
                sizes.append(shared)
        return tuple(sizes)

    def _size_tensors(self, sizes: tuple[tuple[int, int], ...]) -> tuple[Tensor, Tensor]:
        if self._counts is None or sizes != self._counts_key:
            # Two tensors and no views of one: the kernel is compiled for aligned addresses.
            budgets, topks = (torch.tensor(column, dtype=torch.int32).to(self.device) for column in zip(*sizes, strict=True))
            self._counts_key, self._counts = sizes, (budgets, topks)
        return self._counts

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
        sizes = self._tree_sizes(batch.reqs)
        widest = max(budget for budget, _ in sizes)
        assert self._graphs is not None
        width = self.limits.width_for(widest) if self._graphs.widths else widest + 1
        self.speculative_num_draft_tokens = width

        block_ids, positions, slots = self._prepare_block(batch, draft_input, bs)
        visible = None
        if self._ring is not None:
            table = self.draft_model_runner.req_to_token_pool.req_to_token
            visible, slots = ring_kernel.view(self._ring, self.draft_window_size, prefix_lens, batch.req_pool_indices, table)
        if widest:
            ids, logprobs = self._draft(batch, draft_input, block_ids, positions, slots, visible)
            if self._proposer is not None:
                ids, logprobs = self._proposer(batch.reqs, prefix_lens, ids, logprobs)
        else:
            ids = torch.zeros((bs, block - 1, 1), dtype=torch.int64, device=self.device)
            logprobs = torch.zeros((bs, block - 1, 1), dtype=torch.float32, device=self.device)

        self.stages.end("draft")
        bound = self._host_bound(batch, draft_input)
        mask = self._mask_buffer(bs, width, bound)
        budgets, topks = self._size_tensors(sizes)
        build = kernels.build
        if self._build_on_host:
            from engine_launch.sglang_plugin.host_builder import build
        tokens, node_positions, node_slots, parents = build(
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
        if self._check_ranks:
            self._compare_ranks(tokens, parents)
        self._graphs.use(width)
        logits_output, in_graph = self._verify(batch, tokens, node_positions, node_slots, mask, width, bound)
        sampling_info = batch.sampling_info
        if sampling_info is not None:
            apply_dflash_verify_logits_adjustments(
                next_token_logits=logits_output.next_token_logits, sampling_info=sampling_info, draft_token_num=width
            )
        predicted = choose(logits_output.next_token_logits, sampling_info, width, self._group)
        self.stages.end("verify")
        out_tokens, path, commits, bonus, new_seq_lens = kernels.walk(tokens, parents, predicted, prefix_lens, block)
        if on_publish is not None:
            on_publish(new_seq_lens)
        self._commit(logits_output.hidden_states, node_slots, path, commits, positions, slots, width)
        logits_output.hidden_states = None
        self.stages.end("commit")
        self._log_first_verify(commits)
        return GenerationBatchResult(
            logits_output=logits_output,
            next_token_ids=out_tokens.reshape(-1),
            accept_lens=commits,
            can_run_cuda_graph=in_graph,
            next_draft_input=self._make_next_draft_input_decode(bonus_tokens=bonus, new_seq_lens=new_seq_lens),
            speculative_num_draft_tokens=block,
            new_seq_lens=new_seq_lens,
        )

    def _prepare_block(self, batch: Any, draft_input: Any, bs: int) -> tuple[Tensor, Tensor, Tensor]:
        """The drafter's block of each request, ``[bs, block]``: anchor and masks, their positions, their KV slots."""
        self._ensure_draft_block_buffers(bs)
        block_ids = self._draft_block_ids_buf[:bs]
        positions = self._draft_block_positions_buf[:bs]
        slots = self._draft_verify_out_cache_loc_buf[:bs]
        _prepare_dflash_draft_block_unchecked(
            bonus_tokens=draft_input.bonus_tokens.view(-1),
            prefix_lens=batch.seq_lens.view(-1),
            req_pool_indices=batch.req_pool_indices.view(-1),
            req_to_token=self.model_runner.req_to_token_pool.req_to_token,
            block_ids_out=block_ids,
            positions_out=positions,
            cache_loc_out=slots,
            mask_token_id=int(self._mask_token_id),
        )
        return block_ids, positions, slots

    def _draft(
        self, batch: Any, draft_input: Any, block_ids: Tensor, positions: Tensor, slots: Tensor, visible: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """One pass of the drafter; candidates ``[bs, block − 1, K]``. With ``visible`` the drafter's table is written already."""
        bs, block = block_ids.shape
        embeds = self.target_worker.model_runner.model.get_input_embeddings()(block_ids)
        seq_lens_cpu = self._draft_seq_lens_cpu_buf[:bs]
        stale = visible is None
        if visible is None:
            visible = self._compute_compact_draft_seq_lens(batch.seq_lens)
        self._fill_compact_seq_lens_cpu_bound(
            batch_seq_lens_cpu=batch.seq_lens_cpu,
            reserved_seq_lens_cpu=draft_input.reserved_seq_lens_cpu,
            draft_prefix_lens=visible,
            out=seq_lens_cpu,
        )
        if stale:
            self._rebuild_compact_draft_cache(
                req_pool_indices=batch.req_pool_indices,
                prefix_lens=batch.seq_lens,
                draft_prefix_lens=visible,
                verify_out_cache_loc_2d=slots,
                bs=bs,
                block_size=block,
            )
        forward_batch = ForwardBatch(
            forward_mode=ForwardMode.TARGET_VERIFY,
            batch_size=bs,
            input_ids=block_ids.flatten(),
            req_pool_indices=batch.req_pool_indices,
            seq_lens=visible,
            out_cache_loc=slots.reshape(-1),
            seq_lens_sum=int(seq_lens_cpu.sum()),
            seq_lens_cpu=seq_lens_cpu,
            positions=positions.reshape(-1),
            input_embeds=embeds.view(-1, embeds.shape[-1]),
            spec_algorithm=SpeculativeAlgorithm.DFLASH,
            spec_info=self._draft_block_spec_info,
            capture_hidden_mode=CaptureHiddenMode.NULL,
        )
        with torch.inference_mode():
            output = self.draft_model_runner.forward(forward_batch)
        head, rows = self._head, bs * (block - 1)
        assert head is not None
        if output.can_run_graph and self._draft_sampler is not None:
            ids, logprobs = head.ids[:rows], head.logprobs[:rows]
        else:
            ids, logprobs = head.take(output.logits_output.hidden_states)
        return ids.view(bs, block - 1, -1), logprobs.view(bs, block - 1, -1)

    def _host_bound(self, batch: Any, draft_input: Any) -> tuple[Any, int]:
        """Lengths that are at least the committed ones, without asking the GPU: per request (or None) and in all."""
        if batch.seq_lens_cpu is not None:
            # The host lags behind by one round at most, which commits one block at most.
            lens = batch.seq_lens_cpu + int(self.block_size)
            return lens, int(lens.sum())
        if draft_input.reserved_seq_lens_cpu is not None:
            return draft_input.reserved_seq_lens_cpu, int(draft_input.reserved_seq_lens_sum)
        lens = batch.seq_lens.to("cpu")
        return lens, int(lens.sum())

    def _mask_buffer(self, bs: int, width: int, bound: tuple[Any, int]) -> Tensor:
        """Where the tree mask of this round goes: the attention backend's own buffer when a graph may read it."""
        shared = self.model_runner.attn_backend.verify_mask
        if shared is not None and shared.fits(bs):
            buffer: Tensor = shared.buffer
            return buffer
        return torch.empty((width * (bound[1] + bs * width),), dtype=torch.uint8, device=self.device)

    def _verify(
        self,
        batch: Any,
        tokens: Tensor,
        positions: Tensor,
        slots: Tensor,
        mask: Tensor,
        width: int,
        bound: tuple[Any, int],
    ) -> tuple[Any, bool]:
        """The target's pass over all nodes: logits and features of every row."""
        verify_input = TreeVerifyInput(
            draft_token=tokens.reshape(-1),
            positions=positions.reshape(-1),
            draft_token_num=width,
            custom_mask=mask,
            capture_hidden_mode=CaptureHiddenMode.FULL,
        )
        batch.out_cache_loc = slots.reshape(-1)
        kept = batch.seq_lens_cpu, batch.seq_lens_sum
        batch.seq_lens_cpu, batch.seq_lens_sum = bound
        forward_batch, _ = verify_input.prepare_for_verify(batch, self.target_worker)
        batch.seq_lens_cpu, batch.seq_lens_sum = kept
        output = self.target_worker.forward_batch_generation(
            batch=None, forward_batch=forward_batch, is_verify=True, skip_attn_backend_init=True
        )
        if output.logits_output.hidden_states is None:
            raise RuntimeError("DDTREE needs the target's features from the verify pass, but got none")
        return output.logits_output, output.can_run_cuda_graph

    def _commit(
        self, hidden: Tensor, node_slots: Tensor, path: Tensor, commits: Tensor, positions: Tensor, slots: Tensor, width: int
    ) -> None:
        """Accepted rows to the front of the target's KV, their features to the drafter's."""
        bs, block = path.shape
        if width > 1 and self.plant != plants.PLANT_MOVE:
            assert self._mover is not None
            self._mover(node_slots, path, commits)
        starts = torch.arange(0, bs * width, width, device=path.device).unsqueeze(1)
        nodes = path
        if self.plant == plants.PLANT_FEATURE:
            nodes = torch.arange(block, device=path.device).clamp_max(width - 1).expand(bs, block)
        features = hidden.view(bs * width, -1).index_select(0, (starts + nodes).reshape(-1))
        self._append_target_hidden_to_draft_kv_by_loc(
            target_hidden=features,
            cache_loc=slots.reshape(-1),
            cache_loc_2d=slots,
            positions=positions.reshape(-1),
            commit_lens=commits,
        )

    def _compare_ranks(self, tokens: Tensor, parents: Tensor) -> None:
        """Tests only: raises RuntimeError when the ranks have built different trees."""
        assert self._group is not None
        mine = torch.cat([tokens, parents.to(tokens.dtype)]).unsqueeze(0)
        everyone = self._group.all_gather(mine.contiguous(), dim=0)
        if not bool((everyone == mine).all()):
            raise RuntimeError("DDTREE: the ranks have built different trees")
        if not self._ranks_logged:
            self._ranks_logged = True
            _logger.info("DDTREE tree ranks equal")

    def _log_first_verify(self, commits: Tensor) -> None:
        if self._first_verify_logged:
            return
        self._first_verify_logged = True
        if self.ps.tp_rank == 0:
            correct = [count - 1 for count in commits.tolist()]
            _logger.info("DDTREE verify completed. num_correct_drafts_per_req=%s", correct)


def _without_dflash_lines(record: logging.LogRecord) -> bool:
    """The DFLASH worker's own start lines would claim that DFLASH runs."""
    return not (isinstance(record.msg, str) and record.msg.startswith("Initialized DFLASH draft runner"))


def _load_proposer(name: str) -> Proposer | None:
    """``package.module:function``, for tests that need a drafter of known quality."""
    if not name:
        return None
    module, _, function = name.partition(":")
    _logger.warning("DDTREE_PROPOSER=%s replaces the drafter's candidates. This is for tests only.", name)
    proposer: Proposer = getattr(importlib.import_module(module), function)
    return proposer


def _row_mover(pool: Any) -> kernels.RowMover:
    """Raises ValueError for a KV pool with rows that the plugin does not know how to move."""
    if type(pool) is MHATokenToKVPool and getattr(pool, "kv_cache_layout", "nhd") == "nhd":
        return kernels.RowMover([*pool.k_buffer, *pool.v_buffer])
    if type(pool) is MLATokenToKVPool:
        return kernels.RowMover(list(pool.kv_buffer))
    raise ValueError(f"DDTREE cannot compact accepted paths in a KV cache of kind {type(pool).__name__}.")
