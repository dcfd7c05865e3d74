"""Which keys a slot of a draft block may see: one definition for training, evaluation and tests.

A block with its anchor at position ``a`` has slots ``0..b-1`` at positions ``a..a+b-1``. Keys are the context (features of
the positions before ``a``) and the block's own slots. A sliding layer of window ``W`` sees, from slot ``i``, only
positions ``>= a + i - (W - 1)`` and is causal in the block; a full layer sees the whole context and the whole block. This
is what SGLang 0.5.17 runs for a configuration without ``is_causal``.

A compact draft cache of ``C`` tokens is another limit, of every layer and the same for all slots of a block: the drafter is
given the last ``C`` committed tokens, positions ``>= a - C``, at their own positions. Where both bound a layer, the narrower
one holds slot by slot.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask


def context_visible(slot: Tensor, anchor: Tensor, key: Tensor, window: int | None, compact: int | None = None) -> Tensor:
    """Whether ``slot`` of the block anchored at ``anchor`` sees the context position ``key`` (broadcast).

    ``compact`` is the size of the compact draft cache in tokens, None = everything is kept.
    """
    seen = key < anchor
    if compact is not None:
        seen = seen & (key >= anchor - compact)
    return seen if window is None else seen & (key >= anchor + slot - (window - 1))


def block_visible(slot: Tensor, key_slot: Tensor, window: int | None) -> Tensor:
    """Whether ``slot`` sees ``key_slot`` of its own block (broadcast). A window is never smaller than the block."""
    return (key_slot <= slot) | (window is None)


def dense_mask(anchors: Tensor, context: int, block: int, window: int | None, compact: int | None = None) -> Tensor:
    """Mask ``[B, 1, N * block, context + N * block]``, True = may attend, for blocks anchored at ``anchors [B, N]``.

    ``window`` is the layer's, ``compact`` the compact draft cache's (:func:`context_visible`).
    """
    b, n = anchors.shape
    device = anchors.device
    slots = torch.arange(block, device=device)
    keys = torch.arange(context, device=device)
    ctx = context_visible(slots[:, None], anchors[:, :, None, None], keys, window, compact).expand(b, n, block, context)
    own = torch.eye(n, dtype=torch.bool, device=device)[:, None, :, None]
    inside = (own & block_visible(slots[:, None], slots[None, :], window)[None, :, None, :]).reshape(n * block, n * block)
    return torch.cat([ctx.reshape(b, n * block, context), inside.expand(b, -1, -1)], dim=-1)[:, None]


def flex_mask(anchors: Tensor, context: int, block: int, window: int | None, compiled: bool) -> BlockMask:
    """The same as :func:`dense_mask` for ``flex_attention``."""
    b, n = anchors.shape

    def visible(batch: Tensor, head: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        of, slot = q // block, q % block
        key = kv - context
        ctx = context_visible(slot, anchors[batch, of], kv, window) & (kv < context)
        inside = (key >= 0) & (key // block == of) & block_visible(slot, key % block, window)
        return ctx | inside

    return create_block_mask(visible, b, None, n * block, context + n * block, device=anchors.device, _compile=compiled)
