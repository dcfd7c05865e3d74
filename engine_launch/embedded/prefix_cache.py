"""Keys and values of answered requests, kept so that a request with the same beginning need not compute them again.

An entry takes over the caches of a finished request as they are; a new request copies the rows that it shares, so entries never
change and many requests can start from one.

The target's rows can be reused up to any token. The drafter's rings cannot: they hold only the newest tokens before the place
where they stand. So an entry has the rings as they stood at the end of the prompt as well as at the end of the answer, and where
neither reaches back far enough for the new request, less is reused, so that the ring fills again on the way to the prompt's end.
The drafter then stands exactly where it would stand after a cold start.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine_launch.embedded.draft_kv import ContextStore, DraftKV
from engine_launch.embedded.target_kv import TargetKV

MAX_BYTES = 512 << 20
"""Keys and values kept between requests at most: about 20,000 tokens of the default model in bf16."""


@dataclass(frozen=True)
class PrefixEntry:
    """What one request left behind."""

    tokens: tuple[int, ...]
    """Prompt and answer, as far as the target's cache goes."""
    kv: TargetKV
    drafts: tuple[tuple[ContextStore, ...], ...]
    """The drafter's stores at the end of the prompt and at the end of the answer; empty without a drafter."""
    bytes: int


@dataclass(frozen=True)
class PrefixMatch:
    """What a request may take from an entry."""

    length: int
    """Tokens, at most one fewer than the prompt has: the last one is computed for its logits."""
    entry: PrefixEntry
    stores: tuple[ContextStore, ...]
    """The drafter's stores to copy from."""

    @torch.inference_mode()
    def copy_to(self, kv: TargetKV, draft: DraftKV | None) -> None:
        """Fill a request's new caches with the first ``length`` tokens."""
        kv.copy_from(self.entry.kv, self.length)
        if draft is not None:
            draft.copy_from(self.stores, self.length)


class PrefixCache:
    """Entries in order of use; the longest unused one goes first when there are more than ``max_bytes``. Not thread-safe."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[tuple[int, ...], PrefixEntry] = OrderedDict()
        self.bytes = 0
        """Bytes of all entries."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def enabled(self) -> bool:
        return self._max_bytes > 0

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self.bytes = 0

    @torch.inference_mode()
    def add(self, tokens: Sequence[int], kv: TargetKV, prompt_stores: tuple[ContextStore, ...], draft: DraftKV | None) -> None:
        """Keep a finished request's caches, which nothing else may write to any more.

        ``tokens`` are prompt and answer. They may go beyond the target's cache (the last token is not in it) and end before it
        (a verify can go past the answer's end). ``prompt_stores`` are :meth:`DraftKV.snapshot` at the end of the prompt.
        """
        kept = tuple(tokens[: kv.length])
        kv = kv.trimmed(len(kept))
        drafts = () if draft is None else (prompt_stores, tuple(draft.stores))
        stores = {id(store): store for group in drafts for store in group}
        size = kv.allocated_bytes + sum(store.allocated_bytes for store in stores.values())
        if size > self._max_bytes:
            return
        for other in [other for other in self._entries if kept[: len(other)] == other]:
            self._remove(other)
        self._entries[kept] = PrefixEntry(kept, kv, drafts, size)
        self.bytes += size
        while self.bytes > self._max_bytes:
            self._remove(next(iter(self._entries)))

    def _remove(self, tokens: tuple[int, ...]) -> None:
        self.bytes -= self._entries.pop(tokens).bytes

    def find(self, prompt: Sequence[int], draft: DraftKV | None, others: Sequence[PrefixEntry] = ()) -> PrefixMatch | None:
        """The entry that spares most of ``prompt``, of those kept and ``others``.

        ``draft`` is the request's own empty cache (its limits count).
        """
        best: PrefixMatch | None = None
        for entry in (*self._entries.values(), *others):
            shared = min(shared_length(prompt, entry.tokens), len(prompt) - 1)
            if shared <= (best.length if best else 0):
                continue
            for stores in entry.drafts if draft is not None else ((),):
                length = usable_length(shared, len(prompt), draft, stores)
                if length > (best.length if best else 0):
                    best = PrefixMatch(length, entry, stores)
        if best is not None and self._entries.get(best.entry.tokens) is best.entry:
            self._entries.move_to_end(best.entry.tokens)
        return best


def usable_length(shared: int, prompt: int, draft: DraftKV | None, stores: Sequence[ContextStore]) -> int:
    """How many of ``shared`` tokens can be reused so that the drafter's rings are whole at the end of a prompt of that length."""
    if draft is None:
        return shared
    length = shared
    for own, kept in zip(draft.stores, stores, strict=True):
        needed = 0 if own.limit is None else max(0, prompt - own.limit)
        if kept.seen < length:
            length = kept.seen
        if kept.first > needed:
            # Too much has been overwritten. What is computed anew must then be all that the ring will hold.
            length = min(length, needed)
    return length


def shared_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences have in common at the beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if tuple(one[low:middle]) == tuple(other[low:middle]):
            low = middle
        else:
            high = middle - 1
    return low
