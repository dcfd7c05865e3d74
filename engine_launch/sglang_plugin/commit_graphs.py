"""The drafter's part of a commit as CUDA graphs: features of accepted nodes become rows of the draft KV.

SGLang projects the features and writes keys and values of each of the drafter's layers with launches of their own, some
twenty a round. With a small target a round is as long as the CPU takes to launch, so the whole is recorded once for each
batch size, and a round replays it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

_logger = logging.getLogger(__name__)
_LARGEST = 32
"""Requests. Larger batches keep the GPU busy enough, and the buffer of features grows with them (86 kB a token at K2.6)."""

Append = Callable[[Tensor, Tensor, Tensor, Tensor], None]
"""Features ``[bs × block, F]``, positions and slots ``[bs, block]``, commit lengths ``[bs]`` int32, to the draft KV."""
Record = Callable[[Callable[[], None]], Callable[[], None]]
"""Takes a call and gives one that repeats it on what is then in the same tensors."""


@dataclass(frozen=True)
class CommitInputs:
    """Where a round puts what its commit reads; with a graph, views of tensors that stay where they are."""

    positions: Tensor
    """int64 ``[bs, block]``"""
    slots: Tensor
    """int64 ``[bs, block]``"""
    commits: Tensor
    """int32 ``[bs]``"""


class CommitGraphs:
    """Graphs by batch size; a batch takes the next larger one, whose further rows commit nothing."""

    def __init__(
        self, append: Append, sizes: Iterable[int], *, block: int, features: int, dtype: torch.dtype, device: Any
    ) -> None:
        """
        Args:
            sizes: batch sizes to be recorded; those above 32 are left out.
            features: numbers per token that the drafter takes, of type ``dtype``.
        """
        self._append = append
        self._block, self._device = block, device
        self._sizes = sorted({size for size in sizes if size <= _LARGEST})
        largest = self._sizes[-1] if self._sizes else 0
        self._features = torch.zeros((largest * block, features), dtype=dtype, device=device)
        self._positions, self._slots = (torch.zeros((largest, block), dtype=torch.int64, device=device) for _ in range(2))
        self._commits = torch.zeros((largest,), dtype=torch.int32, device=device)
        self._replays: dict[int, Callable[[], None]] = {}
        self._kept: tuple[Any, ...] = ()

    def keep(self, *used: Any) -> None:
        """Hold what the recorded calls work in and nobody else may hold for as long."""
        self._kept = used

    @property
    def sizes(self) -> tuple[int, ...]:
        """Batch sizes that have a graph."""
        return tuple(sorted(self._replays))

    def record(self, record: Record) -> None:
        """Record all sizes, largest first. Where a call cannot be run, all are launched one by one, as SGLang does; it is logged.

        Raises:
            Exception: what ``record`` raises that is no RuntimeError.
        """
        try:
            for size in reversed(self._sizes):
                self._replays[size] = record(partial(self._append_fixed, size))
        except RuntimeError as error:
            self._replays.clear()
            _logger.warning("DDTREE commits without CUDA graphs: %s", error)

    def give_up(self) -> None:
        """From now on launch one by one."""
        self._replays.clear()

    def inputs(self, bs: int) -> CommitInputs:
        """Where this round's positions, slots and commit lengths go."""
        if self._size(bs):
            return CommitInputs(self._positions[:bs], self._slots[:bs], self._commits[:bs])
        positions, slots = (torch.empty((bs, self._block), dtype=torch.int64, device=self._device) for _ in range(2))
        return CommitInputs(positions, slots, torch.empty((bs,), dtype=torch.int32, device=self._device))

    def commit(self, inputs: CommitInputs, hidden: Tensor, rows: Tensor) -> None:
        """Append the features ``hidden[rows]``, of each request the first ``inputs.commits``.

        ``hidden`` is ``[nodes, F]`` of all requests, ``rows`` int64 ``[bs × block]``.
        """
        bs = inputs.slots.shape[0]
        size = self._size(bs)
        if not size or (hidden.dtype, hidden.shape[1]) != (self._features.dtype, self._features.shape[1]):
            self._append(hidden.index_select(0, rows), inputs.positions, inputs.slots, inputs.commits)
            return
        torch.index_select(hidden, 0, rows, out=self._features[: bs * self._block])
        if size > bs:
            self._commits[bs:size].zero_()
        self._replays[size]()

    def _size(self, bs: int) -> int:
        """The recorded size that serves ``bs`` requests, or 0."""
        return min((size for size in self._replays if size >= bs), default=0)

    def _append_fixed(self, size: int) -> None:
        self._append(self._features[: size * self._block], self._positions[:size], self._slots[:size], self._commits[:size])
