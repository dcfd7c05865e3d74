"""The drafter's keys and values of one request: rings where a window bounds what is looked back at, growing stores elsewhere.

Keys carry RoPE at their absolute positions, so where a token lies in a store does not matter to attention; only masks need to
know which position each slot holds.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine_launch.spec.drafter_config import DrafterConfig
from engine_launch.spec.kv import draft_rows, layer_limit


class ContextStore:
    """Context of the layers that share one limit.

    ``rows`` is ``[2, layers, kv_heads, capacity, head_dim]`` (keys, then values). The token at position ``p`` lies in slot
    ``p mod limit`` (``p`` without a limit); the block of the round in progress lies right behind the context.
    """

    def __init__(
        self, layers: Sequence[int], shape: tuple[int, int], block_size: int, limit: int | None, dtype: torch.dtype
    ) -> None:
        self.layers = tuple(layers)
        self.limit = limit
        self.seen = 0
        """Committed tokens so far: the position of the next anchor."""
        self._block_size = block_size
        kv_heads, head_dim = shape
        rows = draft_rows(0, limit, block_size)
        self.rows = torch.empty((2, len(self.layers), kv_heads, rows, head_dim), dtype=dtype)
        self.first = 0
        """Oldest position that is still kept."""

    @property
    def visible(self) -> int:
        """Context tokens that are kept."""
        return self.seen - self.first

    @property
    def allocated_bytes(self) -> int:
        return self.rows.nbytes

    def slot_positions(self) -> Tensor:
        """Position held by each context slot, ``[visible]``."""
        positions = torch.arange(self.first, self.seen)
        if self.limit is None:
            return positions
        held = torch.empty(self.visible, dtype=torch.long)
        held[positions % self.limit] = positions
        return held

    def append(self, context: Tensor) -> None:
        """Add committed tokens' keys and values, ``[2, layers, kv_heads, n, head_dim]``, in order."""
        count = context.shape[3]
        if self.limit is not None and count > self.limit:
            skipped = count - self.limit
            context = context[:, :, :, skipped:]
            self.seen += skipped
            self.first = self.seen  # nothing of what was kept survives so many new tokens
            count = self.limit
        self._resize(draft_rows(self.seen + count, self.limit, self._block_size))
        if self.limit is None:
            self.rows[:, :, :, self.seen : self.seen + count] = context
        else:
            begin = self.seen % self.limit
            head = min(count, self.limit - begin)
            self.rows[:, :, :, begin : begin + head] = context[:, :, :, :head]
            self.rows[:, :, :, : count - head] = context[:, :, :, head:]
        self.seen += count
        if self.limit is not None:
            self.first = max(self.first, self.seen - self.limit)

    def copy(self) -> ContextStore:
        """The store as it stands now, independent of what happens to this one."""
        twin = copy.copy(self)
        twin.rows = self.rows.clone()
        return twin

    def copy_from(self, other: ContextStore, length: int) -> None:
        """Start an empty store with what ``other`` holds of the first ``length`` tokens (its oldest may be gone)."""
        first = min(other.first, length)
        if self.limit is not None:
            first = max(first, length - self.limit)
        slots = torch.arange(first, length)
        if other.limit is not None:
            slots %= other.limit
        self.first = self.seen = first
        if len(slots):
            self.append(other.rows[:, :, :, slots])

    def _resize(self, rows: int) -> None:
        if rows == self.rows.shape[3]:
            return
        shape = list(self.rows.shape)
        shape[3] = rows
        grown = torch.empty(shape, dtype=self.rows.dtype)
        # All slots, not the first `visible`: a ring that was copied without its oldest tokens begins in the middle.
        kept = min(rows, self.rows.shape[3])
        grown[:, :, :, :kept] = self.rows[:, :, :, :kept]
        self.rows = grown

    def shrink(self, limit: int) -> None:
        """Keep only the newest ``limit`` tokens from now on and free the rest; a larger limit than the present one is ignored."""
        if self.limit is not None and limit >= self.limit:
            return
        kept = min(self.visible, limit)
        positions = torch.arange(self.seen - kept, self.seen)
        source = positions if self.limit is None else positions % self.limit
        shape = list(self.rows.shape)
        shape[3] = draft_rows(self.seen, limit, self._block_size)
        smaller = torch.empty(shape, dtype=self.rows.dtype)
        smaller[:, :, :, positions % limit] = self.rows[:, :, :, source]
        self.rows, self.limit, self.first = smaller, limit, self.seen - kept


@dataclass(frozen=True)
class LayerPlace:
    """Where a layer's rows are: which store, and which index in it."""

    store: int
    index: int


class DraftKV:
    """Draft caches of one request: one :class:`ContextStore` per distinct limit.

    ``layers_window`` and ``draft_window`` are in tokens, 0 = off.
    """

    def __init__(self, config: DrafterConfig, block_size: int, layers_window: int, draft_window: int, dtype: torch.dtype) -> None:
        self._config = config
        self._layers_window = layers_window
        self.draft_window = draft_window
        """The compact cache that this request has; it may shrink, never grow."""
        # Layers are grouped by what they look back at *and* by kind: a compact cache makes the limits equal, masks still differ.
        groups: dict[tuple[object, int | None], list[int]] = {}
        for layer, kind in enumerate(config.layer_types):
            groups.setdefault((kind, layer_limit(config, layer, layers_window, draft_window)), []).append(layer)
        shape = (config.num_key_value_heads, config.head_dim)
        self.stores = [ContextStore(layers, shape, block_size, limit, dtype) for (_, limit), layers in groups.items()]
        self.places = {
            layer: LayerPlace(number, index)
            for number, store in enumerate(self.stores)
            for index, layer in enumerate(store.layers)
        }

    @property
    def length(self) -> int:
        """Committed tokens seen: always equal to the target cache's length when a round begins."""
        return self.stores[0].seen

    @property
    def visible(self) -> int:
        """Context tokens that the layer with the longest view keeps."""
        return max(store.visible for store in self.stores)

    @property
    def allocated_bytes(self) -> int:
        return sum(store.allocated_bytes for store in self.stores)

    def append(self, context: Tensor) -> None:
        """Add committed tokens' keys and values of all layers, ``[2, layers, kv_heads, n, head_dim]``."""
        for store in self.stores:
            store.append(context[:, list(store.layers)] if len(self.stores) > 1 else context)

    def snapshot(self) -> tuple[ContextStore, ...]:
        """The stores as they stand now: rings copied, the others themselves (they lose nothing later on)."""
        return tuple(store if store.limit is None else store.copy() for store in self.stores)

    def copy_from(self, stores: Sequence[ContextStore], length: int) -> None:
        """Start an empty cache with the first ``length`` tokens of another one's stores, which may have other limits."""
        for own, other in zip(self.stores, stores, strict=True):
            own.copy_from(other, length)

    def shrink(self, draft_window: int) -> None:
        """Make the compact cache smaller (or switch it on). 0 or a larger size changes nothing: freed context does not return."""
        if draft_window <= 0 or (self.draft_window and draft_window >= self.draft_window):
            return
        self.draft_window = draft_window
        for store in self.stores:
            limit = layer_limit(self._config, store.layers[0], self._layers_window, draft_window)
            if limit is not None:
                store.shrink(limit)
