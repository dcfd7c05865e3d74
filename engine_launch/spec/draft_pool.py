"""How many tokens and bytes SGLang's KV pools will have, by arithmetic alone: the stock draft pool, and the ring.

SGLang gives the KV pools what is left of its share of the GPU's memory after the weights. Like stock DFLASH, DDTREE allocates a
row of the drafter's keys and values for every token of the target's pool, whatever the compact draft cache is. The ring (DDTREE's
``--speculative-ddtree-draft-pool ring``) has rows for the window and one block per running request and no more; what that
frees becomes tokens of the target.

Sizes are those of one rank. Source: SGLang 0.5.17, ``pool_configurator.py`` and ``scale_kv_cell_size_per_token_for_dflash``,
which is given the drafter's own size by the plugin. Without it SGLang takes a layer of the drafter to be as large as one of the
target, and has too little memory beside a target with latent attention on few GPUs, or keeps some back on many.
"""

from __future__ import annotations

from dataclasses import dataclass

PADDING_ROWS = 1
"""Row 0 of every pool, where padded entries of a batch read and write (with pages of one token)."""


@dataclass(frozen=True)
class KvShape:
    """What one token's keys and values take in one model, on one rank."""

    layers: int
    row_bytes: int
    """All layers."""


@dataclass(frozen=True)
class Pools:
    """The two pools of one start."""

    tokens: int
    """``max_total_num_tokens``: what the target's pool holds."""
    draft_rows: int
    draft_bytes: int
    target_bytes: int


def heads_row_bytes(layers: int, kv_heads: int, head_dim: int, value_dim: int, dtype_bytes: int, ranks: int = 1) -> int:
    """Bytes of one token with attention by heads; fewer heads than ranks are held by several ranks."""
    return max(1, kv_heads // ranks) * (head_dim + value_dim) * layers * dtype_bytes


def latent_row_bytes(layers: int, latent: int, rope: int, dtype_bytes: int) -> int:
    """Bytes of one token with multi-head latent attention, which every rank holds whole."""
    return (latent + rope) * layers * dtype_bytes


def ring_rows(window: int, block: int) -> int:
    """Rows of one request's ring: the window, and the block that the drafter is at.

    A block is written while the whole window before it is read, so the two may not share a row. No margin is needed beyond
    them: passes run one after another on one stream, also with overlapped scheduling.
    """
    return window + block


def ring_total(window: int, block: int, requests: int) -> int:
    """Rows of all requests, the padding row not counted."""
    return ring_rows(window, block) * requests


def stock_cell(target: KvShape, draft: KvShape) -> int:
    """Bytes of one token in both pools, by which SGLang divides."""
    return target.row_bytes + draft.row_bytes


def stock_pools(available: int, target: KvShape, draft: KvShape, most_tokens: int | None = None) -> Pools:
    """Pools of a stock start with ``available`` bytes for both; ``most_tokens`` is ``--max-total-tokens``."""
    tokens = _capped(available // stock_cell(target, draft), most_tokens)
    return _pools(tokens, tokens, target, draft)


def ring_pools(
    available: int, target: KvShape, draft: KvShape, *, window: int, block: int, requests: int, most_tokens: int | None = None
) -> Pools:
    """The same with the ring: its bytes first, the rest for the target. No tokens at all when the ring does not fit."""
    rows = ring_total(window, block, requests)
    rest = max(0, available - ring_bytes(draft, rows))
    return _pools(_capped(rest // target.row_bytes, most_tokens), rows, target, draft)


def ring_bytes(draft: KvShape, rows: int) -> int:
    """Bytes of a draft pool with ``rows`` rows, and the padding row."""
    return (rows + PADDING_ROWS) * draft.row_bytes


def _capped(tokens: int, most: int | None) -> int:
    return tokens if most is None else min(tokens, most)


def _pools(tokens: int, draft_rows: int, target: KvShape, draft: KvShape) -> Pools:
    return Pools(tokens, draft_rows, ring_bytes(draft, draft_rows), (tokens + PADDING_ROWS) * target.row_bytes)
