"""One pass of the drafter over the blocks of a batch, by the methods of SGLang's DFLASH worker: from anchors to candidates."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.dflash_worker_v2 import _prepare_dflash_draft_block_unchecked
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from torch import Tensor

from engine_launch.sglang_plugin.candidates import CandidateHead


def prepare_block(worker: Any, batch: Any, draft_input: Any, bs: int) -> tuple[Tensor, Tensor, Tensor]:
    """The drafter's block of each request, ``[bs, block]``: anchor and masks, their positions, their KV slots."""
    worker._ensure_draft_block_buffers(bs)
    block_ids = worker._draft_block_ids_buf[:bs]
    positions = worker._draft_block_positions_buf[:bs]
    slots = worker._draft_verify_out_cache_loc_buf[:bs]
    _prepare_dflash_draft_block_unchecked(
        bonus_tokens=draft_input.bonus_tokens.view(-1),
        prefix_lens=batch.seq_lens.view(-1),
        req_pool_indices=batch.req_pool_indices.view(-1),
        req_to_token=worker.model_runner.req_to_token_pool.req_to_token,
        block_ids_out=block_ids,
        positions_out=positions,
        cache_loc_out=slots,
        mask_token_id=int(worker._mask_token_id),
    )
    return block_ids, positions, slots


def draft(
    worker: Any,
    head: CandidateHead,
    batch: Any,
    draft_input: Any,
    block_ids: Tensor,
    positions: Tensor,
    slots: Tensor,
    visible: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """One pass of the drafter; candidates ``[bs, block − 1, K]``. With ``visible`` the drafter's table is written already."""
    bs, block = block_ids.shape
    embeds = worker.target_worker.model_runner.model.get_input_embeddings()(block_ids)
    seq_lens_cpu = worker._draft_seq_lens_cpu_buf[:bs]
    stale = visible is None
    if visible is None:
        visible = worker._compute_compact_draft_seq_lens(batch.seq_lens)
    worker._fill_compact_seq_lens_cpu_bound(
        batch_seq_lens_cpu=batch.seq_lens_cpu,
        reserved_seq_lens_cpu=draft_input.reserved_seq_lens_cpu,
        draft_prefix_lens=visible,
        out=seq_lens_cpu,
    )
    if stale:
        worker._rebuild_compact_draft_cache(
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
        spec_info=worker._draft_block_spec_info,
        capture_hidden_mode=CaptureHiddenMode.NULL,
    )
    with torch.inference_mode():
        output = worker.draft_model_runner.forward(forward_batch)
    rows = bs * (block - 1)
    if output.can_run_graph and worker._draft_sampler is not None:
        ids, logprobs = head.ids[:rows], head.logprobs[:rows]
    else:
        ids, logprobs = head.take(output.logits_output.hidden_states)
    return ids.view(bs, block - 1, -1), logprobs.view(bs, block - 1, -1)
