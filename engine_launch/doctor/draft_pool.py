"""Foretells the KV pools of a start with DDTREE from files and flags: tokens, gigabytes, and what a ring would save.

What SGLang has for KV is its share (``--mem-fraction-static``) of the memory that was free at its start, less the weights.
Source: SGLang 0.5.17, ``KVCacheConfigurator._profile_available_bytes``. Without that flag SGLang works out a share of its own
from the card and other flags; then only the sizes are foretold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_launch.doctor.check import Check, fail, ok, warn
from engine_launch.local_paths import expanded
from engine_launch.spec.draft_pool import (
    KvShape,
    Pools,
    heads_row_bytes,
    latent_row_bytes,
    ring_bytes,
    ring_pools,
    ring_total,
    stock_pools,
)
from engine_launch.spec.drafter_config import DrafterConfig, DrafterConfigError, load_drafter_config
from engine_launch.spec.sglang_checks import DRAFT_POOL, asked_algorithm, block_given, number

GIB = 1 << 30
CONTEXT_BYTES = 600 << 20
"""What a process takes on a card before it loads anything, and nvidia-smi has not counted yet: CUDA's own state."""
DEFAULT_REQUESTS = 48
"""``--max-running-requests`` of a start with a DFlash drafter that does not give it (SGLang 0.5.17)."""
NAME = "draft pool"
SHARE = "--mem-fraction-static"


@dataclass(frozen=True)
class Start:
    """What decides the pools of one start, on one rank."""

    target: KvShape
    draft: KvShape
    weight_bytes: int
    """Of both models."""
    block: int
    window: int | None
    requests: int
    most_tokens: int | None
    fraction: float | None

    def available(self, free_bytes: float) -> int | None:
        """Bytes for both pools on a card with so much free; ``None`` without a given fraction."""
        if self.fraction is None:
            return None
        return max(0, int((free_bytes - CONTEXT_BYTES) * self.fraction) - self.weight_bytes)

    def stock(self, available: int) -> Pools:
        return stock_pools(available, self.target, self.draft, self.most_tokens)

    def ring(self, available: int, window: int) -> Pools:
        sizes = {"window": window, "block": self.block, "requests": self.requests}
        return ring_pools(available, self.target, self.draft, **sizes, most_tokens=self.most_tokens)


def read_start(flags: Mapping[str, str]) -> Start | None:
    """From the flags and the two local checkpoints; ``None`` when one of them is not here or cannot be read."""
    folders = [expanded(flags.get(name, "")) for name in ("--model-path", "--speculative-draft-model-path")]
    if not all(flags.get(name) for name in ("--model-path", "--speculative-draft-model-path")):
        return None
    try:
        drafter = load_drafter_config(folders[1])
        ranks = _given(flags, "--tp-size") or 1
        target = _target_shape(_config(folders[0]), ranks, _kv_dtype_bytes(flags))
        fraction = float(flags[SHARE]) if SHARE in flags else None
        weights = sum(_weight_bytes(folder, flags) for folder in folders)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DrafterConfigError):
        return None
    return Start(
        target,
        _draft_shape(drafter, ranks, _kv_dtype_bytes(flags)),
        weights // ranks,
        block_given(flags) or drafter.block_size,
        _given(flags, "--speculative-draft-window-size"),
        _given(flags, "--max-running-requests") or DEFAULT_REQUESTS,
        _given(flags, "--max-total-tokens"),
        fraction,
    )


def share_refusal(flags: Mapping[str, str]) -> str:
    """Why ``--mem-fraction-static`` is no share, or an empty text."""
    text = flags.get(SHARE)
    try:
        good = text is None or 0 < float(text) <= 1
    except ValueError:
        good = False
    return "" if good else f"{SHARE} takes a share between 0 and 1, not {text!r}."


def check_draft_pool(flags: Mapping[str, str], free_bytes: float | None) -> Check | None:
    """The draft pool that these flags ask for, and beside it the other one; ``None`` without DDTREE or local checkpoints."""
    if asked_algorithm(flags) != "DDTREE":
        return None
    problem = share_refusal(flags)
    if problem:
        return fail(NAME, problem)
    start = read_start(flags)
    if start is None:
        return None
    asked = flags.get(DRAFT_POOL, "stock")
    available = None if free_bytes is None else start.available(free_bytes)
    ring_gb = ring_bytes(start.draft, ring_total(start.window, start.block, start.requests)) / GIB if start.window else None
    if available is None:
        each = start.draft.row_bytes * 100_000 / GIB
        said = f"{asked}; the stock pool takes {each:.3f} GB for every 100,000 tokens of the target"
        if ring_gb is not None:
            said += f", a ring of {start.window} tokens for {start.requests} requests {ring_gb:.3f} GB in all"
        missing = f"Give {SHARE} to have the tokens foretold" if start.fraction is None else "Free GPU memory is not known"
        return ok(NAME, f"{said}. {missing}.")
    stock = start.stock(available)
    if asked != "ring" or not start.window:
        said = f"stock, {stock.draft_bytes / GIB:.3f} GB beside {stock.target_bytes / GIB:.2f} GB for {stock.tokens:,} tokens"
        if start.window:
            ring = start.ring(available, start.window)
            said += f"; {DRAFT_POOL} ring would take {ring.draft_bytes / GIB:.3f} GB and hold {ring.tokens:,}"
        return ok(NAME, said)
    ring = start.ring(available, start.window)
    said = (
        f"ring of {start.window} tokens for {start.requests} requests, {ring.draft_bytes / GIB:.3f} GB beside "
        f"{ring.target_bytes / GIB:.2f} GB for {ring.tokens:,} tokens; stock would take {stock.draft_bytes / GIB:.3f} GB "
        f"and hold {stock.tokens:,}"
    )
    if ring.draft_bytes < stock.draft_bytes:
        return ok(NAME, said)
    return warn(NAME, f"{said}: here the ring is the larger one. Give fewer --max-running-requests or a smaller window.")


def _given(flags: Mapping[str, str], name: str) -> int | None:
    """A count among the flags; one below 1 is none, and the check of the flags says so where it matters."""
    value = number(flags, name)
    return value if value is not None and value > 0 else None


def _config(folder: Path) -> dict[str, Any]:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise ValueError("a configuration is a JSON object")
    return config


def _count(value: object) -> int:
    """A size in a configuration. Raises ValueError for anything but a number of at least 1."""
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{value!r} is no size")
    return value


def _target_shape(config: Mapping[str, Any], ranks: int, dtype_bytes: int) -> KvShape:
    part = config.get("text_config") or config
    layers = _count(part["num_hidden_layers"])
    if part.get("kv_lora_rank"):
        latent, rope = _count(part["kv_lora_rank"]), _count(part["qk_rope_head_dim"])
        return KvShape(layers, latent_row_bytes(layers, latent, rope, dtype_bytes))
    heads = _count(part["num_attention_heads"])
    size = _count(part.get("head_dim") or _count(part["hidden_size"]) // heads)
    kv_heads = _count(part.get("num_key_value_heads") or heads)
    return KvShape(layers, heads_row_bytes(layers, kv_heads, size, size, dtype_bytes, ranks))


def _draft_shape(config: DrafterConfig, ranks: int, dtype_bytes: int) -> KvShape:
    size = config.head_dim
    row = heads_row_bytes(config.num_layers, config.num_key_value_heads, size, size, dtype_bytes, ranks)
    return KvShape(config.num_layers, row)


def _kv_dtype_bytes(flags: Mapping[str, str]) -> int:
    kv = flags.get("--kv-cache-dtype", "auto")
    if kv.startswith("fp8"):
        return 1
    return _dtype_bytes(flags) if kv == "auto" else 2


def _dtype_bytes(flags: Mapping[str, str]) -> int:
    """SGLang loads checkpoints in fp32 as 16 bits too, unless it is told otherwise."""
    return 4 if flags.get("--dtype") in ("float", "float32") else 2


def _weight_bytes(folder: Path, flags: Mapping[str, str]) -> int:
    """What the checkpoint's weights will take, unless they are quantised: then what they take on disk."""
    config = _config(folder)
    on_disk = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if config.get("quantization_config"):
        return on_disk
    stored = 4 if (config.get("torch_dtype") or config.get("dtype")) == "float32" else 2
    return on_disk * _dtype_bytes(flags) // stored
