"""The target's keys and values of one request: preallocated, written by slices, compacted when a tree path was not a prefix."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch

from engine_launch.embedded.target_config import TargetConfig

GROWTH = 256
"""Tokens added at least when a cache has to grow beyond what its request was given room for."""


class TargetKV:
    """Keys and values of one request in all target layers.

    ``keys`` and ``values`` are ``[layers, kv_heads, capacity, head_dim]``. Rows ``[0, length)`` are committed; a forward
    pass writes its rows behind them, and :meth:`commit` keeps some of those.
    """

    def __init__(self, config: TargetConfig, capacity: int, dtype: torch.dtype) -> None:
        shape = (config.num_hidden_layers, config.num_key_value_heads, capacity, config.head_dim)
        # Untouched pages cost no memory, so room for the whole answer is reserved at once.
        self.keys = torch.empty(shape, dtype=dtype)
        self.values = torch.empty(shape, dtype=dtype)
        self.length = 0

    @property
    def capacity(self) -> int:
        return self.keys.shape[2]

    @property
    def allocated_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def trimmed(self, length: int) -> TargetKV:
        """The first ``length`` committed tokens: this very cache where little of its room would be unused, else a copy."""
        if self.capacity <= length + length // 4:
            return self
        twin = copy.copy(self)
        twin.keys, twin.values = self.keys[:, :, :length].clone(), self.values[:, :, :length].clone()
        twin.length = length
        return twin

    def copy_from(self, other: TargetKV, length: int) -> None:
        """Start an empty cache with the first ``length`` committed tokens of another one."""
        self.keys[:, :, :length] = other.keys[:, :, :length]
        self.values[:, :, :length] = other.values[:, :, :length]
        self.length = length

    def reserve(self, rows: int) -> None:
        """Make room for ``rows`` more rows (a hot change may have made the tree wider than at admission)."""
        needed = self.length + rows
        if needed <= self.capacity:
            return
        grown = max(needed, self.capacity + GROWTH)
        for name in ("keys", "values"):
            old: torch.Tensor = getattr(self, name)
            new = torch.empty((*old.shape[:2], grown, old.shape[3]), dtype=old.dtype)
            new[:, :, : self.length] = old[:, :, : self.length]
            setattr(self, name, new)

    def commit(self, path: Sequence[int]) -> None:
        """Keep the rows ``path`` (ascending, counted from ``length``) of the latest pass, in this order.

        RoPE was applied at ``start + depth``, which is where a kept row ends up: moving it needs no rotation.
        """
        kept = len(path)
        if any(row != index for index, row in enumerate(path)):
            rows = torch.tensor(path) + self.length
            end = self.length + kept
            self.keys[:, :, self.length : end] = self.keys.index_select(2, rows)
            self.values[:, :, self.length : end] = self.values.index_select(2, rows)
        self.length += kept
