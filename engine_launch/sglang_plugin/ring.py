"""The draft KV pool as a ring per running request: which row holds which position, and which of them the drafter may see.

A request's entry in SGLang's table of requests (1 and up; 0 is padding) owns ``rows`` consecutive rows of the pool, and
position ``p`` lies in row ``p mod rows`` of them. Nothing is allocated or freed while requests run: a request that takes over
an entry writes over what the one before it left. What keeps it from reading that is ``first``: the first position of the
entry's present request whose row has been written. The drafter sees the positions from
``max(first, length − window)`` up to ``length``.

A position's features exist only when the target computes it, so tokens that the prefix cache has found are not in the ring.
SGLang is therefore told to let the last ``window`` tokens of a prompt be computed again (:attr:`DraftRing.tail`), as it does
itself for models whose sliding window lies in a ring. ``first`` holds also where that does not happen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine_launch.spec.draft_pool import PADDING_ROWS, ring_rows, ring_total


@dataclass(frozen=True)
class PrefillRows:
    """Where one prefill pass writes."""

    kept: Tensor | None
    """Of the pass's tokens those that are written, as indices; ``None`` is all of them."""
    rows: Tensor
    """int64, one row of the pool for each of them; no row occurs twice."""


@dataclass
class _Prompt:
    """A request that is being prefilled, or has not decoded yet."""

    req: Any
    end: int
    """Tokens prefilled so far, cached ones included."""
    first: int
    hit: bool
    """The prefix cache has found a part of it."""
    tail: int = 0
    """Of the tokens computed after a hit those that are counted."""


class DraftRing:
    """Rows, what is in them, and counts of what prefix-cache hits cost. One per scheduler process."""

    def __init__(self, window: int, block: int, requests: int, device: Any) -> None:
        """``window``: the largest that the drafter may be shown. ``requests``: the most that run at once."""
        self.window, self.block, self.requests, self.device = window, block, requests, device
        self.rows = ring_rows(window, block)
        self.total = ring_total(window, block, requests)
        self.first = torch.zeros((requests + 1,), dtype=torch.int64, device=device)
        self._prompts: dict[int, _Prompt] = {}
        """By entry, until the request decodes."""
        self.prefix_hits = 0
        self.tail_tokens = 0
        self.short_views = 0

    @property
    def tail(self) -> int:
        """Tokens at a prompt's end that a prefix-cache hit must leave to be computed."""
        return self.window

    def row(self, entry: int, position: int) -> int:
        """The pool's row of one position."""
        return PADDING_ROWS + (entry - 1) * self.rows + position % self.rows

    def prefill(self, reqs: Sequence[Any], prefix_lens: Sequence[int], extend_lens: Sequence[int]) -> PrefillRows:
        """Take in one prefill pass: ``extend_lens[i]`` tokens after ``prefix_lens[i]`` of the request ``reqs[i]``.

        Of each request only the last ``window`` tokens are written: what lies before them can never be seen again, and two
        tokens of one pass may not meet in one row, because a scatter does not say which of them wins.
        """
        begun: list[tuple[int, int]] = []
        kept, rows, offset = [], [], 0
        for req, prefix, extend in zip(reqs, prefix_lens, extend_lens, strict=True):
            entry, end = int(req.req_pool_idx), prefix + extend
            written = min(extend, self.window)
            prompt = self._prompts.get(entry)
            begins = prompt is None or prompt.req is not req or prompt.end != prefix
            if prompt is None or begins:
                prompt = self._prompts[entry] = _Prompt(req, end, end - written, prefix > 0)
                self.prefix_hits += prompt.hit
            # A later chunk that is longer than the window leaves a gap behind what was written before it.
            if begins or written < extend:
                prompt.first = end - written
                begun.append((entry, prompt.first))
            prompt.end = end
            self._count_tail(prompt, extend)
            kept.append(torch.arange(offset + extend - written, offset + extend))
            rows.append(self.row(entry, 0) + torch.arange(end - written, end) % self.rows)
            offset += extend
        if begun:
            entries, firsts = torch.tensor(begun, dtype=torch.int64).T.contiguous().to(self.device, non_blocking=True)
            self.first.index_copy_(0, entries, firsts)
        index = torch.cat(kept)
        whole = index.numel() == offset
        return PrefillRows(
            None if whole else index.to(self.device, non_blocking=True), torch.cat(rows).to(self.device, non_blocking=True)
        )

    def decoded(self, reqs: Sequence[Any]) -> None:
        """These requests decode: from now on a prefill in their entries begins anew (after a retraction, say)."""
        if self._prompts:
            for req in reqs:
                prompt = self._prompts.pop(req.req_pool_idx, None)
                if prompt is not None and prompt.hit:
                    self.short_views += prompt.end - prompt.first < self.window

    def counts(self) -> dict[str, int]:
        """What prefix-cache hits have cost so far."""
        return {"prefix_hits": self.prefix_hits, "tail_tokens": self.tail_tokens, "short_views": self.short_views}

    def _count_tail(self, prompt: _Prompt, extend: int) -> None:
        if prompt.hit:
            more = min(extend, self.window - prompt.tail)
            prompt.tail += more
            self.tail_tokens += more
