"""Trees built with :mod:`engine_launch.tree` on the host: slow, and the judge of the GPU's own builder in tests."""

from __future__ import annotations

import torch
from torch import Tensor

from engine_launch import tree as reference
from engine_launch.sglang_plugin.plants import PLANT_MASK, PLANT_NONE, PLANT_POSITION


def build(
    ids: Tensor,
    logprobs: Tensor,
    anchors: Tensor,
    budgets: Tensor,
    topks: Tensor,
    seq_lens: Tensor,
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    mask: Tensor,
    width: int,
    plant: int = PLANT_NONE,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As :func:`engine_launch.sglang_plugin.kernels.build`, with one host synchronisation per call."""
    bs, device = ids.shape[0], ids.device
    all_ids, all_logprobs = ids.tolist(), logprobs.tolist()
    tokens = anchors[:, None].repeat(1, width)
    positions = seq_lens.to(torch.int64)[:, None].repeat(1, width)
    parents = torch.full((bs, width), -1, dtype=torch.int32, device=device)
    columns = seq_lens.to(torch.int64)[:, None] + torch.arange(width, device=device)
    slots = req_to_token[req_pool_indices.to(torch.int64)[:, None], columns].to(torch.int64)
    begin = 0
    for request, (budget, topk, length) in enumerate(zip(budgets.tolist(), topks.tolist(), seq_lens.tolist(), strict=True)):
        rows = [[row[:topk] for row in table[request]] for table in (all_ids, all_logprobs)]
        tree = reference.build(rows[0], rows[1], budget)
        visible = torch.eye(width, dtype=torch.uint8)
        visible[: tree.width, : tree.width] = reference.visibility(tree).to(torch.uint8)
        if plant == PLANT_MASK:
            visible[1 : tree.width, 0] = 0
        cells = mask[begin : begin + width * (length + width)].view(width, length + width)
        cells[:, length:] = visible.to(device)
        begin += width * (length + width)
        if tree.nodes:
            inner = slice(1, tree.width)
            tokens[request, inner] = torch.tensor(tree.tokens, device=device)
            parents[request, inner] = torch.tensor(tree.parents, dtype=torch.int32, device=device)
            shift = int(plant == PLANT_POSITION)
            positions[request, inner] = length + torch.tensor(tree.depths, device=device) + shift
    return tokens, positions, slots, parents
