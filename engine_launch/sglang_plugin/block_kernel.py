"""The drafter's block and what it may see of each request, laid out on the GPU with one launch, no host synchronisation.

The drafter has a table of KV rows of its own, whose first columns are written anew each round: the rows of the tokens that it
may see, oldest first, then the block's. Without a ring these are the target's slots (SGLang's compact draft cache, which
takes a handful of launches for the same); with one they are the ring's rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine_launch.sglang_plugin.ring import DraftRing
from engine_launch.spec.draft_pool import PADDING_ROWS

_TILE = 1024
"""Columns that one program copies at a time."""
_PROGRAMS = 8
"""Programs per request, so that a window of 100,000 tokens is not copied by one."""


@dataclass(frozen=True)
class DraftBlock:
    """The blocks of a batch."""

    ids: Tensor
    """int64 ``[bs, block]``: the newest token, then masks."""
    positions: Tensor
    """int64 ``[bs, block]``, from the committed length on."""
    slots: Tensor
    """int64 ``[bs, block]``: rows of the drafter's pool."""
    visible: Tensor
    """int32 ``[bs]``: tokens before the block that the drafter may see."""


@triton.jit(do_not_specialize=["target_stride", "table_stride", "window", "rows", "block", "mask_token"])
def _block_kernel(
    anchors_ptr,
    lens_ptr,
    req_index_ptr,
    first_ptr,
    target_ptr,
    table_ptr,
    ids_ptr,
    positions_ptr,
    slots_ptr,
    visible_ptr,
    target_stride,
    table_stride,
    window,
    rows,
    block,
    mask_token,
    RING: tl.constexpr,
    PADDING: tl.constexpr,
    TILE: tl.constexpr,
    STEPS: tl.constexpr,
):
    request = tl.program_id(0)
    part = tl.program_id(1)
    length = tl.load(lens_ptr + request).to(tl.int64)
    entry = tl.load(req_index_ptr + request).to(tl.int64)
    start = tl.maximum(length - window, 0)
    if RING:
        start = tl.minimum(tl.maximum(start, tl.load(first_ptr + entry)), length)
    visible = length - start
    if part == 0:
        tl.store(visible_ptr + request, visible.to(tl.int32))
        steps = tl.arange(0, STEPS)
        anchor = tl.load(anchors_ptr + request).to(tl.int64)
        tl.store(ids_ptr + request * block + steps, tl.where(steps == 0, anchor, mask_token), mask=steps < block)
        tl.store(positions_ptr + request * block + steps, length + steps, mask=steps < block)
    for tile in range(part, tl.cdiv(visible + block, TILE), tl.num_programs(1)):
        cols = tile * TILE + tl.arange(0, TILE).to(tl.int64)
        inside = cols < visible + block
        if RING:
            row = PADDING + (entry - 1) * rows + (start + cols) % rows
        else:
            row = tl.load(target_ptr + entry * target_stride + start + cols, mask=inside, other=0).to(tl.int64)
        tl.store(table_ptr + entry * table_stride + cols, row.to(tl.int32), mask=inside)
        tl.store(slots_ptr + request * block + cols - visible, row, mask=inside & (cols >= visible))


def lay_out(
    anchors: Tensor,
    lens: Tensor,
    req_pool_indices: Tensor,
    target_table: Tensor,
    table: Tensor,
    *,
    window: int,
    mask_token: int,
    positions: Tensor,
    slots: Tensor,
    ring: DraftRing | None = None,
) -> DraftBlock:
    """Blocks of a batch; of each request the first columns of the drafter's table are written.

    Args:
        anchors: ``[bs]``, the newest token of each request.
        lens: ``[bs]``, committed tokens.
        req_pool_indices: ``[bs]``, the requests' rows in both tables.
        target_table: the target's table of KV slots, which holds the block's slots already.
        table: the drafter's table, int32.
        window: tokens to be shown, with a ring at most the ring's.
        positions, slots: int64 ``[bs, block]``, where the result of these names goes.
    """
    bs, block = slots.shape
    ids = torch.empty((bs, block), dtype=torch.int64, device=lens.device)
    visible = torch.empty((bs,), dtype=torch.int32, device=lens.device)
    _block_kernel[(bs, _PROGRAMS)](
        anchors,
        lens,
        req_pool_indices,
        lens if ring is None else ring.first,
        target_table,
        table,
        ids,
        positions,
        slots,
        visible,
        target_table.stride(0),
        table.stride(0),
        window,
        0 if ring is None else ring.rows,
        block,
        mask_token,
        RING=ring is not None,
        PADDING=PADDING_ROWS,
        TILE=_TILE,
        STEPS=triton.next_power_of_2(block),
        num_warps=4,
    )
    return DraftBlock(ids, positions, slots, visible)


def warm_up(block: int, target_table: Tensor, table: Tensor, ring: DraftRing | None) -> None:
    """Compile the kernel before the first request needs it. Entry 0 is padding and must stay as it is, so it is not used."""
    one = torch.ones((1,), dtype=torch.int64, device=table.device)
    positions, slots = (torch.zeros((1, block), dtype=torch.int64, device=table.device) for _ in range(2))
    lay_out(
        one,
        torch.zeros_like(one),
        one,
        target_table,
        table,
        window=block,
        mask_token=0,
        positions=positions,
        slots=slots,
        ring=ring,
    )
