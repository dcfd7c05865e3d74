"""In which order best-first trees take their nodes, for very many positions at once.

The tree of budget ``B`` is the first ``B`` nodes of that order (:class:`engine_launch.tree.Growth`), so one order tells for every
budget how much of a recorded text the tree would have held. Scores are added in the same order and precision as there, and ties
are broken by the same rule, so that these are the very trees that are served (a test).
"""

from __future__ import annotations

import torch
from torch import Tensor

ROWS_AT_ONCE = 16384
"""Positions whose frontiers are held at once; bounds the memory."""


def nodes_needed(logprobs: Tensor, ranks: Tensor, most: int) -> Tensor:
    """How many nodes a tree needs to hold the first ``d + 1`` tokens of the text: ``[P, L]``; ``most + 1`` = more than ``most``.

    ``logprobs [P, L, K]`` are the candidates', best first in each slot and finite; ``ranks [P, L]`` is the place of the text's
    token among them, ``K`` or more where it is none of them.
    """
    parts = zip(torch.split(logprobs, ROWS_AT_ONCE), torch.split(ranks, ROWS_AT_ONCE), strict=True)
    return torch.cat([_nodes_needed(one.double(), place, most) for one, place in parts])


def _nodes_needed(logprobs: Tensor, ranks: Tensor, most: int) -> Tensor:
    rows, slots, width = logprobs.shape
    device = logprobs.device
    needed = torch.full((rows, slots + 1), most + 1, dtype=torch.int64, device=device)
    # What may come next: siblings take the place of the node they follow, first children get a new one.
    scores = torch.full((rows, most + 1), -torch.inf, dtype=torch.float64, device=device)
    base = torch.zeros_like(scores)
    rank, depth, code = (torch.zeros(scores.shape, dtype=torch.int64, device=device) for _ in range(3))
    on_text = torch.zeros(scores.shape, dtype=torch.bool, device=device)
    # The ranks along a path as the digits of one number, which orders paths as tuples are ordered.
    digit = (width + 1) ** torch.arange(slots - 1, -1, -1, device=device)
    scores[:, 0], code[:, 0], on_text[:, 0] = logprobs[:, 0, 0], digit[0], True
    flat = logprobs.flatten(1)
    for node in range(1, most + 1):
        best = scores[:, :node].amax(1, keepdim=True)
        tied = code[:, :node].masked_fill(scores[:, :node] < best, torch.iinfo(torch.int64).max)
        at = tied.argmin(1, keepdim=True)
        r, d, c, b = (x.gather(1, at) for x in (rank, depth, code, base))
        there = best > -torch.inf
        hit = on_text.gather(1, at) & (ranks.gather(1, d) == r) & there
        needed.scatter_(1, torch.where(hit, d, slots), node)
        sibling = b + flat.gather(1, d * width + (r + 1).clamp(max=width - 1))
        scores.scatter_(1, at, sibling.masked_fill(~there | (r + 1 == width), -torch.inf))
        rank.scatter_(1, at, r + 1)
        code.scatter_(1, at, c + digit[d])
        below = (d + 1).clamp(max=slots - 1)
        child = best + flat.gather(1, below * width)
        scores[:, node : node + 1] = child.masked_fill(~there | (d + 1 == slots), -torch.inf)
        base[:, node : node + 1], depth[:, node : node + 1], on_text[:, node : node + 1] = best, below, hit
        code[:, node : node + 1] = c + digit[below]
    return needed[:, :slots]
