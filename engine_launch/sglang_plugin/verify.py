"""One verify pass of the target over the trees of a batch: its input, its graphs by width, the target's choice at each node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.layers.sampler import top_k_top_p_min_p_sampling_from_probs_torch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardBatch, ForwardMode
from sglang.srt.speculative.dflash_info import DFlashVerifyInput
from sglang.srt.utils.async_probe import sanitize_nan_logits
from torch import Tensor

_ROWS_AT_ONCE = 512
"""Rows that are drawn together: sorting takes seven times their probabilities' memory, 2.3 GB for these at 160,000 tokens."""


@dataclass
class TreeVerifyInput(DFlashVerifyInput):  # type: ignore[misc]
    """DFLASH's verify input with a mask, which a graph's replay must not copy as a whole."""

    custom_mask: Tensor | None = None

    def prepare_for_verify(self, batch: Any, target_worker: Any) -> tuple[Any, bool]:
        """As DFLASH's, for a mask that the tree kernel has already written where the attention kernel will read it.

        In a graph the mask lives in the attention backend's own buffer: the backend is shown one cell of it, which it copies
        onto itself; an eager pass is given the whole buffer.
        """
        runner = target_worker.model_runner
        batch.input_ids = self.draft_token
        batch.spec_info = self
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        forward_batch = ForwardBatch.init_new(
            batch, runner, capture_hidden_mode=self.capture_hidden_mode, return_hidden_states_before_norm=False
        )
        graphs = runner.decode_cuda_graph_runner
        in_graph = bool(graphs and graphs.can_run_graph(forward_batch))
        if in_graph:
            mask = self.custom_mask
            assert mask is not None
            self.custom_mask = mask[:1]
            graphs.load_batch(forward_batch)
            self.custom_mask = mask
        else:
            runner.attn_backend.init_forward_metadata(forward_batch)
        return forward_batch, in_graph


def choose(logits: Tensor, sampling_info: Any, width: int, tp_group: Any = None) -> Tensor:
    """The target's token after each node, ``[bs, width]`` int64, from ``[bs × width, V]`` logits.

    ``tp_group`` is given where several ranks hold the model: their draws must be one rank's, or their trees part ways.

    Greedy requests take the best token. Others draw once per node from the distribution that SGLang's own sampler would use
    (temperature, top-k, top-p, min-p). Walking the tree with these draws gives exactly the target's distribution: whether a
    draw is in the tree decides only if the round goes on.
    """
    sanitize_nan_logits(logits, "DDTREE verify")
    best = torch.argmax(logits, dim=-1).view(-1, width)
    if sampling_info is None or sampling_info.is_all_greedy:
        return best
    parts = [_draw(logits, sampling_info, width, begin) for begin in range(0, logits.shape[0], _ROWS_AT_ONCE)]
    drawn = torch.cat(parts).view(-1, width)
    if tp_group is not None:
        drawn = tp_group.broadcast(drawn, src=0)
    return torch.where((sampling_info.top_ks <= 1)[:, None], best, drawn)


def _draw(logits: Tensor, sampling_info: Any, width: int, begin: int) -> Tensor:
    """One token, int64, for each of the rows from ``begin`` on, at most ``_ROWS_AT_ONCE`` of them."""
    rows = slice(begin, begin + _ROWS_AT_ONCE)

    def per_node(values: Tensor) -> Tensor:
        return torch.repeat_interleave(values, width, dim=0)[rows]

    probabilities = torch.softmax(logits[rows].float() / per_node(sampling_info.temperatures), dim=-1)
    if sampling_info.need_top_k_sampling or sampling_info.need_top_p_sampling or sampling_info.need_min_p_sampling:
        drawn: Tensor = top_k_top_p_min_p_sampling_from_probs_torch(
            probabilities,
            per_node(sampling_info.top_ks),
            per_node(sampling_info.top_ps),
            per_node(sampling_info.min_ps),
            sampling_info.need_min_p_sampling,
            None,
            None,
        )
        return drawn.to(torch.int64)
    # The exponential race: the same distribution as multinomial, without its check on the host.
    race = torch.empty_like(probabilities).exponential_().clamp_min_(torch.finfo(torch.float32).tiny)
    return torch.argmax(probabilities / race, dim=-1)


def host_bound(batch: Any, draft_input: Any, block: int) -> tuple[Any, int]:
    """Lengths that are at least the committed ones, without asking the GPU: per request (or None) and in all."""
    if batch.seq_lens_cpu is not None:
        # The host lags behind by one round at most, which commits one block at most.
        lens = batch.seq_lens_cpu + block
        return lens, int(lens.sum())
    if draft_input.reserved_seq_lens_cpu is not None:
        return draft_input.reserved_seq_lens_cpu, int(draft_input.reserved_seq_lens_sum)
    lens = batch.seq_lens.to("cpu")
    return lens, int(lens.sum())


def mask_buffer(attn_backend: Any, bs: int, width: int, bound: tuple[Any, int], device: Any) -> Tensor:
    """Where the tree mask of this round goes: the attention backend's own buffer when a graph may read it."""
    shared = attn_backend.verify_mask
    if shared is not None and shared.fits(bs):
        buffer: Tensor = shared.buffer
        return buffer
    return torch.empty((width * (bound[1] + bs * width),), dtype=torch.uint8, device=device)


def verify(
    target_worker: Any,
    batch: Any,
    tokens: Tensor,
    positions: Tensor,
    slots: Tensor,
    mask: Tensor,
    width: int,
    bound: tuple[Any, int],
) -> tuple[Any, bool]:
    """The target's pass over all nodes: logits and features of every row, and whether a graph ran."""
    verify_input = TreeVerifyInput(
        draft_token=tokens.reshape(-1),
        positions=positions.reshape(-1),
        draft_token_num=width,
        custom_mask=mask,
        capture_hidden_mode=CaptureHiddenMode.FULL,
    )
    batch.out_cache_loc = slots.reshape(-1)
    # They were for rows of the prompt; SGLang keeps them, and an eager pass would put them into rows of the tree.
    batch.replace_embeds = batch.replace_positions = None
    kept = batch.seq_lens_cpu, batch.seq_lens_sum
    batch.seq_lens_cpu, batch.seq_lens_sum = bound
    forward_batch, _ = verify_input.prepare_for_verify(batch, target_worker)
    batch.seq_lens_cpu, batch.seq_lens_sum = kept
    output = target_worker.forward_batch_generation(
        batch=None, forward_batch=forward_batch, is_verify=True, skip_attn_backend_init=True
    )
    if output.logits_output.hidden_states is None:
        raise RuntimeError("DDTREE needs the target's features from the verify pass, but got none")
    return output.logits_output, output.can_run_cuda_graph


class VerifyGraphs:
    """Graph runners of the target by width: the next larger captured width serves a batch."""

    def __init__(self, model_runner: Any, widths: tuple[int, ...]) -> None:
        """Captures the widths that SGLang has not captured yet (it captures the widest), widest first.

        All runners share the attention backend's buffers, which the widest has sized: see :func:`share_graph_buffers`.
        """
        from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner

        self._runner = model_runner
        self._by_width: dict[int, Any] = {}
        widest = model_runner.decode_cuda_graph_runner
        if widest is None:
            return
        self._by_width[widths[-1]] = widest
        for width in reversed(widths[:-1]):
            runner = DecodeCudaGraphRunner(
                model_runner, attn_backend=model_runner.attn_backend, speculative_num_draft_tokens=width
            )
            # With an expert all-to-all SGLang captures only batches whose rows divide by the ranks, so that a width may get
            # larger batches than the widest, whose buffers it would outgrow. It then runs without a graph.
            if runner.max_bs <= widest.max_bs:
                self._by_width[width] = runner

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(sorted(self._by_width))

    def give_up(self) -> None:
        """From now on every pass is eager: what the graphs read is not where it was."""
        self._by_width.clear()

    def use(self, width: int) -> None:
        """Let the next verify pass replay the graphs of ``width``; eager when there are none."""
        self._runner.decode_cuda_graph_runner = self._by_width.get(width)


def read_every_mask(attn_backend: Any) -> None:
    """Turn off the verify kernel for chains (AMD gfx95, off by default), which takes every mask for a causal one.

    SGLang uses it where EAGLE's top-k is 1, which it also is for DDTREE.
    """
    attn_backend.use_verify_splitkv = False


def share_graph_buffers(attn_backend: Any) -> None:
    """Let the first ``init_cuda_graph_state`` of this backend be the only one, and make its buffers no larger than needed.

    A graph runner sizes its backend's buffers when it is made; a second runner would replace buffers that the first one's
    graphs hold addresses of. The index buffer holds one entry per committed token of each request, but SGLang sizes it per
    *row* of the pass: 65 times too large for a tree of 64. The buffers of the decode kernel, which a verify pass never
    calls, are sized per row too (gigabytes with MLA), so they are given one row per request.

    A request whose last token fits into its context is in one more round before the scheduler knows that it has ended, and
    that round begins beyond the context. Stock's buffers are large enough by their waste; these, and the mask's, are made for
    all that a request's row of the slot table holds.
    """
    attn_backend.max_context_len = max(attn_backend.max_context_len, int(attn_backend.req_to_token.shape[1]))
    allocate = attn_backend.init_cuda_graph_state
    allocated = False

    def once(max_bs: int, max_num_tokens: int, *args: Any, **kwargs: Any) -> None:
        nonlocal allocated
        if allocated:
            return
        allocated = True
        indices = torch.zeros((max_bs * attn_backend.max_context_len,), dtype=torch.int64, device=attn_backend.device)
        allocate(max_bs, max_bs, *args, kv_indices_buf=indices, **kwargs)

    attn_backend.init_cuda_graph_state = once
