"""One pass of the drafter over the blocks of a batch, by the methods of SGLang's DFLASH worker: from anchors to candidates."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from torch import Tensor

from engine_launch.sglang_plugin import block_kernel
from engine_launch.sglang_plugin.block_kernel import DraftBlock
from engine_launch.sglang_plugin.candidates import CandidateHead
from engine_launch.sglang_plugin.commit_graphs import CommitInputs


def lay_out_block(worker: Any, batch: Any, draft_input: Any, inputs: CommitInputs) -> DraftBlock:
    """The drafter's block of each request: anchor and masks, their positions and KV rows, and what it may see.

    Positions and rows go where the commit of this round reads them, ``inputs``.
    """
    return block_kernel.lay_out(
        draft_input.bonus_tokens.view(-1),
        batch.seq_lens,
        batch.req_pool_indices,
        worker.model_runner.req_to_token_pool.req_to_token,
        worker.draft_model_runner.req_to_token_pool.req_to_token,
        window=worker.draft_window_size,
        mask_token=int(worker._mask_token_id),
        positions=inputs.positions,
        slots=inputs.slots,
        ring=worker._ring,
    )


def draft(worker: Any, head: CandidateHead, batch: Any, draft_input: Any, block: DraftBlock) -> tuple[Tensor, Tensor]:
    """One pass of the drafter; candidates ``[bs, block − 1, K]``."""
    bs, size = block.ids.shape
    embeds = worker.target_worker.model_runner.model.get_input_embeddings()(block.ids)
    worker._ensure_draft_block_buffers(bs)
    seq_lens_cpu = worker._draft_seq_lens_cpu_buf[:bs]
    worker._fill_compact_seq_lens_cpu_bound(
        batch_seq_lens_cpu=batch.seq_lens_cpu,
        reserved_seq_lens_cpu=draft_input.reserved_seq_lens_cpu,
        draft_prefix_lens=block.visible,
        out=seq_lens_cpu,
    )
    forward_batch = ForwardBatch(
        forward_mode=ForwardMode.TARGET_VERIFY,
        batch_size=bs,
        input_ids=block.ids.flatten(),
        req_pool_indices=batch.req_pool_indices,
        seq_lens=block.visible,
        out_cache_loc=block.slots.reshape(-1),
        seq_lens_sum=int(seq_lens_cpu.sum()),
        seq_lens_cpu=seq_lens_cpu,
        positions=block.positions.reshape(-1),
        input_embeds=embeds.view(-1, embeds.shape[-1]),
        spec_algorithm=SpeculativeAlgorithm.DFLASH,
        spec_info=worker._draft_block_spec_info,
        capture_hidden_mode=CaptureHiddenMode.NULL,
    )
    with torch.inference_mode():
        output = worker.draft_model_runner.forward(forward_batch)
    rows = bs * (size - 1)
    if output.can_run_graph and worker._draft_sampler is not None:
        ids, logprobs = head.ids[:rows], head.logprobs[:rows]
    else:
        ids, logprobs = head.take(output.logits_output.hidden_states)
    return ids.view(bs, size - 1, -1), logprobs.view(bs, size - 1, -1)
