"""The target model: a Llama forward pass over the rows of several requests at once.

The rows of all requests are concatenated for everything that works row by row (products, norms, SwiGLU); only attention is
done per request, over that request's own keys and values. So requests of any length and width share one pass over the
weights, without padding. ``R`` is the number of rows of a pass, ``H`` the hidden size, ``K`` the number of tapped layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine_launch.embedded import split_attention
from engine_launch.embedded.linear import Linear
from engine_launch.embedded.norm import RmsNorm
from engine_launch.embedded.options import MAX_BLOCK_SIZE
from engine_launch.embedded.rotary import RotaryTable, rotate
from engine_launch.embedded.target_config import TargetConfig
from engine_launch.embedded.target_kv import TargetKV

DRAFT_HEADROOM = MAX_BLOCK_SIZE
"""Positions beyond the context length that drafts of the last tokens may stand at."""


@dataclass(frozen=True)
class Segment:
    """The rows of one request in a pass."""

    kv: TargetKV
    rows: int
    visible: Tensor | None = None
    """``[rows, rows]`` bool, True = may attend: ancestors and self of each tree node. ``None`` = causal."""


@dataclass(frozen=True)
class TargetOutput:
    """What a pass gives for its rows."""

    hidden: Tensor
    """``[R, H]``, after the final norm."""
    features: Tensor | None
    """``[R, K * H]``: outputs of the tapped layers side by side, when asked for."""


@dataclass(frozen=True)
class _Layer:
    attn_norm: RmsNorm
    qkv: Linear
    o: Linear
    mlp_norm: RmsNorm
    gate_up: Linear
    down: Linear


class TargetModel:
    """A Llama-architecture decoder with fused weights.

    Args:
        config: shape of the model.
        weights: ``embed``, ``norm``, optionally ``lm_head``, and for each layer ``layers.{i}.`` with ``attn_norm``,
            ``qkv``, ``o``, ``mlp_norm``, ``gate_up`` and ``down``.
    """

    def __init__(self, config: TargetConfig, weights: Mapping[str, Tensor]) -> None:
        self.config = config
        self.embed = weights["embed"]
        self.dtype = self.embed.dtype
        self._norm = RmsNorm(weights["norm"], config.rms_norm_eps)
        self._lm_head = Linear(weights.get("lm_head", self.embed))
        self._layers = [
            _load_layer(weights, f"layers.{index}.", config.rms_norm_eps) for index in range(config.num_hidden_layers)
        ]
        self.weight_bytes = sum(tensor.nbytes for tensor in weights.values())
        positions = config.max_position_embeddings + DRAFT_HEADROOM
        self._rotary = RotaryTable(config.head_dim, config.rope_theta, positions, self.dtype)

    def new_kv(self, capacity: int) -> TargetKV:
        """Room for ``capacity`` tokens of one request."""
        return TargetKV(self.config, capacity, self.dtype)

    def embedding(self, ids: Tensor) -> Tensor:
        """``[R]`` ids to ``[R, H]``."""
        return F.embedding(ids, self.embed)

    def logits(self, hidden: Tensor) -> Tensor:
        """``[R, H]`` after the final norm to ``[R, V]``. Called for the rows that are needed only: it is the largest product."""
        return self._lm_head(hidden)

    def forward(self, ids: Tensor, positions: Tensor, segments: Sequence[Segment], taps: Sequence[int] = ()) -> TargetOutput:
        """Run the rows ``ids`` (``[R]``, segment after segment) at absolute ``positions`` (``[R]``).

        Each segment's keys and values are written behind its committed ones; nothing is committed. ``taps`` lists layers
        whose *outputs* (after the residual, before the final norm) are returned side by side.
        """
        config = self.config
        for segment in segments:
            segment.kv.reserve(segment.rows)
        plans = [_AttentionPlan(segment, config, self.dtype) for segment in segments]
        sizes = [segment.rows for segment in segments]
        cos, sin = self._rotary.at(positions)
        tapped: dict[int, Tensor] = {}
        x = self.embedding(ids)
        heads = config.num_attention_heads + config.num_key_value_heads
        qk_size = config.q_size + config.kv_size
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(layer.attn_norm(x))
            qk = rotate(qkv[:, :qk_size].view(-1, heads, config.head_dim), cos, sin)
            v = qkv[:, qk_size:].view(-1, config.num_key_value_heads, config.head_dim)
            if len(plans) == 1:
                attended = plans[0].attend(index, qk, v)
            else:
                parts = zip(plans, torch.split(qk, sizes), torch.split(v, sizes), strict=True)
                attended = torch.cat([plan.attend(index, qk_part, v_part) for plan, qk_part, v_part in parts])
            x = layer.o.add_to(x, attended)
            gate, up = layer.gate_up(layer.mlp_norm(x)).chunk(2, dim=-1)
            x = layer.down.add_to(x, F.silu(gate).mul_(up))
            if index in taps:
                tapped[index] = x
        features = torch.cat([tapped[index] for index in taps], dim=-1) if taps else None
        return TargetOutput(self._norm(x), features)


def _load_layer(weights: Mapping[str, Tensor], prefix: str, eps: float) -> _Layer:
    return _Layer(
        attn_norm=RmsNorm(weights[prefix + "attn_norm"], eps),
        qkv=Linear(weights[prefix + "qkv"]),
        o=Linear(weights[prefix + "o"]),
        mlp_norm=RmsNorm(weights[prefix + "mlp_norm"], eps),
        gate_up=Linear(weights[prefix + "gate_up"]),
        down=Linear(weights[prefix + "down"]),
    )


class _AttentionPlan:
    """Attention of one segment, with whatever does not change from layer to layer worked out once."""

    def __init__(self, segment: Segment, config: TargetConfig, dtype: torch.dtype) -> None:
        self._rows = segment.rows
        self._q_heads = config.num_attention_heads
        self._kv_heads = config.num_key_value_heads
        self._head_dim = config.head_dim
        self._group = config.num_attention_heads // config.num_key_value_heads
        self._start = segment.kv.length
        self._end = self._start + segment.rows
        self._from_empty = self._start == 0 and segment.visible is None
        self._mask = None if self._from_empty else self._additive_mask(segment.visible, dtype)
        keys, values = segment.kv.keys[:, :, : self._end], segment.kv.values[:, :, : self._end]
        parts = None
        if not self._from_empty:
            parts = split_attention.parts_of(self._kv_heads, self._group * self._rows, self._end, torch.get_num_threads())
        self._in_parts = parts is not None
        if parts is not None:
            self._mask = parts.mask(self._mask, dtype)
            keys, values = parts.view(keys), parts.view(values)
        # One view per layer, made at once: slicing in every layer costs more than it looks at one row.
        self._keys = keys.unbind(0)
        self._values = values.unbind(0)
        self._new_keys = segment.kv.keys[:, :, self._start : self._end].transpose(1, 2).unbind(0)
        self._new_values = segment.kv.values[:, :, self._start : self._end].transpose(1, 2).unbind(0)

    def _additive_mask(self, visible: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """``[group * rows, end]``: 0 where a row may attend, -inf where not; ``None`` when every row sees everything."""
        if self._rows == 1:
            return None
        if visible is None:
            visible = torch.ones(self._rows, self._rows, dtype=torch.bool).tril_()
        mask = torch.zeros(self._rows, self._end, dtype=dtype)
        mask[:, self._start :].masked_fill_(~visible, float("-inf"))
        return mask.repeat(self._group, 1)

    def attend(self, layer: int, qk: Tensor, v: Tensor) -> Tensor:
        """Write this layer's keys and values and attend.

        ``qk`` is ``[rows, q_heads + kv_heads, head_dim]``, ``v`` ``[rows, kv_heads, head_dim]``; returns
        ``[rows, q_heads * head_dim]``.
        """
        self._new_keys[layer].copy_(qk[:, self._q_heads :])
        self._new_values[layer].copy_(v)
        keys, values, q = self._keys[layer], self._values[layer], qk[:, : self._q_heads]
        if self._from_empty:
            out = F.scaled_dot_product_attention(
                q.transpose(0, 1)[None], keys[None], values[None], is_causal=self._rows > 1, enable_gqa=self._group > 1
            )
            return out[0].transpose(0, 1).reshape(self._rows, -1)
        # The query heads that share a key head are stacked as rows: one dense product per key head, no repeated keys.
        if self._rows == 1:
            return self._look_back(q.view(self._kv_heads, self._group, self._head_dim), keys, values).view(1, -1)
        shape = (self._rows, self._kv_heads, self._group, self._head_dim)
        stacked = q.reshape(shape).permute(1, 2, 0, 3).reshape(self._kv_heads, self._group * self._rows, self._head_dim)
        out = self._look_back(stacked, keys, values)
        out = out.view(self._kv_heads, self._group, self._rows, self._head_dim)
        return out.permute(2, 0, 1, 3).reshape(self._rows, -1)

    def _look_back(self, stacked: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """``[kv_heads, group * rows, head_dim]`` over one layer's keys, whole or in parts; returns the same shape."""
        if self._in_parts:
            return split_attention.attend(stacked, keys, values, self._mask)
        return F.scaled_dot_product_attention(stacked[None], keys[None], values[None], attn_mask=self._mask)[0]
