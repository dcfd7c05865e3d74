"""Token sequences on disk and in batches: shards of uint16 ids, the leak filter, buckets and anchors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine_launch.training.turns import answer_mask

NGRAM = 13
"""A training sequence that shares this many tokens in a row with a held-out prompt is dropped."""
SHARD_TOKENS = 7_000_000
BUCKETS = ((384, 128), (768, 64), (1536, 32), (3072, 16), (6144, 8))
"""Padded length and sequences per batch: the same number of tokens in each."""
ANCHOR_SPACING = 8
"""One anchor per so many tokens of padded length."""
COUNTED_AT_ONCE = 64


@dataclass(frozen=True)
class Record:
    """One sequence: prompt, then answer from ``answer_start`` on."""

    tokens: tuple[int, ...]
    answer_start: int
    kind: int
    temperature: float

    @property
    def answer_tokens(self) -> int:
        return len(self.tokens) - self.answer_start


@dataclass(frozen=True)
class Sequences:
    """Many sequences, back to back."""

    tokens: npt.NDArray[np.uint16]
    lengths: npt.NDArray[np.int64]
    answer_starts: npt.NDArray[np.int64]
    kinds: npt.NDArray[np.uint8]
    temperatures: npt.NDArray[np.float16]

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where each sequence begins in ``tokens``."""
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64)

    def keep(self, wanted: npt.NDArray[np.bool_]) -> Sequences:
        """Only the sequences marked in ``wanted``."""
        return Sequences(
            self.tokens[np.repeat(wanted, self.lengths)],
            self.lengths[wanted],
            self.answer_starts[wanted],
            self.kinds[wanted],
            self.temperatures[wanted],
        )


def to_sequences(records: list[Record]) -> Sequences:
    """Lay records out back to back."""
    return Sequences(
        np.concatenate([np.asarray(r.tokens, dtype=np.uint16) for r in records]),
        np.array([len(r.tokens) for r in records], dtype=np.int64),
        np.array([r.answer_start for r in records], dtype=np.int64),
        np.array([r.kind for r in records], dtype=np.uint8),
        np.array([r.temperature for r in records], dtype=np.float16),
    )


def write_sequences(sequences: Sequences, path: Path) -> None:
    """Write one shard."""
    np.savez(
        path,
        tokens=sequences.tokens,
        lengths=sequences.lengths.astype(np.uint16),
        answer_starts=sequences.answer_starts.astype(np.uint16),
        kinds=sequences.kinds,
        temperatures=sequences.temperatures,
    )


def write_shards(records: list[Record], folder: Path, name: str) -> None:
    """Write ``train-NAME-000.npz``, ``train-NAME-001.npz``, …, each of about :data:`SHARD_TOKENS` tokens (14 MB) at most."""
    first, size, shard = 0, 0, 0
    for i, record in enumerate(records):
        size += len(record.tokens)
        if size >= SHARD_TOKENS or i == len(records) - 1:
            write_sequences(to_sequences(records[first : i + 1]), folder / f"train-{name}-{shard:03}.npz")
            first, size, shard = i + 1, 0, shard + 1


def read_sequences(paths: list[Path]) -> Sequences:
    """Read shards into one; :class:`FileNotFoundError` when there is none, :class:`ValueError` when one is broken."""
    if not paths:
        raise FileNotFoundError("no shards of training text were found; run engine_launch.training.generate first")
    parts = [_read_shard(path) for path in paths]

    def joined(name: str) -> npt.NDArray[np.int64]:
        return np.concatenate([part[name] for part in parts]).astype(np.int64)

    return Sequences(
        np.concatenate([part["tokens"] for part in parts]).astype(np.uint16),
        joined("lengths"),
        joined("answer_starts"),
        joined("kinds").astype(np.uint8),
        np.concatenate([part["temperatures"] for part in parts]).astype(np.float16),
    )


def _read_shard(path: Path) -> dict[str, npt.NDArray[np.generic]]:
    try:
        with path.open("rb") as file, np.load(file) as shard:
            return {name: shard[name] for name in ("tokens", "lengths", "answer_starts", "kinds", "temperatures")}
    except (ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ValueError(f"{path} is no shard of training text, or is cut off ({error}); make it anew") from None


def ngram_hashes(tokens: npt.NDArray[np.uint16], n: int = NGRAM) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of every window of ``n`` tokens, in order; empty when there are fewer."""
    if len(tokens) < n:
        return np.zeros(0, dtype=np.uint64)
    out = np.zeros(len(tokens) - n + 1, dtype=np.uint64)
    for j in range(n):
        out = out * np.uint64(0x9E3779B97F4A7C15) + tokens[j : len(tokens) - n + 1 + j].astype(np.uint64) + np.uint64(1)
    return out


def leaking(sequences: Sequences, held_out: list[tuple[int, ...]]) -> npt.NDArray[np.bool_]:
    """Which sequences share a window of :data:`NGRAM` tokens with any of the ``held_out`` prompts.

    The prompts are to come without the chat template, which every conversation shares.
    """
    hashes = [ngram_hashes(np.asarray(p, dtype=np.uint16)) for p in held_out]
    known = np.unique(np.concatenate(hashes)) if hashes else np.zeros(0, dtype=np.uint64)
    hit = np.isin(ngram_hashes(sequences.tokens), known)
    owner = np.repeat(np.arange(len(sequences.lengths)), sequences.lengths)[: len(hit)]
    # A window that runs over into the next sequence can only match by accident; it costs at most one sequence.
    leaks = np.zeros(len(sequences.lengths), dtype=np.bool_)
    leaks[owner[hit]] = True
    return leaks


@dataclass(frozen=True)
class Batch:
    """``ids [B, S]``, ``anchors [B, N]`` in ascending order, ``valid [B, N]``, ``lengths [B]``, ``answers [B, S]``.

    ``answers`` marks the tokens that the target wrote as an answer; only those are anchors or labels.
    """

    ids: Tensor
    anchors: Tensor
    valid: Tensor
    lengths: Tensor
    answers: Tensor


class BatchStream:
    """Endless batches on one device, each of one bucket, its sequences in a new order each epoch.

    Buckets come by their number of batches, so that every sequence is seen about equally often.
    """

    def __init__(self, sequences: Sequences, device: torch.device, seed: int = 0) -> None:
        self._flat = torch.from_numpy(sequences.tokens.astype(np.int32)).to(device)
        self._lengths = torch.from_numpy(sequences.lengths).to(device)
        self._starts = torch.from_numpy(sequences.answer_starts).to(device)
        self._offsets = torch.from_numpy(sequences.offsets).to(device)
        self._rng = np.random.default_rng(seed)
        self._generator = torch.Generator(device).manual_seed(seed)
        bucket = np.searchsorted([s for s, _ in BUCKETS], sequences.lengths).clip(max=len(BUCKETS) - 1)
        self._members = [np.flatnonzero(bucket == i) for i in range(len(BUCKETS))]
        share = np.array([len(m) / size for m, (_, size) in zip(self._members, BUCKETS, strict=True)])
        self._share = share / share.sum()
        self._orders: list[Iterator[npt.NDArray[np.int64]]] = [self._order(i) for i in range(len(BUCKETS))]

    def _order(self, bucket: int) -> Iterator[npt.NDArray[np.int64]]:
        members, size = self._members[bucket], BUCKETS[bucket][1]
        while True:
            shuffled = self._rng.permutation(members)
            if len(shuffled) < size:
                shuffled = self._rng.choice(members, size)
            for i in range(0, len(shuffled) - size + 1, size):
                yield shuffled[i : i + size]

    def next(self) -> Batch:
        """The next batch."""
        return self.of_bucket(int(self._rng.choice(len(BUCKETS), p=self._share)))

    def answer_tokens(self) -> int:
        """Tokens of answers in all sequences, each counted once."""
        order = self._lengths.argsort()
        total = 0
        for rows in torch.split(order, COUNTED_AT_ONCE):
            total += int(self.gather(rows, int(self._lengths[rows].max()), 1).answers.sum())
        return total

    @property
    def buckets(self) -> list[int]:
        """The buckets that hold sequences."""
        return [i for i, members in enumerate(self._members) if len(members)]

    def of_bucket(self, bucket: int) -> Batch:
        """The next batch of one bucket."""
        rows = torch.from_numpy(next(self._orders[bucket])).to(self._flat.device)
        return self.gather(rows, BUCKETS[bucket][0], BUCKETS[bucket][0] // ANCHOR_SPACING)

    def gather(self, rows: Tensor, width: int, anchors: int) -> Batch:
        """Sequences ``rows`` padded or cut to ``width``, with ``anchors`` random anchors each."""
        lengths = self._lengths[rows].clamp(max=width)
        at = torch.arange(width, device=rows.device)
        inside = at < lengths[:, None]
        ids = torch.where(inside, self._flat[(self._offsets[rows][:, None] + at).clamp(max=len(self._flat) - 1)], 0).long()
        answers = answer_mask(ids, self._starts[rows], lengths)
        # An anchor and the token after it must both belong to the answer.
        usable = answers & torch.cat([answers[:, 1:], torch.zeros_like(answers[:, :1])], dim=1)
        keys = torch.rand(usable.shape, device=rows.device, generator=self._generator).masked_fill(~usable, -1.0)
        best, chosen = keys.topk(anchors, dim=-1)
        chosen = torch.where(best >= 0, chosen, width)
        chosen, _ = chosen.sort(dim=-1)
        valid = chosen < width
        return Batch(ids, chosen.clamp(max=width - 1), valid, lengths, answers)
