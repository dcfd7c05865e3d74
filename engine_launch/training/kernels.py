"""Two Triton kernels for decoding many sequences of different lengths at once on a GPU.

PyTorch's own attention has no call that reads, per sequence, only as much of a preallocated KV cache as is filled.
Generation spends most of its time reading that cache, so this is where a kernel pays.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
from torch import Tensor


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _rope_store(  # type: ignore[no-untyped-def]
    qkv, q_out, k_cache, v_cache, cos, sin, pos, capacity, NH: tl.constexpr, NKV: tl.constexpr, D: tl.constexpr
):
    row = tl.program_id(0)
    head = tl.program_id(1)
    half: tl.constexpr = D // 2
    i = tl.arange(0, half)
    p = tl.load(pos + row)
    base = qkv + (row * (NH + 2 * NKV) + head) * D
    lo = tl.load(base + i).to(tl.float32)
    hi = tl.load(base + half + i).to(tl.float32)
    if head < NH + NKV:
        c = tl.load(cos + p * D + i)
        s = tl.load(sin + p * D + i)
        rlo = lo * c - hi * s
        rhi = hi * c + lo * s
        lo = rlo
        hi = rhi
    if head < NH:
        out = q_out + (row * NH + head) * D
    elif head < NH + NKV:
        out = k_cache + ((row * NKV + head - NH).to(tl.int64) * capacity + p) * D
    else:
        out = v_cache + ((row * NKV + head - NH - NKV).to(tl.int64) * capacity + p) * D
    tl.store(out + i, lo.to(out.dtype.element_ty))
    tl.store(out + half + i, hi.to(out.dtype.element_ty))


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _attend(  # type: ignore[no-untyped-def]
    q, k_cache, v_cache, pos, out, capacity, scale, G: tl.constexpr, NKV: tl.constexpr, D: tl.constexpr, BN: tl.constexpr
):
    row = tl.program_id(0)
    kv = tl.program_id(1)
    g = tl.arange(0, 16)
    d = tl.arange(0, D)
    n = tl.arange(0, BN)
    length = tl.load(pos + row) + 1
    q_at = (row * NKV * G + kv * G + g[:, None]) * D + d[None, :]
    tile = tl.load(q + q_at, mask=g[:, None] < G, other=0.0)
    start = (row * NKV + kv).to(tl.int64) * capacity * D
    top = tl.full([16], float("-inf"), tl.float32)
    total = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, D], tl.float32)
    for first in range(0, length, BN):
        inside = first + n < length
        at = start + (first + n)[:, None] * D + d[None, :]
        k = tl.load(k_cache + at, mask=inside[:, None], other=0.0)
        v = tl.load(v_cache + at, mask=inside[:, None], other=0.0)
        s = tl.dot(tile, tl.trans(k)) * scale
        s = tl.where(inside[None, :], s, float("-inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        shrink = tl.exp(top - new_top)
        w = tl.exp(s - new_top[:, None])
        total = total * shrink + tl.sum(w, 1)
        acc = acc * shrink[:, None] + tl.dot(w.to(v.dtype), v)
        top = new_top
    tl.store(out + q_at, (acc / total[:, None]).to(out.dtype.element_ty), mask=g[:, None] < G)


def decode_attention(qkv: Tensor, k_cache: Tensor, v_cache: Tensor, cos: Tensor, sin: Tensor, pos: Tensor, heads: int) -> Tensor:
    """Rotate Q and K, store K and V at ``pos``, attend to everything up to ``pos``.

    ``qkv [B, (heads + 2 kv) * d]``, caches ``[B, kv, capacity, d]`` (written in place), tables ``[P, d]`` fp32,
    ``pos [B]`` int32 or int64. Returns ``[B, heads * d]``.
    """
    b, kv_heads, capacity, d = k_cache.shape
    q = torch.empty(b, heads * d, dtype=qkv.dtype, device=qkv.device)
    _rope_store[(b, heads + 2 * kv_heads)](qkv, q, k_cache, v_cache, cos, sin, pos, capacity, heads, kv_heads, d, num_warps=1)
    out = torch.empty_like(q)
    _attend[(b, kv_heads)](q, k_cache, v_cache, pos, out, capacity, d**-0.5, heads // kv_heads, kv_heads, d, 64, num_warps=2)
    return out
