"""A worker's start: what its target must be, what of the start is logged, the ring's plan and the mover of KV rows."""

from __future__ import annotations

import logging
from typing import Any

from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.speculative.dflash_utils import get_dflash_attention_sliding_window_size

from engine_launch.sglang_plugin import draft_pool, kernels
from engine_launch.sglang_plugin.options import ENVIRONMENT, Limits
from engine_launch.sglang_plugin.settings import Settings
from engine_launch.spec.draft_pool import KvShape

_logger = logging.getLogger(__name__)


def check_target(page_size: int | None, model_runner: Any) -> None:
    """Raises ValueError for a target whose attention cannot verify a tree."""
    if page_size not in (None, 1):
        raise ValueError(f"DDTREE needs --page-size 1, not {page_size}: a tree's branches cannot share a page.")
    if model_runner.sliding_window_size is not None:
        raise ValueError(
            "DDTREE does not work with a target whose layers have a sliding window: its kernel counts rows, not depths."
        )


def check_backend(attn_backend: Any, recurrent: bool) -> None:
    """Raises ValueError for an attention backend without tree masks, and for a target with ``recurrent`` layers."""
    if type(attn_backend).__name__ != "TritonAttnBackend":
        raise ValueError(
            "DDTREE needs an attention backend with tree masks: give --attention-backend triton "
            f"(it is {type(attn_backend).__name__})."
        )
    if recurrent:
        raise ValueError("DDTREE does not work with recurrent layers (Mamba, linear attention): a tree has no one state.")


def check_width(limits: Limits, reserved: int) -> None:
    """Raises ValueError when SGLang's arguments reserve another number of slots a round than this process's DDTREE flags need."""
    if limits.max_width != reserved:
        raise ValueError(
            f"this process's DDTREE flags ({ENVIRONMENT}) ask for trees of up to {limits.max_width} rows, but the server's "
            f"arguments reserve {reserved}: give every node of the group the same --speculative-ddtree-… flags."
        )


def keep_embedding_type(draft_model_runner: Any) -> None:
    """Give the drafter's eager passes embeddings in its own type. SGLang makes them bfloat16, so that with ``--dtype float16`` or
    ``float32`` the first product would end the scheduler as soon as more requests run than a graph holds."""
    build = draft_model_runner._extend_forward_kwargs

    def kept(forward_batch: Any, pp_proxy_tensors: Any) -> dict[str, Any]:
        made: dict[str, Any] = build(forward_batch, pp_proxy_tensors)
        if forward_batch.input_embeds is not None:
            made["input_embeds"] = forward_batch.input_embeds.to(draft_model_runner.dtype)
        return made

    draft_model_runner._extend_forward_kwargs = kept


def plan_ring(limits: Limits, shape: KvShape, server_args: Any) -> draft_pool.RingPlan | None:
    """The ring's plan, when the draft pool is to be one; ``shape`` is the drafter's."""
    if not limits.ring_window:
        return None
    requests = int(server_args.max_running_requests)
    return draft_pool.RingPlan(limits.ring_window, limits.block, requests, shape, server_args.max_total_tokens)


def row_mover(pool: Any) -> kernels.RowMover:
    """Raises ValueError for a KV pool with rows that the plugin does not know how to move."""
    plain = getattr(pool, "kv_cache_layout", "nhd") == "nhd" and not getattr(pool, "is_quantized_kv_cache", False)
    if type(pool) is MHATokenToKVPool and plain:
        return kernels.RowMover([*pool.k_buffer, *pool.v_buffer])
    if type(pool) is MLATokenToKVPool:
        return kernels.RowMover(list(pool.kv_buffer))
    raise ValueError(
        f"DDTREE cannot compact accepted paths in a KV cache of kind {type(pool).__name__} ({pool.dtype}): give another "
        "--kv-cache-dtype."
    )


def log_start(draft_model_runner: Any, draft_model: Any, limits: Limits, current: Settings) -> None:
    """The line that says that DDTREE runs, and how."""
    layers_window = get_dflash_attention_sliding_window_size(draft_model.config)
    _logger.info(
        "Initialized DDTREE draft runner. attention_backend=%s, model=%s, block_size=%d, tree_budget=%d, tree_topk=%d, "
        "layers_window=%s, draft_window_size=%s, compact_cache=%s, draft_pool=%s",
        draft_model_runner.server_args.attention_backend,
        type(draft_model).__name__,
        limits.block,
        current.budget,
        current.topk,
        None if layers_window is None else layers_window + 1,
        current.window or None,
        current.window > 0,
        "ring" if limits.ring_window else "stock",
    )


def without_dflash_lines(record: logging.LogRecord) -> bool:
    """The DFLASH worker's own start lines would claim that DFLASH runs."""
    return not (isinstance(record.msg, str) and record.msg.startswith("Initialized DFLASH draft runner"))
