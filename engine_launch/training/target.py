"""The frozen target of drafter training: SmolLM2-135M-Instruct, dequantised from its GGUF file.

The drafter is trained against exactly the weights that are served later, so they are read from the same Q4_1 file and
not from the full-precision release. The forward here runs whole padded sequences at once and returns the tapped
features; decoding token by token is :mod:`engine_launch.training.decode`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from engine_launch.embedded.api import EngineError
from engine_launch.embedded.gguf_reader import GgufModel

IM_START = 1
IM_END = 2
END_OF_TEXT = 0


@dataclass(frozen=True)
class TargetShape:
    """Sizes and constants of a Llama target."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    rope_theta: float
    rms_eps: float


@dataclass(frozen=True)
class TargetLayer:
    """Weights of one decoder layer, ``[out, in]`` each; Q, K and V are stacked, and so are gate and up."""

    input_norm: Tensor
    qkv: Tensor
    out: Tensor
    post_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class Target:
    """The target's weights. The output head is the embedding (tied)."""

    shape: TargetShape
    embedding: Tensor
    layers: tuple[TargetLayer, ...]
    norm: Tensor

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Target:
        """A copy on ``device`` in ``dtype``."""

        def move(t: Tensor) -> Tensor:
            return t.to(device=device, dtype=dtype)

        layers = tuple(
            TargetLayer(move(x.input_norm), move(x.qkv), move(x.out), move(x.post_norm), move(x.gate_up), move(x.down))
            for x in self.layers
        )
        return Target(self.shape, move(self.embedding), layers, move(self.norm))


def load_target(path: Path) -> Target:
    """Read and dequantise a Llama GGUF file to fp32 on the CPU.

    Raises :class:`engine_launch.embedded.api.EngineError` when the file is missing or holds another architecture.
    """
    file = GgufModel(path)
    config = file.config
    if not config.tie_word_embeddings:
        raise EngineError(f"{path}: the target's output head is not its embedding; training knows only such targets")
    shape = TargetShape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        ffn=config.intermediate_size,
        vocab=config.vocab_size,
        rope_theta=config.rope_theta,
        rms_eps=config.rms_norm_eps,
    )
    tensors = {name: torch.from_numpy(values) for name, values in file.tensors()}
    layers = tuple(
        TargetLayer(
            input_norm=tensors[f"blk.{i}.attn_norm.weight"],
            qkv=torch.cat([tensors[f"blk.{i}.attn_{x}.weight"] for x in "qkv"]),
            out=tensors[f"blk.{i}.attn_output.weight"],
            post_norm=tensors[f"blk.{i}.ffn_norm.weight"],
            gate_up=torch.cat([tensors[f"blk.{i}.ffn_{x}.weight"] for x in ("gate", "up")]),
            down=tensors[f"blk.{i}.ffn_down.weight"],
        )
        for i in range(shape.layers)
    )
    return Target(shape, tensors["token_embd.weight"], layers, tensors["output_norm.weight"])


def random_target(shape: TargetShape, seed: int = 0, scale: float = 0.05) -> Target:
    """A target with random weights, for tests and for timing a machine before the real file is there."""
    g = torch.Generator().manual_seed(seed)

    def w(*size: int) -> Tensor:
        return torch.randn(*size, generator=g) * scale

    h, qkv = shape.hidden, (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    layers = tuple(
        TargetLayer(
            torch.ones(h), w(qkv, h), w(h, shape.heads * shape.head_dim), torch.ones(h), w(2 * shape.ffn, h), w(h, shape.ffn)
        )
        for _ in range(shape.layers)
    )
    return Target(shape, w(shape.vocab, h), layers, torch.ones(h))


def rope_table(positions: int, head_dim: int, theta: float, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """Cosines and sines ``[positions, head_dim]`` in fp32, halves repeated (rotate-half convention)."""
    inv = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float64, device=device) / head_dim)
    angles = torch.arange(positions, dtype=torch.float64, device=device)[:, None] * inv
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().float(), angles.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of ``x [..., T, head_dim]`` with tables broadcastable to it."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], dim=-1) * sin


def layer_forward(x: Tensor, layer: TargetLayer, shape: TargetShape, cos: Tensor, sin: Tensor) -> Tensor:
    """One decoder layer over whole sequences ``x [B, S, hidden]`` from position 0, causal.

    Padding needs no mask: it stands at the end, where no real token sees it.
    """
    b, s, _ = x.shape
    d, nh, nkv = shape.head_dim, shape.heads, shape.kv_heads
    qkv = F.linear(F.rms_norm(x, (shape.hidden,), layer.input_norm, shape.rms_eps), layer.qkv)
    q, k, v = qkv.view(b, s, nh + 2 * nkv, d).transpose(1, 2).split([nh, nkv, nkv], dim=1)  # type: ignore[no-untyped-call]
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    x = x + F.linear(a.transpose(1, 2).reshape(b, s, nh * d), layer.out)
    gate, up = F.linear(F.rms_norm(x, (shape.hidden,), layer.post_norm, shape.rms_eps), layer.gate_up).chunk(2, dim=-1)
    return x + F.linear(F.silu(gate) * up, layer.down)


@dataclass(frozen=True)
class TargetOutputs:
    """What a drafter is given of the target's pass: ``features [B, S, len(taps) * hidden]``, the outputs of the layers ``taps``
    side by side; and, where asked for, ``final [B, S, hidden]``, which the output head turns into the next token's logits."""

    taps: tuple[int, ...]
    features: Tensor
    final: Tensor | None

    def of(self, taps: tuple[int, ...]) -> TargetOutputs:
        """The same for a drafter that takes only some of these taps."""
        if taps == self.taps:
            return self
        parts = self.features.chunk(len(self.taps), dim=-1)
        return TargetOutputs(taps, torch.cat([parts[self.taps.index(t)] for t in taps], dim=-1), self.final)


class TargetForward:
    """Runs the target over batches of sequences and keeps the outputs of the tapped layers."""

    def __init__(self, target: Target, taps: tuple[int, ...], positions: int, compiled: bool = False) -> None:
        if not taps or max(taps) >= target.shape.layers:
            raise ValueError(f"taps {taps} do not fit a target of {target.shape.layers} layers")
        self.target = target
        self.taps = taps
        dtype = target.embedding.dtype
        cos, sin = rope_table(positions, target.shape.head_dim, target.shape.rope_theta, target.embedding.device)
        self._cos, self._sin = cos.to(dtype), sin.to(dtype)
        self._layer = torch.compile(layer_forward, dynamic=False) if compiled else layer_forward

    def features(self, ids: Tensor) -> Tensor:
        """Features ``[B, S, len(taps) * hidden]`` of ``ids [B, S]``: outputs of the tapped layers, side by side."""
        return self.outputs(ids).features

    @torch.no_grad()
    def outputs(self, ids: Tensor, final: bool = False) -> TargetOutputs:
        """Features of ``ids [B, S]`` and, if wanted, the ``final`` hidden states. Layers above the last needed are not run."""
        shape = self.target.shape
        x = F.embedding(ids, self.target.embedding)
        cos, sin = self._cos[: ids.shape[1]], self._sin[: ids.shape[1]]
        kept: dict[int, Tensor] = {}
        for i in range(shape.layers if final else max(self.taps) + 1):
            x = self._layer(x, self.target.layers[i], shape, cos, sin)
            if i in self.taps:
                kept[i] = x
        features = torch.cat([kept[i] for i in self.taps], dim=-1)
        last = F.rms_norm(x, (shape.hidden,), self.target.norm, shape.rms_eps) if final else None
        return TargetOutputs(self.taps, features, last)

    @torch.no_grad()
    def logits(self, ids: Tensor) -> Tensor:
        """Logits ``[B, S, vocab]`` of ``ids [B, S]``."""
        final = self.outputs(ids, final=True).final
        assert final is not None
        return F.linear(final, self.target.embedding)
