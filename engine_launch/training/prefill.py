"""Reading long given texts in one pass, so that decoding begins with a filled key and value cache."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from engine_launch.training.target import Target, rotate

TOKENS_PER_PASS = 32768
"""Padded tokens read at once; bounds the memory."""


def in_passes(texts: list[tuple[int, tuple[int, ...]]]) -> list[list[tuple[int, tuple[int, ...]]]]:
    """``(slot, text)`` pairs, grouped so that texts of about the same length share a pass."""
    passes: list[list[tuple[int, tuple[int, ...]]]] = []
    for item in sorted(texts, key=lambda x: -len(x[1])):
        if passes and (len(passes[-1]) + 1) * len(passes[-1][0][1]) <= TOKENS_PER_PASS:
            passes[-1].append(item)
        else:
            passes.append([item])
    return passes


@torch.no_grad()
def prefill(
    target: Target, k_cache: Tensor, v_cache: Tensor, tables: tuple[Tensor, Tensor], texts: list[tuple[int, tuple[int, ...]]]
) -> None:
    """Fill the caches ``[layers, slots, kv_heads, capacity, d]`` for all tokens of each ``(slot, text)``.

    ``tables`` are the rotary cosines and sines ``[capacity, d]``. Positions after a text's end are written too; whoever
    decodes there writes them anew before it reads them.
    """
    shape, device, dtype = target.shape, target.embedding.device, target.embedding.dtype
    d, nh, nkv = shape.head_dim, shape.heads, shape.kv_heads
    for group in in_passes(texts):
        width = max(len(text) for _, text in group)
        slots = torch.tensor([slot for slot, _ in group], device=device)
        ids = torch.tensor([text + (0,) * (width - len(text)) for _, text in group], device=device)
        cos, sin = tables[0][:width].to(dtype), tables[1][:width].to(dtype)
        x = F.embedding(ids, target.embedding)
        for i, layer in enumerate(target.layers):
            qkv = F.linear(F.rms_norm(x, (shape.hidden,), layer.input_norm, shape.rms_eps), layer.qkv)
            heads = qkv.view(len(group), width, nh + 2 * nkv, d).transpose(1, 2)
            q, k, v = heads.split([nh, nkv, nkv], dim=1)  # type: ignore[no-untyped-call]
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            k_cache[i, slots, :, :width] = k
            v_cache[i, slots, :, :width] = v
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + F.linear(a.transpose(1, 2).reshape(len(group), width, nh * d), layer.out)
            normed = F.rms_norm(x, (shape.hidden,), layer.post_norm, shape.rms_eps)
            gate, up = F.linear(normed, layer.gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
