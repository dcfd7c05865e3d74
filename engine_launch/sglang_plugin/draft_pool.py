"""Sizes of the draft KV pool in a start of SGLang: what the ring takes, what is left for the target, and what stock would take.

SGLang divides the memory that is left by the bytes of one token, drafter included. With the ring the drafter costs nothing per
token: its bytes are taken off first, and a token costs what the target's KV takes.
"""

from __future__ import annotations

import logging
from typing import Any

from engine_launch.sglang_plugin.ring import DraftRing
from engine_launch.spec.draft_pool import KvShape, Pools, heads_row_bytes, ring_bytes, ring_pools, ring_total, stock_pools

_logger = logging.getLogger(__name__)
GIB = 1 << 30


class RingPlan:
    """The ring before it is allocated: SGLang asks for a token's bytes, then for the tokens that a budget holds."""

    def __init__(self, window: int, block: int, requests: int, draft: KvShape, most_tokens: int | None) -> None:
        """``requests``: the most that run at once; ``most_tokens``: ``--max-total-tokens``."""
        self._window, self._block, self._requests = window, block, requests
        self._draft, self._most_tokens = draft, most_tokens
        self._target: KvShape | None = None
        self._available: int | None = None

    def token_bytes(self, target_bytes: int, target_layers: int) -> int:
        """In the place of SGLang's sum of both models: the target's alone."""
        self._target = KvShape(target_layers, target_bytes)
        return target_bytes

    def left_for_target(self, available: int) -> int:
        """Bytes of ``available`` that the ring leaves.

        Raises:
            ValueError: nothing is left.
        """
        self._available = available
        own = ring_bytes(self._draft, ring_total(self._window, self._block, self._requests))
        if own >= available:
            raise ValueError(
                f"The draft KV pool (ring of {self._window} tokens for {self._requests} requests) needs {own / GIB:.2f} GB and "
                f"{available / GIB:.2f} GB are left for all KV: give a smaller --speculative-draft-window-size or "
                "--max-running-requests, or a larger --mem-fraction-static."
            )
        return available - own

    def foretold(self) -> tuple[Pools, Pools] | None:
        """The pools with the ring, and those that stock would have made; ``None`` before SGLang has asked."""
        if self._target is None or self._available is None:
            return None
        ring = ring_pools(
            self._available,
            self._target,
            self._draft,
            window=self._window,
            block=self._block,
            requests=self._requests,
            most_tokens=self._most_tokens,
        )
        return ring, stock_pools(self._available, self._target, self._draft, self._most_tokens)

    def allocate(self, requests: int, device: Any) -> DraftRing:
        """The ring for as many requests as SGLang has settled on."""
        return DraftRing(self._window, self._block, requests, device)


def draft_shape(runner: Any, ranks: int) -> KvShape:
    """The drafter's keys and values per token on one of ``ranks`` ranks, from its loaded ``ModelRunner``."""
    config, layers = runner.model_config, int(runner.layer_info.num_effective_layers)
    heads = int(config.get_num_kv_heads(ranks))
    size = runner.kv_cache_dtype.itemsize
    return KvShape(layers, heads_row_bytes(layers, heads, int(config.head_dim), int(config.v_head_dim), size))


def pool_bytes(pool: Any) -> int:
    """Bytes of a KV pool as allocated; pools with separate keys and values give two numbers."""
    size = pool.get_kv_size_bytes()
    return int(sum(size)) if isinstance(size, tuple) else int(size)


def describe(pool: Any, ring: DraftRing | None) -> dict[str, Any]:
    """The draft pool for ``/server_info``."""
    said: dict[str, Any] = {"kind": "stock", "rows": int(pool.size), "bytes": pool_bytes(pool)}
    if ring is not None:
        said.update(kind="ring", rows_per_request=ring.rows, requests=ring.requests, largest_window=ring.window, **ring.counts())
    return said


def log_pool(pool: Any, ring: DraftRing | None, plan: RingPlan | None, tokens: int) -> None:
    """One line of the start: which pool, how large, and for the ring what was foretold and what stock would have taken."""
    size = pool_bytes(pool)
    foretold = plan.foretold() if plan else None
    if ring is None or foretold is None:
        _logger.info("DDTREE draft KV pool. pool=stock, rows=%d, GB=%.3f, max_total_num_tokens=%d", pool.size, size / GIB, tokens)
        return
    own, stock = foretold
    _logger.info(
        "DDTREE draft KV pool. pool=ring, rows=%d, rows_per_request=%d, requests=%d, GB=%.3f, predicted_GB=%.3f, stock_GB=%.3f, "
        "max_total_num_tokens=%d, predicted_tokens=%d, stock_tokens=%d",
        pool.size,
        ring.rows,
        ring.requests,
        size / GIB,
        own.draft_bytes / GIB,
        stock.draft_bytes / GIB,
        tokens,
        own.tokens,
        stock.tokens,
    )
