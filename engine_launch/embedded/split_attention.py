"""Attention of few rows over a long context, cut into parts so that all cores have work.

torch's kernel gives each key head's rows to one core: with three key heads and two cores, one core works twice as long as the
other, and of eight cores five idle. Where it pays, keys and values are seen as several parts of equal length, which the kernel
takes for a batch; the parts' results are put together by their log-sum-exp, which is exact up to rounding (arXiv 2311.01282 does
the same on GPUs).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_CONTEXT = 1536
"""Keys from which cutting pays for the merging: on an AMD EPYC with two cores, 30 layers of 9 rows over 2,048 tokens took 16.2 ms
whole and 14.4 ms in two parts, over 4,096 30.8 and 26.2 ms; over 1,024 both took 8.8 ms."""
LEAST_PART = 512
"""Keys of a part at least."""
MOST_ROWS = 32
"""Stacked query rows that the kernel leaves on one core; more of them it spreads by itself."""


@dataclass(frozen=True)
class Parts:
    """How ``end`` keys are cut: ``count`` parts of ``length`` keys, each ``stride`` behind the one before.

    Parts overlap by ``length - stride`` keys where they do not come out even; those count in the earlier part only.
    """

    count: int
    length: int
    stride: int

    def view(self, rows: Tensor) -> Tensor:
        """``[layers, heads, end, head_dim]`` as ``[layers, count, heads, length, head_dim]``, without a copy."""
        layers, heads, _, head_dim = rows.shape
        by_layer, by_head, by_row, by_element = rows.stride()
        shape = (layers, self.count, heads, self.length, head_dim)
        return rows.as_strided(shape, (by_layer, self.stride * by_row, by_head, by_row, by_element))

    def mask(self, whole: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """An additive mask ``[rows, end]`` as ``[count, 1, rows, length]``; ``None`` when there is nothing to hide."""
        overlap = self.length - self.stride
        if whole is None:
            if not overlap:
                return None
            whole = torch.zeros(1, self.stride * (self.count - 1) + self.length, dtype=dtype)
        parts = torch.stack([whole[:, self.stride * part : self.stride * part + self.length] for part in range(self.count)])
        parts[1:, :, :overlap] = float("-inf")
        return parts.unsqueeze(1)


def parts_of(heads: int, rows: int, end: int, threads: int) -> Parts | None:
    """How to cut ``end`` keys of ``heads`` key heads for ``rows`` stacked query rows; ``None`` = leave them whole."""
    if end < LEAST_CONTEXT or rows > MOST_ROWS or heads % threads == 0:
        return None
    count = min(threads // math.gcd(heads, threads), end // LEAST_PART)
    stride = end // count
    return Parts(count, end - stride * (count - 1), stride)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """``[heads, rows, head_dim]`` queries over parts (``[count, heads, length, head_dim]``); returns the queries' shape.

    Every row must see something in each part.
    """
    spread = queries.expand(len(keys), *queries.shape)
    # torch's own attention for the CPU; the public function does not return the log-sum-exp.
    out, weight = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(spread, keys, values, attn_mask=mask)
    share = weight.softmax(0).unsqueeze(-1)
    merged: Tensor = (out * share).sum(0).to(queries.dtype)
    return merged
