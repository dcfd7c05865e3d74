"""What an engine is started with, before anything is loaded (needs no torch)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine_launch.embedded.api import Algorithm

PACKAGED_DRAFTER = Path(__file__).resolve().parent.parent / "weights" / "smollm2-135m-dflash"
DEFAULT_TREE_BUDGET = 8
DEFAULT_TREE_TOPK = 4
DEFAULT_MAX_RUNNING_REQUESTS = 8
DEFAULT_DECODE_LOG_INTERVAL = 40
MAX_BLOCK_SIZE = 256
"""Anchor and drafts: the target's rotary table reaches so far beyond the context."""
CHUNKED_PREFILL_SIZE = 512
"""Prompt tokens per prefill step: running requests decode between two chunks, and an abort need not wait for a long prompt."""


@dataclass(frozen=True)
class EngineOptions:
    """Start-up options; the defaults are those of ``ddtree-launch serve``."""

    model: Path | None = None
    """A GGUF file of the Llama architecture; ``None`` is the default model in the user's cache."""
    draft_path: Path | None = None
    """A folder with ``config.json`` and ``model.safetensors``; ``None`` is the drafter that comes with the package."""
    algorithm: Algorithm = Algorithm.PLAIN
    block_size: int | None = None
    """``None`` takes the drafter's own."""
    tree_budget: int | Literal["auto"] = DEFAULT_TREE_BUDGET
    tree_topk: int = DEFAULT_TREE_TOPK
    draft_window: int = 0
    """Size of the compact draft cache in tokens; 0 = off."""
    layers_window: Literal["config", "off"] | int = "config"
    """Window of the drafter's sliding layers: as trained, none, or a number of tokens."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    max_running_requests: int = DEFAULT_MAX_RUNNING_REQUESTS
    context_length: int | None = None
    """``None`` is the target's own."""
    decode_log_interval: int = DEFAULT_DECODE_LOG_INTERVAL
    random_seed: int = 0
    prefix_cache: bool = True
    """Keep keys and values of answered requests for others with the same beginning."""
    threads: int | None = None
    """Compute threads; ``None`` is the number of cores that this process may use."""
