"""The drafter's candidates: the best tokens per position of the block with their log-probabilities.

A DFlash drafter has no head of its own; it borrows the target's. Stock DFLASH takes the head's argmax inside the draft's CUDA
graph; a tree needs the top-k and a normalised probability, taken in the same place. With tensor parallelism each rank holds
a slice of the vocabulary: the ranks' own best are gathered and merged, so that all ranks get the same candidates.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_PLAIN = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
"""Of a head that is not quantised; float8 is a floating-point type as well."""


class CandidateHead:
    """Callable on the draft's hidden states; leaves its result in buffers with fixed addresses, as a graph needs."""

    def __init__(self, lm_head: Any, tp_group: Any, *, block: int, topk: int, max_bs: int) -> None:
        """
        Raises:
            ValueError: the target's head is not one that can be used.
        """
        weight = getattr(lm_head, "weight", None)
        if weight is None or weight.dtype not in _PLAIN:
            raise ValueError("DDTREE needs a target whose lm_head is not quantised: the drafter borrows it")
        shard = getattr(lm_head, "shard_indices", None)
        if shard is None and tp_group.world_size != 1:
            raise ValueError("DDTREE with tensor parallelism needs to know which part of the vocabulary a rank's lm_head holds")
        if shard is not None and int(shard.num_added_elements) != 0:
            raise ValueError("DDTREE does not work with vocabulary that was added to the target (LoRA)")
        size = int(weight.shape[0]) if shard is None else int(shard.num_org_elements)
        self._weight = weight[:size]
        self._offset = 0 if shard is None else int(shard.org_vocab_start_index)
        self._group = tp_group
        self._block = block
        self._topk = topk
        positions = max_bs * (block - 1)
        self.ids = torch.zeros((positions, topk), dtype=torch.int64, device=weight.device)
        self.logprobs = torch.zeros((positions, topk), dtype=torch.float32, device=weight.device)

    def __call__(self, hidden_states: Tensor, input_ids: Tensor | None = None) -> None:
        """Inside the graph: candidates of ``[bs × block, H]`` go to the first rows of the buffers."""
        ids, logprobs = self.take(hidden_states)
        self.ids[: ids.shape[0]].copy_(ids)
        self.logprobs[: ids.shape[0]].copy_(logprobs)

    def take(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        """Ids and log-probabilities, ``[bs × (block − 1), K]``, best first. Slot 0 of a block is the anchor: no candidates."""
        blocks = hidden_states.view(-1, self._block, hidden_states.shape[-1])
        rows = blocks[:, 1:, :].reshape(-1, hidden_states.shape[-1]).to(self._weight.dtype)
        logits = torch.matmul(rows, self._weight.T)
        # A small vocabulary, or a slice of one, may hold fewer tokens than are asked for: the last one stands in.
        count = min(self._topk, logits.shape[-1])
        values, ids = logits.topk(count, dim=-1)
        values = values.float()
        total = torch.logsumexp(logits.float(), dim=-1, keepdim=True)
        if count < self._topk:
            values = torch.nn.functional.pad(values, (0, self._topk - count), value=float("-inf"))
            ids = torch.nn.functional.pad(ids, (0, self._topk - count))
        ids = ids + self._offset
        if self._group.world_size > 1:
            values, ids, total = self._merge(values, ids, total)
        return ids, values - total

    def _merge(self, values: Tensor, ids: Tensor, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ranks, rows = self._group.world_size, values.shape[0]
        gathered = []
        for part in (values, ids, total):
            out = torch.empty((ranks * rows, part.shape[1]), dtype=part.dtype, device=part.device)
            self._group.all_gather_into_tensor(out, part.contiguous())
            gathered.append(out.view(ranks, rows, -1).transpose(0, 1).reshape(rows, -1))
        best, place = gathered[0].topk(self._topk, dim=-1)
        return best, gathered[1].gather(1, place), torch.logsumexp(gathered[2], dim=-1, keepdim=True)
