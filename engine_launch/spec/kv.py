"""How much memory keys and values take, by arithmetic alone.

The console predicts with these functions what the embedded engine then allocates; a test holds the two together.
"""

from __future__ import annotations

from engine_launch.spec.drafter_config import DrafterConfig, LayerType

DRAFT_CHUNK = 256
"""Tokens by which a draft cache grows: a compromise between copies and unused room."""


def layer_limit(config: DrafterConfig, layer: int, layers_window: int, draft_window: int) -> int | None:
    """Context tokens that one drafter layer ever keeps; ``None`` = all.

    A sliding layer with window W keeps W - 1, because the query itself takes one place of the window. Both windows are in
    tokens, 0 = off.
    """
    limits = []
    if config.layer_types[layer] is LayerType.SLIDING and layers_window > 0:
        limits.append(max(1, layers_window - 1))
    if draft_window > 0:
        limits.append(draft_window)
    return min(limits) if limits else None


def draft_rows(context: int, limit: int | None, block_size: int) -> int:
    """Rows that a layer's cache holds at ``context`` committed tokens: context in chunks up to the limit, and one block."""
    chunked = -(-context // DRAFT_CHUNK) * DRAFT_CHUNK
    return (chunked if limit is None else min(chunked, limit)) + block_size


def draft_kv_bytes(
    config: DrafterConfig, context: int, *, layers_window: int, draft_window: int, dtype_bytes: int, block_size: int | None = None
) -> int:
    """Bytes of draft keys and values of one request at ``context`` committed tokens, all layers."""
    block = config.block_size if block_size is None else block_size
    per_row = config.kv_bytes_per_token_and_layer(dtype_bytes)
    limits = (layer_limit(config, layer, layers_window, draft_window) for layer in range(config.num_layers))
    return sum(draft_rows(context, limit, block) * per_row for limit in limits)


def target_kv_bytes(layers: int, kv_heads: int, head_dim: int, tokens: int, dtype_bytes: int) -> int:
    """Bytes of target keys and values of ``tokens`` tokens, all layers."""
    return 2 * layers * kv_heads * head_dim * tokens * dtype_bytes
