"""The DFlash drafter: one pass over a block of masks proposes a distribution for every position of the block.

Two streams meet in each layer (arXiv 2602.06036). The *context* is the target's features of committed tokens, fused to the
hidden size once; each layer projects it to keys and values, which are kept. The *block* is the anchor token and masks; its
rows attend to the context and to each other and are forgotten after the round. ``B`` is the number of requests, ``b`` the
block size, ``K`` the number of taps, ``H`` the hidden size, ``V`` the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from engine_launch.embedded.draft_kv import ContextStore, DraftKV
from engine_launch.embedded.linear import Linear
from engine_launch.embedded.norm import RmsNorm
from engine_launch.embedded.rotary import RotaryTable, rotate
from engine_launch.spec.drafter_config import DrafterConfig, LayerType


class EmbedsAndUnembeds(Protocol):
    """What the drafter borrows from the target."""

    def embedding(self, ids: Tensor) -> Tensor: ...

    def logits(self, hidden: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class ContextRows:
    """Features of newly committed tokens of one request, in order."""

    kv: DraftKV
    features: Tensor
    """``[n, K * H]``, for the positions ``kv.length …``."""


@dataclass(frozen=True)
class DraftQuery:
    """One request's wish for a block: its cache holds exactly the tokens before the anchor."""

    kv: DraftKV
    anchor: int


class Drafter(Protocol):
    """The seam between the decode loop and whatever proposes tokens."""

    taps: tuple[int, ...]
    block_size: int
    weight_bytes: int

    def new_kv(self, draft_window: int) -> DraftKV: ...

    def append(self, rows: Sequence[ContextRows]) -> None: ...

    def draft(self, queries: Sequence[DraftQuery]) -> Tensor:
        """Logits ``[B, b - 1, V]``: slot ``k`` is for the token at ``k + 1`` places after the anchor."""


@dataclass(frozen=True)
class _Layer:
    input_norm: RmsNorm
    qkv: Linear
    q_norm: RmsNorm
    k_norm: RmsNorm
    o: Linear
    post_norm: RmsNorm
    gate_up: Linear
    down: Linear
    causal: bool
    window: int
    """0 = this layer has none."""


class DFlashDrafter:
    """A DFlash draft model with its weights.

    Args:
        config: the checkpoint's configuration.
        weights: tensors under the checkpoint's names, all in the target's dtype.
        target: lends embedding and unembedding.
        mask_token_id: fills the slots behind the anchor.
        taps: tapped target layers, in the order in which their features stand side by side.
        block_size: anchor and masks; normally the one that the drafter was trained with.
        layers_window: window of the sliding layers in tokens, 0 = off.
        positions: how many positions the rotary table covers.
    """

    def __init__(
        self,
        config: DrafterConfig,
        weights: Mapping[str, Tensor],
        target: EmbedsAndUnembeds,
        *,
        mask_token_id: int,
        taps: tuple[int, ...],
        block_size: int,
        layers_window: int,
        positions: int,
    ) -> None:
        self.config = config
        self.taps = taps
        self.block_size = block_size
        self.layers_window = layers_window
        self.weight_bytes = sum(tensor.nbytes for tensor in weights.values())
        self._target = target
        self._mask_token_id = mask_token_id
        self.dtype = weights["norm.weight"].dtype
        self._fc = Linear(weights["fc.weight"])
        self._hidden_norm = RmsNorm(weights["hidden_norm.weight"], config.rms_norm_eps)
        self._norm = RmsNorm(weights["norm.weight"], config.rms_norm_eps)
        self._layers = [self._load_layer(weights, index) for index in range(config.num_layers)]
        # Context keys and values of all layers in one product: rows are ordered (key or value, layer, head).
        names = [f"layers.{index}.self_attn.{part}_proj.weight" for part in "kv" for index in range(config.num_layers)]
        self._context_kv = Linear(torch.cat([weights[name] for name in names]))
        names = [f"layers.{index}.self_attn.k_norm.weight" for index in range(config.num_layers)]
        self._context_k_norm = RmsNorm(torch.stack([weights[name] for name in names])[:, None], config.rms_norm_eps)
        self._rotary = RotaryTable(config.head_dim, config.rope_theta, positions, self.dtype)

    def _load_layer(self, weights: Mapping[str, Tensor], index: int) -> _Layer:
        prefix = f"layers.{index}."
        attention = prefix + "self_attn."
        sliding = self.config.layer_types[index] is LayerType.SLIDING
        eps = self.config.rms_norm_eps
        return _Layer(
            input_norm=RmsNorm(weights[prefix + "input_layernorm.weight"], eps),
            qkv=Linear(torch.cat([weights[attention + f"{part}_proj.weight"] for part in "qkv"])),
            q_norm=RmsNorm(weights[attention + "q_norm.weight"], eps),
            k_norm=RmsNorm(weights[attention + "k_norm.weight"], eps),
            o=Linear(weights[attention + "o_proj.weight"]),
            post_norm=RmsNorm(weights[prefix + "post_attention_layernorm.weight"], eps),
            gate_up=Linear(torch.cat([weights[prefix + f"mlp.{part}_proj.weight"] for part in ("gate", "up")])),
            down=Linear(weights[prefix + "mlp.down_proj.weight"]),
            causal=self.config.causal_in_block(index),
            window=self.layers_window if sliding else 0,
        )

    def new_kv(self, draft_window: int) -> DraftKV:
        """Draft caches for one request; ``draft_window`` is the compact cache in tokens, 0 = off."""
        return DraftKV(self.config, self.block_size, self.layers_window, draft_window, self.dtype)

    def append(self, rows: Sequence[ContextRows]) -> None:
        """Project newly committed tokens' features to keys and values and keep them (all requests and layers in one product)."""
        config = self.config
        features = rows[0].features if len(rows) == 1 else torch.cat([item.features for item in rows])
        positions = torch.cat([torch.arange(item.kv.length, item.kv.length + len(item.features)) for item in rows])
        context = self._hidden_norm(self._fc(features))
        shape = (len(features), 2, config.num_layers, config.num_key_value_heads, config.head_dim)
        keys, values = self._context_kv(context).view(shape).unbind(1)
        # The context is not passed through the layers' input norm; their key norm applies to it as to the block.
        keys = self._context_k_norm(keys)
        cos, sin = self._rotary.at(positions)
        keys = rotate(keys.flatten(1, 2), cos, sin).view(keys.shape)
        projected = torch.stack([keys, values]).permute(0, 2, 3, 1, 4)
        for item, part in zip(rows, torch.split(projected, [len(item.features) for item in rows], dim=3), strict=True):
            item.kv.append(part)

    def draft(self, queries: Sequence[DraftQuery]) -> Tensor:
        """Logits ``[B, b - 1, V]``; the block's own keys and values stand behind the context until something overwrites them."""
        config, b = self.config, self.block_size
        ids = torch.full((len(queries), b), self._mask_token_id)
        ids[:, 0] = torch.tensor([query.anchor for query in queries])
        starts = torch.tensor([query.kv.length for query in queries])
        cos, sin = self._rotary.at((starts[:, None] + torch.arange(b)).flatten())
        masks = _BlockMasks(self._layers, b, config.num_attention_heads // config.num_key_value_heads, self.dtype)
        q_heads, kv_heads, head_dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        x = self._target.embedding(ids.flatten())
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(layer.input_norm(x)).view(len(x), -1, head_dim)
            q, k, v = torch.split(qkv, [q_heads, kv_heads, kv_heads], dim=1)
            q = rotate(layer.q_norm(q), cos, sin)
            k = rotate(layer.k_norm(k), cos, sin)
            parts = []
            for number, query in enumerate(queries):
                rows = slice(number * b, (number + 1) * b)
                parts.append(_attend(query.kv, index, q[rows], k[rows], v[rows], masks))
            x = layer.o.add_to(x, parts[0] if len(parts) == 1 else torch.cat(parts))
            gate, up = layer.gate_up(layer.post_norm(x)).chunk(2, dim=-1)
            x = layer.down.add_to(x, F.silu(gate).mul_(up))
        # Slot 0 is the anchor, which is known.
        drafted = x.view(len(queries), b, -1)[:, 1:].reshape(-1, config.hidden_size)
        return self._target.logits(self._norm(drafted)).view(len(queries), b - 1, -1)


def _attend(kv: DraftKV, layer: int, q: Tensor, k: Tensor, v: Tensor, masks: _BlockMasks) -> Tensor:
    """One request's block in one layer.

    ``q`` is ``[b, q_heads, head_dim]``, ``k`` and ``v`` are ``[b, kv_heads, head_dim]``; returns ``[b, q_heads * head_dim]``.
    """
    place = kv.places[layer]
    store = kv.stores[place.store]
    b, kv_heads, head_dim = k.shape
    end = store.visible + b
    keys, values = store.rows[0, place.index, :, :end], store.rows[1, place.index, :, :end]
    keys[:, store.visible :] = k.transpose(0, 1)
    values[:, store.visible :] = v.transpose(0, 1)
    group = q.shape[1] // kv_heads
    stacked = q.view(b, kv_heads, group, head_dim).permute(1, 2, 0, 3).reshape(kv_heads, group * b, head_dim)
    out = F.scaled_dot_product_attention(stacked[None], keys[None], values[None], attn_mask=masks.of(store, layer))
    return out.view(kv_heads, group, b, head_dim).permute(2, 0, 1, 3).reshape(b, -1)


class _BlockMasks:
    """Masks of one draft pass, made once per store and kind of layer."""

    def __init__(self, layers: Sequence[_Layer], block_size: int, group: int, dtype: torch.dtype) -> None:
        self._layers = layers
        self._block_size = block_size
        self._group = group
        self._dtype = dtype
        self._made: dict[tuple[int, int, bool], Tensor | None] = {}

    def of(self, store: ContextStore, layer: int) -> Tensor | None:
        """Additive ``[group * b, visible + b]``, or ``None`` when every slot sees everything."""
        window, causal = self._layers[layer].window, self._layers[layer].causal
        key = (id(store), window, causal)
        if key not in self._made:
            self._made[key] = self._make(store, window, causal)
        return self._made[key]

    def _make(self, store: ContextStore, window: int, causal: bool) -> Tensor | None:
        visible = block_visibility(store.slot_positions(), store.seen, self._block_size, window, causal)
        if bool(visible.all()):
            return None
        mask = torch.zeros(visible.shape, dtype=self._dtype).masked_fill_(~visible, float("-inf"))
        return mask.repeat(self._group, 1)


def block_visibility(context: Tensor, start: int, block_size: int, window: int, causal: bool) -> Tensor:
    """What each slot of a block may attend to, ``[b, context + b]`` bool (a test holds training's masks to the same rule).

    A context token at position ``p`` is seen by slot ``i`` of a block whose anchor is at ``start`` when
    ``p >= start + i - (window - 1)`` (the query takes one place of the window; 0 = no window). In the block itself, a causal
    layer's slot ``i`` sees slots ``j <= i``; other layers see the whole block. This is what SGLang 0.5.17 computes for
    sliding (causal) and full (bidirectional) layers.
    """
    slots = torch.arange(block_size)
    seen = torch.ones(block_size, len(context), dtype=torch.bool)
    if window > 0:
        seen = context[None, :] >= start + slots[:, None] - (window - 1)
    block = torch.ones(block_size, block_size, dtype=torch.bool)
    if causal:
        block = slots[None, :] <= slots[:, None]
    if window > 0:
        block = block & (slots[None, :] > slots[:, None] - window)
    return torch.cat([seen, block], dim=1)
