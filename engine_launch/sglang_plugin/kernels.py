"""The tree's steps on the GPU: build, walk and compact, one program per request, no host synchronisation.

They do what :mod:`engine_launch.tree` does (``build`` with ``visibility`` and ``positions``, and ``walk``), for a batch and at
a fixed width ``N`` = nodes + root. A request's tree may be smaller: the rows beyond it are *fillers*, which see the committed
prefix and themselves, have no parent and can never be accepted.

Shapes: ``bs`` requests, ``L`` = block size − 1 positions, ``K`` candidates per position, ``D`` = block size (longest path).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine_launch.sglang_plugin.plants import PLANT_NONE

# Numbers that change from round to round are not specialised on: a variant that is first needed while requests run would be
# compiled while they wait. What is left to vary (the padded width) is compiled at the start, see warm_up.
_BATCH = 64
"""Requests before a request whose lengths one load takes; more are padded to the next power of two."""
_TILE_BYTES = 512
"""Bytes of a KV row that one program moves."""


@triton.jit(do_not_specialize=["table_stride", "length", "candidates", "width"])
def _build_kernel(
    ids_ptr,
    logp_ptr,
    anchors_ptr,
    budgets_ptr,
    topks_ptr,
    seq_lens_ptr,
    req_index_ptr,
    req_to_token_ptr,
    tokens_ptr,
    positions_ptr,
    slots_ptr,
    parents_ptr,
    mask_ptr,
    table_stride,
    length,
    candidates,
    width,
    SLOTS: tl.constexpr,
    BATCH: tl.constexpr,
    PLANT: tl.constexpr,
):
    row = tl.program_id(0)
    cols = tl.arange(0, SLOTS)
    inside = cols < width
    anchor = tl.load(anchors_ptr + row)
    budget = tl.load(budgets_ptr + row)
    topk = tl.load(topks_ptr + row)
    seq_len = tl.load(seq_lens_ptr + row).to(tl.int64)
    entry = tl.load(req_index_ptr + row).to(tl.int64)

    # Where this request's rows of the mask begin: width × (prefix + width) cells for each request before it.
    others = tl.arange(0, BATCH)
    before = tl.load(seq_lens_ptr + others, mask=others < row, other=0).to(tl.int64)
    cells = tl.where(others < row, (before + width) * width, 0)
    stride = seq_len + width
    mask_row = mask_ptr + tl.sum(cells, axis=0) + seq_len

    # Defaults are those of fillers; row 0 is the root.
    slots = tl.load(req_to_token_ptr + entry * table_stride + seq_len + cols, mask=inside, other=0)
    tl.store(slots_ptr + row * width + cols, slots.to(tl.int64), mask=inside)
    tl.store(mask_row + cols, (cols == 0).to(tl.uint8), mask=inside)
    tl.store(tokens_ptr + row * width, anchor)
    tl.store(positions_ptr + row * width, seq_len)
    tl.store(parents_ptr + row * width, -1)
    tl.debug_barrier()

    ids_row = ids_ptr + row * length * candidates
    logp_row = logp_ptr + row * length * candidates
    # The frontier: every entry is one prefix that may be taken next. A taken entry becomes its next sibling, and its first
    # child takes the entry of the node's own number, so that there are never more entries than nodes.
    nothing = float("-inf")
    first = tl.load(logp_row)
    score = tl.where(cols == 0, first, nothing)
    base = tl.zeros([SLOTS], dtype=tl.float32)
    depth = tl.full([SLOTS], 1, dtype=tl.int32)
    rank = tl.zeros([SLOTS], dtype=tl.int32)
    parent = tl.zeros([SLOTS], dtype=tl.int32)
    for node in range(1, width):
        best = tl.max(score, axis=0)
        at = tl.argmax(score, axis=0)
        taken = (node <= budget) & (best > nothing)
        here = cols == at
        d = tl.sum(tl.where(here, depth, 0), axis=0)
        r = tl.sum(tl.where(here, rank, 0), axis=0)
        p = tl.sum(tl.where(here, parent, 0), axis=0)
        b = tl.sum(tl.where(here, base, 0.0), axis=0)
        cell = (d - 1) * candidates + r
        token = tl.load(ids_row + cell, mask=taken, other=0)
        tl.store(tokens_ptr + row * width + node, tl.where(taken, token, anchor))
        if PLANT == 2:
            tl.store(positions_ptr + row * width + node, tl.where(taken, seq_len + d + 1, seq_len))
        else:
            tl.store(positions_ptr + row * width + node, tl.where(taken, seq_len + d, seq_len))
        tl.store(parents_ptr + row * width + node, tl.where(taken, p, -1))
        seen = tl.load(mask_row + p * stride + cols, mask=inside & taken, other=0)
        if PLANT == 1:
            seen = tl.where(cols == 0, 0, seen)
        tl.store(mask_row + node * stride + cols, tl.where(cols == node, 1, seen.to(tl.int32)).to(tl.uint8), mask=inside)
        # The row just written may be the parent of a later one, read by other threads of this program.
        tl.debug_barrier()
        more = taken & (r + 1 < topk)
        sibling = b + tl.load(logp_row + cell + 1, mask=more, other=0.0)
        score = tl.where(here, tl.where(more, sibling, nothing), score)
        rank = tl.where(here, r + 1, rank)
        deeper = taken & (d < length)
        child = best + tl.load(logp_row + d * candidates, mask=deeper, other=0.0)
        new = cols == node
        score = tl.where(new, tl.where(deeper, child, nothing), score)
        base = tl.where(new, best, base)
        depth = tl.where(new, d + 1, depth)
        rank = tl.where(new, 0, rank)
        parent = tl.where(new, node, parent)


@triton.jit(do_not_specialize=["width", "block"])
def _walk_kernel(
    tokens_ptr,
    parents_ptr,
    predicted_ptr,
    seq_lens_ptr,
    out_ptr,
    path_ptr,
    rows_ptr,
    commit_ptr,
    kept_ptr,
    bonus_ptr,
    new_lens_ptr,
    width,
    block,
    SLOTS: tl.constexpr,
):
    row = tl.program_id(0)
    cols = tl.arange(0, SLOTS)
    inside = cols < width
    tokens = tl.load(tokens_ptr + row * width + cols, mask=inside, other=-1)
    parents = tl.load(parents_ptr + row * width + cols, mask=inside, other=-1)
    here = 0
    accepted = 0
    alive = 1
    chosen = tl.load(predicted_ptr + row * width)
    tl.store(path_ptr + row * block, 0)
    tl.store(rows_ptr + row * block, row * width)
    for step in range(1, block):
        match = inside & (parents == here) & (tokens == chosen)
        child = tl.max(tl.where(match, cols, -1), axis=0)
        alive = alive & (child >= 0).to(tl.int32)
        going = alive > 0
        tl.store(out_ptr + row * block + step - 1, tl.where(step - 1 <= accepted, chosen, 0))
        here = tl.where(going, child, here)
        accepted += alive
        node = tl.where(going, here, 0)
        tl.store(path_ptr + row * block + step, node)
        tl.store(rows_ptr + row * block + step, row * width + node)
        chosen = tl.load(predicted_ptr + row * width + here)
    tl.store(out_ptr + row * block + block - 1, tl.where(block - 1 <= accepted, chosen, 0))
    tl.store(commit_ptr + row, accepted + 1)
    tl.store(kept_ptr + row, accepted + 1)
    tl.store(bonus_ptr + row, chosen)
    tl.store(new_lens_ptr + row, tl.load(seq_lens_ptr + row).to(tl.int64) + accepted + 1)


@triton.jit(do_not_specialize=["width", "block"])
def _move_kernel(
    buffers_ptr,
    strides_ptr,
    slots_ptr,
    path_ptr,
    commit_ptr,
    width,
    block,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):
    row = tl.program_id(2)
    base = tl.load(buffers_ptr + tl.program_id(0)).to(tl.pointer_type(tl.uint8))
    stride = tl.load(strides_ptr + tl.program_id(0))
    steps = tl.arange(0, DEPTH)
    kept = steps < tl.load(commit_ptr + row)
    node = tl.load(path_ptr + row * block + steps, mask=kept, other=0)
    moves = kept & (node != steps)
    source = tl.load(slots_ptr + row * width + node, mask=moves, other=0)
    target = tl.load(slots_ptr + row * width + steps, mask=moves, other=0)
    offsets = tl.program_id(1) * TILE + tl.arange(0, TILE)
    cells = moves[:, None] & (offsets < stride)[None, :]
    values = tl.load(base + source[:, None] * stride + offsets[None, :], mask=cells, other=0)
    # A row may be read by one warp and overwritten by another: all reads come before the first write.
    tl.debug_barrier()
    tl.store(base + target[:, None] * stride + offsets[None, :], values, mask=cells)


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
    """Trees of at most ``budgets[i]`` nodes from the ``topks[i]`` best candidates per position.

    Args:
        ids, logprobs: ``[bs, L, K]``, int64 and float32, best first along K.
        anchors: ``[bs]``, the newest token of each request, which is the root.
        seq_lens: ``[bs]``, committed tokens; the root's position.
        req_to_token: the target's table of KV slots; the ``width`` slots after the prefix are taken.
        mask: uint8, at least ``width × (Σ seq_lens + bs × width)`` cells; only the cells of tree rows against tree columns
            are written, which are the only ones that the attention kernel reads.

    Returns:
        tokens, positions, KV slots (int64) and parents (int32, −1 for root and fillers), each ``[bs, width]``.
    """
    bs, length, candidates = ids.shape
    device = ids.device
    tokens, positions, slots = (torch.empty((bs, width), dtype=torch.int64, device=device) for _ in range(3))
    parents = torch.empty((bs, width), dtype=torch.int32, device=device)
    _build_kernel[(bs,)](
        ids,
        logprobs,
        anchors,
        budgets,
        topks,
        seq_lens,
        req_pool_indices,
        req_to_token,
        tokens,
        positions,
        slots,
        parents,
        mask,
        req_to_token.stride(0),
        length,
        candidates,
        width,
        SLOTS=max(2, triton.next_power_of_2(width)),
        BATCH=max(_BATCH, triton.next_power_of_2(bs)),
        PLANT=plant,
        num_warps=1,
    )
    return tokens, positions, slots, parents


@dataclass(frozen=True)
class Walk:
    """What a batch commits, ``D`` = block size."""

    tokens: Tensor
    """int64 ``[bs, D]``: accepted drafts, then the bonus, then zeros."""
    path: Tensor
    """int64 ``[bs, D]``: accepted nodes from the root on, zeros after the end."""
    rows: Tensor
    """int64 ``[bs × D]``: the same as rows of the verify pass."""
    commits: Tensor
    """int32 ``[bs]``: commit lengths, the bonus included."""
    bonus: Tensor
    """int64 ``[bs]``"""
    new_seq_lens: Tensor
    """int64 ``[bs]``"""


def walk(tokens: Tensor, parents: Tensor, predicted: Tensor, seq_lens: Tensor, block: int, kept: Tensor | None = None) -> Walk:
    """Follow the target's choice ``predicted`` (``[bs, width]`` int64, the token after each node) through the trees.

    ``kept``, int32 ``[bs]``, gets the commit lengths too.
    """
    bs, width = tokens.shape
    device = tokens.device
    out, path, rows = (torch.empty((bs, block), dtype=torch.int64, device=device) for _ in range(3))
    commits = torch.empty((bs,), dtype=torch.int32, device=device)
    bonus, new_lens = (torch.empty((bs,), dtype=torch.int64, device=device) for _ in range(2))
    _walk_kernel[(bs,)](
        tokens,
        parents,
        predicted,
        seq_lens,
        out,
        path,
        rows,
        commits,
        commits if kept is None else kept,
        bonus,
        new_lens,
        width,
        block,
        SLOTS=max(2, triton.next_power_of_2(width)),
        num_warps=1,
    )
    return Walk(out, path, rows.view(-1), commits, bonus, new_lens)


class RowMover:
    """Moves the KV rows of accepted paths to the front of their requests' new slots, in all layers with one launch."""

    def __init__(self, buffers: list[Any]) -> None:
        """``buffers`` are the pool's tensors, ``[slots, …]``, contiguous."""
        for buffer in buffers:
            if not buffer.is_contiguous():
                raise ValueError("DDTREE needs contiguous KV buffers to compact accepted paths; this KV layout is not supported")
        strides = [buffer.stride(0) * buffer.element_size() for buffer in buffers]
        device = buffers[0].device
        self._pointers = torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64).view(torch.int64).to(device)
        self._strides = torch.tensor(strides, dtype=torch.int64, device=device)
        self._tiles = -(-max(strides) // _TILE_BYTES)

    def __call__(self, slots: Tensor, path: Tensor, commits: Tensor) -> None:
        """``slots`` ``[bs, width]`` of all nodes, ``path`` ``[bs, D]`` and ``commits`` as :func:`walk` gives them."""
        (bs, width), block = slots.shape, path.shape[1]
        _move_kernel[(self._pointers.numel(), self._tiles, bs)](
            self._pointers,
            self._strides,
            slots,
            path,
            commits,
            width,
            block,
            TILE=_TILE_BYTES,
            DEPTH=triton.next_power_of_2(block),
            num_warps=4,
        )


def warm_up(widths: tuple[int, ...], block: int, candidates: int, device: Any, mover: RowMover) -> None:
    """Compile the variants that these widths need, before the first request needs them."""
    ids = torch.zeros((1, block - 1, candidates), dtype=torch.int64, device=device)
    zero = torch.zeros((1,), dtype=torch.int64, device=device)
    for width in widths:
        budget, topk = (torch.full((1,), value, dtype=torch.int32, device=device) for value in (width - 1, 1))
        table = torch.zeros((1, width), dtype=torch.int32, device=device)
        mask = torch.zeros((width * width,), dtype=torch.uint8, device=device)
        tokens, _, slots, parents = build(ids, ids.float(), zero, budget, topk, zero, zero, table, mask, width)
        walked = walk(tokens, parents, torch.full_like(tokens, -1), zero, block)
        mover(slots, walked.path, walked.commits)
