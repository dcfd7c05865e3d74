"""The DFlash drafter as it is trained: shape, weights under their checkpoint names, and the two ways to run it.

:meth:`Drafter.blocks` drafts many blocks of whole sequences at once (training, and evaluation of recorded text);
:class:`DraftCache` drafts one block after the other as an engine does. Both give the same numbers (a test).
DFlash: arXiv 2602.06036; tensor names as in the z-lab checkpoints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from engine_launch.training.masks import dense_mask
from engine_launch.training.target import rope_table, rotate

Mask = Tensor | BlockMask


@dataclass(frozen=True)
class DrafterShape:
    """Sizes and constants of a drafter; the defaults are those of the packaged one."""

    hidden: int = 576
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    ffn: int = 2048
    vocab: int = 49152
    rope_theta: float = 100000.0
    rms_eps: float = 1e-5
    max_positions: int = 8192
    block: int = 8
    mask_token: int = 16
    window: int = 512
    sliding: tuple[bool, ...] = (True, True, True, False)
    taps: tuple[int, ...] = (1, 8, 14, 20, 27)
    target_layers: int = 30

    def __post_init__(self) -> None:
        """Raises: ValueError: sizes that do not fit together."""
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} key-value heads evenly")
        if any(self.sliding) and self.window < self.block:
            raise ValueError(f"a window of {self.window} tokens is smaller than the block of {self.block}")
        if not self.taps or list(self.taps) != sorted(set(self.taps)) or self.taps[-1] >= self.target_layers:
            raise ValueError(f"taps {self.taps} are not layers of a target of {self.target_layers}, in ascending order")

    def window_of(self, layer: int) -> int | None:
        """The layer's window in tokens; None where it attends to everything."""
        return self.window if self.sliding[layer] else None

    def config_json(self) -> str:
        """The text of ``config.json``, readable by SGLang 0.5.17. ``is_causal`` is left out on purpose."""
        config = {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "block_size": self.block,
            "dflash_config": {
                "block_size": self.block,
                "mask_token_id": self.mask_token,
                "target_layer_ids": list(self.taps),
            },
            "dtype": "bfloat16",
            "eos_token_id": 2,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "initializer_range": 0.02,
            "intermediate_size": self.ffn,
            "layer_types": ["sliding_attention" if s else "full_attention" for s in self.sliding],
            "max_position_embeddings": self.max_positions,
            "max_window_layers": len(self.sliding),
            "num_attention_heads": self.heads,
            "num_hidden_layers": len(self.sliding),
            "num_key_value_heads": self.kv_heads,
            "num_target_layers": self.target_layers,
            "rms_norm_eps": self.rms_eps,
            "rope_scaling": None,
            "rope_theta": self.rope_theta,
            "sliding_window": self.window,
            "tie_word_embeddings": False,
            "use_sliding_window": True,
            "vocab_size": self.vocab,
        }
        return json.dumps(config, indent=2) + "\n"

    @classmethod
    def from_config(cls, text: str) -> DrafterShape:
        """Read a ``config.json`` that :meth:`config_json` wrote.

        Raises:
            ValueError: it is no JSON, a key is missing, or its sizes do not fit together.
        """
        try:
            return cls._of(json.loads(text))
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no config.json of a trained drafter: {error} is missing or of another kind") from None

    @classmethod
    def _of(cls, c: Mapping[str, Any]) -> DrafterShape:
        return cls(
            hidden=c["hidden_size"],
            heads=c["num_attention_heads"],
            kv_heads=c["num_key_value_heads"],
            head_dim=c["head_dim"],
            ffn=c["intermediate_size"],
            vocab=c["vocab_size"],
            rope_theta=c["rope_theta"],
            rms_eps=c["rms_norm_eps"],
            max_positions=c["max_position_embeddings"],
            block=c["block_size"],
            mask_token=c["dflash_config"]["mask_token_id"],
            window=c["sliding_window"],
            sliding=tuple(t == "sliding_attention" for t in c["layer_types"]),
            taps=tuple(c["dflash_config"]["target_layer_ids"]),
            target_layers=c["num_target_layers"],
        )


class RMSNorm(nn.Module):
    """RMS norm whose weight follows the input's dtype, so that the fused kernel is used under autocast."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps)


class Attention(nn.Module):
    """Projections and per-head norms of one layer (Qwen3's)."""

    def __init__(self, s: DrafterShape) -> None:
        super().__init__()
        self.shape = s
        self.q_proj = nn.Linear(s.hidden, s.heads * s.head_dim, bias=False)
        self.k_proj = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=False)
        self.v_proj = nn.Linear(s.hidden, s.kv_heads * s.head_dim, bias=False)
        self.o_proj = nn.Linear(s.heads * s.head_dim, s.hidden, bias=False)
        self.q_norm = RMSNorm(s.head_dim, s.rms_eps)
        self.k_norm = RMSNorm(s.head_dim, s.rms_eps)

    def queries(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotated queries ``[B, heads, T, d]`` of ``x [B, T, hidden]``; tables ``[B or 1, T, d]``."""
        b, t, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(b, t, self.shape.heads, self.shape.head_dim)).transpose(1, 2)
        return rotate(q, cos[:, None].to(q.dtype), sin[:, None].to(q.dtype))

    def keys_values(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Rotated keys and values ``[B, kv_heads, T, d]`` of ``x [B, T, hidden]``."""
        b, t, _ = x.shape
        size = (b, t, self.shape.kv_heads, self.shape.head_dim)
        k = self.k_norm(self.k_proj(x).view(size)).transpose(1, 2)
        return rotate(k, cos[:, None].to(k.dtype), sin[:, None].to(k.dtype)), self.v_proj(x).view(size).transpose(1, 2)


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, s: DrafterShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(s.hidden, s.ffn, bias=False)
        self.up_proj = nn.Linear(s.hidden, s.ffn, bias=False)
        self.down_proj = nn.Linear(s.ffn, s.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Layer(nn.Module):
    """One drafter layer: queries from the block, keys and values from the context and the block."""

    def __init__(self, s: DrafterShape) -> None:
        super().__init__()
        self.self_attn = Attention(s)
        self.mlp = Mlp(s)
        self.input_layernorm = RMSNorm(s.hidden, s.rms_eps)
        self.post_attention_layernorm = RMSNorm(s.hidden, s.rms_eps)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Output projection and MLP; ``attended [B, heads, T, d]``."""
        b, _, t, _ = attended.shape
        x = x + self.self_attn.o_proj(attended.transpose(1, 2).reshape(b, t, -1))
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


Tables = tuple[Tensor, Tensor]


def run_layer(layer: Layer, x: Tensor, context: Tensor, at_block: Tables, at_context: Tables, mask: Mask) -> Tensor:
    """One layer over flattened blocks ``x [B, N * b, hidden]`` and ``context [B, S, hidden]``."""
    attn = layer.self_attn
    normed = layer.input_layernorm(x)
    q = attn.queries(normed, *at_block)
    k_ctx, v_ctx = attn.keys_values(context, *at_context)
    k_blk, v_blk = attn.keys_values(normed, *at_block)
    k, v = torch.cat([k_ctx, k_blk], dim=2), torch.cat([v_ctx, v_blk], dim=2)
    if isinstance(mask, BlockMask):
        attended = flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
        assert isinstance(attended, Tensor)
    else:
        repeat = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeat, dim=1), v.repeat_interleave(repeat, dim=1)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return layer.finish(x, attended)


class Drafter(nn.Module):
    """All drafter weights. The embedding and the output head are the target's and are not in here."""

    feature_scale: Tensor
    """Factor per feature, folded into ``fc`` on export. Residual streams have a few huge channels; training on features
    of equal size lets one learning rate fit all columns of ``fc``."""

    def __init__(self, shape: DrafterShape) -> None:
        super().__init__()
        self.shape = shape
        width = len(shape.taps) * shape.hidden
        self.layers = nn.ModuleList([Layer(shape) for _ in shape.sliding])
        self.fc = nn.Linear(width, shape.hidden, bias=False)
        self.hidden_norm = RMSNorm(shape.hidden, shape.rms_eps)
        self.norm = RMSNorm(shape.hidden, shape.rms_eps)
        self.register_buffer("feature_scale", torch.ones(width), persistent=False)
        self.run_layer: Callable[[Layer, Tensor, Tensor, Tables, Tables, Mask], Tensor] = run_layer
        for name, p in self.named_parameters():
            if p.dim() == 2:
                small = (2 * len(shape.sliding)) ** -0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                nn.init.normal_(p, std=0.02 * small)

    def draft_layers(self) -> list[Layer]:
        """The layers, typed."""
        return [layer for layer in self.layers if isinstance(layer, Layer)]

    def context(self, features: Tensor) -> Tensor:
        """Fused context ``[B, S, hidden]`` of target features ``[B, S, taps * hidden]``."""
        scaled = self.fc.weight * self.feature_scale
        fused: Tensor = self.hidden_norm(F.linear(features, scaled.to(features.dtype)))
        return fused

    def blocks(self, embedded: Tensor, features: Tensor, anchors: Tensor, masks: dict[bool, Mask] | None = None) -> Tensor:
        """Hidden states ``[B, N, b, hidden]`` (final norm applied) of blocks anchored at ``anchors [B, N]``.

        ``embedded [B, N, b, hidden]`` are the target's embeddings of anchor and mask tokens; ``features`` those of
        positions ``0..S-1``. ``masks`` by "is a sliding layer"; dense ones are built when none are given.
        """
        b, n, block, hidden = embedded.shape
        s = features.shape[1]
        if masks is None:
            masks = {k: dense_mask(anchors, s, block, self.shape.window if k else None) for k in (False, True)}
        positions = (anchors[:, :, None] + torch.arange(block, device=anchors.device)).reshape(b, n * block)
        cos, sin = rope_table(s + block, self.shape.head_dim, self.shape.rope_theta, features.device)
        at_block, at_context = (cos[positions], sin[positions]), (cos[None, :s], sin[None, :s])
        context = self.context(features)
        x = embedded.reshape(b, n * block, hidden)
        for layer, sliding in zip(self.draft_layers(), self.shape.sliding, strict=True):
            x = self.run_layer(layer, x, context, at_block, at_context, masks[sliding])
        out: Tensor = self.norm(x).view(b, n, block, hidden)
        return out

    def export(self, folder: Path) -> None:
        """Write ``config.json`` and bf16 ``model.safetensors``, with ``feature_scale`` folded into ``fc``.

        An earlier export in ``folder`` is whole until the new weights are.
        """
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: p.detach() for name, p in self.named_parameters()}
        state["fc.weight"] = state["fc.weight"] * self.feature_scale
        tensors = {name: t.to(torch.bfloat16).cpu().contiguous() for name, t in state.items()}
        unfinished = folder / "model.safetensors.unfinished"
        save_file(tensors, unfinished, metadata={"format": "pt"})
        unfinished.replace(folder / "model.safetensors")
        (folder / "config.json").write_text(self.shape.config_json(), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype = torch.float32) -> Drafter:
        """Read what :meth:`export` wrote.

        Raises:
            OSError: a file is missing.
            ValueError: the files are no such drafter, or do not belong together.
        """
        drafter = cls(DrafterShape.from_config((folder / "config.json").read_text(encoding="utf-8")))
        try:
            drafter.load_state_dict(load_file(folder / "model.safetensors"))
        except (RuntimeError, SafetensorError) as error:
            raise ValueError(f"{folder / 'model.safetensors'} does not hold the weights of its config.json: {error}") from None
        return drafter.to(dtype)


class DraftCache:
    """Keys and values of committed positions for one sequence, and drafting on top of them, as at inference."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.length = 0
        self._kv: list[tuple[Tensor, Tensor]] = []

    def _tables(self, first: int, count: int, like: Tensor) -> Tables:
        shape = self.drafter.shape
        cos, sin = rope_table(first + count, shape.head_dim, shape.rope_theta, like.device)
        return cos[None, first:].to(like.dtype), sin[None, first:].to(like.dtype)

    @torch.no_grad()
    def append(self, features: Tensor) -> None:
        """Add the features ``[1, T, taps * hidden]`` of the next ``T`` committed positions."""
        context = self.drafter.context(features)
        tables = self._tables(self.length, features.shape[1], features)
        new = [layer.self_attn.keys_values(context, *tables) for layer in self.drafter.draft_layers()]
        if self._kv:
            new = [(torch.cat([k, nk], 2), torch.cat([v, nv], 2)) for (k, v), (nk, nv) in zip(self._kv, new, strict=True)]
        self._kv = new
        self.length += features.shape[1]

    @torch.no_grad()
    def draft(self, embedded: Tensor) -> Tensor:
        """Hidden states ``[1, b, hidden]`` of one block whose anchor is at position :attr:`length`."""
        block = embedded.shape[1]
        anchor = torch.tensor([[self.length]], device=embedded.device)
        tables = self._tables(self.length, block, embedded)
        x = embedded
        for i, layer in enumerate(self.drafter.draft_layers()):
            attn = layer.self_attn
            normed = layer.input_layernorm(x)
            k, v = attn.keys_values(normed, *tables)
            k, v = torch.cat([self._kv[i][0], k], 2), torch.cat([self._kv[i][1], v], 2)
            mask = dense_mask(anchor, self.length, block, self.drafter.shape.window_of(i))
            q = attn.queries(normed, *tables)
            x = layer.finish(x, F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True))
        out: Tensor = self.drafter.norm(x)
        return out
