"""What the drafter may see of its ring, worked out on the GPU: one program per request, no host synchronisation."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine_launch.sglang_plugin.ring import DraftRing
from engine_launch.spec.draft_pool import PADDING_ROWS


@triton.jit(do_not_specialize=["table_stride", "window", "rows", "block"])
def _view_kernel(
    lens_ptr,
    req_index_ptr,
    first_ptr,
    table_ptr,
    visible_ptr,
    slots_ptr,
    table_stride,
    window,
    rows,
    block,
    PADDING: tl.constexpr,
    TILE: tl.constexpr,
):
    request = tl.program_id(0)
    length = tl.load(lens_ptr + request).to(tl.int64)
    entry = tl.load(req_index_ptr + request).to(tl.int64)
    start = tl.maximum(length - window, tl.load(first_ptr + entry))
    start = tl.minimum(start, length)
    visible = length - start
    base = PADDING + (entry - 1) * rows
    tl.store(visible_ptr + request, visible.to(tl.int32))
    for tile in range(tl.cdiv(visible + block, TILE)):
        cols = tile * TILE + tl.arange(0, TILE).to(tl.int64)
        inside = cols < visible + block
        row = base + (start + cols) % rows
        tl.store(table_ptr + entry * table_stride + cols, row.to(tl.int32), mask=inside)
        tl.store(slots_ptr + request * block + cols - visible, row, mask=inside & (cols >= visible))


def warm_up(ring: DraftRing, table: Tensor) -> None:
    """Compile the kernel before the first request needs it. Entry 0 is padding and must stay as it is, so it is not used."""
    entry = torch.ones((1,), dtype=torch.int64, device=table.device)
    view(ring, ring.block, torch.zeros_like(entry), entry, table)


def view(ring: DraftRing, window: int, lens: Tensor, req_pool_indices: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of the visible tokens and of the block, for a batch.

    Args:
        window: tokens to be shown, at most the ring's.
        lens: ``[bs]``, committed tokens.
        req_pool_indices: ``[bs]``, entries.
        table: the drafter's own table of rows, int32 ``[entries, columns]``; of each request the first columns are written:
            the visible tokens', oldest first, then the block's.

    Returns:
        How many tokens are visible, int32 ``[bs]``, and the block's rows, int64 ``[bs, block]``.
    """
    bs = lens.shape[0]
    visible = torch.empty((bs,), dtype=torch.int32, device=lens.device)
    slots = torch.empty((bs, ring.block), dtype=torch.int64, device=lens.device)
    _view_kernel[(bs,)](
        lens,
        req_pool_indices,
        ring.first,
        table,
        visible,
        slots,
        table.stride(0),
        window,
        ring.rows,
        ring.block,
        PADDING=PADDING_ROWS,
        TILE=256,
        num_warps=4,
    )
    return visible, slots
