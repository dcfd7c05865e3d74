"""The commit length of a drafter on recorded greedy answers, in one parallel pass.

Greedy chain decoding never leaves the target's own greedy text. So the rounds of a real run can be read off the recorded
text: draft a block at every position at once, count how many drafts match what follows, then walk from the first answer
token, jumping by the commit length. It equals a real decode loop (up to the arithmetic's rounding) and costs seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine_launch.training.dataset import BatchStream, Sequences
from engine_launch.training.drafter import Drafter
from engine_launch.training.target import TargetForward

TOKENS_PER_PASS = 6144
WIDTH_STEP = 64
ANCHOR_STEP = 8
"""Widths and anchors are rounded up to these, which the fast attention kernels want of a mask's size."""
HEAD_ROWS = 8192
"""Rows whose logits are held at once."""


@dataclass(frozen=True)
class ChainResult:
    """Rounds of chain decoding over a set of prompts."""

    histogram: tuple[int, ...]
    """Index = accepted drafts of a round, value = rounds."""

    @classmethod
    def of(cls, drafter: Drafter, accepted: Iterable[int]) -> ChainResult:
        """The result of rounds with so many ``accepted`` drafts each."""
        counts = Counter(accepted)
        return cls(tuple(counts[i] for i in range(drafter.shape.block)))

    @property
    def rounds(self) -> int:
        return sum(self.histogram)

    @property
    def commit_length(self) -> float:
        """Mean tokens per round: accepted drafts + 1."""
        return sum((i + 1) * n for i, n in enumerate(self.histogram)) / max(self.rounds, 1)


@torch.no_grad()
def accepted_everywhere(drafter: Drafter, forward: TargetForward, ids: Tensor, anchors: Tensor, lengths: Tensor) -> Tensor:
    """Accepted drafts ``[B, N]`` of a chain anchored at each of ``anchors [B, N]``, against the tokens that follow."""
    block, head = drafter.shape.block, forward.target.embedding
    after = anchors[:, :, None] + torch.arange(1, block, device=ids.device)
    truth = ids.gather(1, after.clamp(max=ids.shape[1] - 1).flatten(1)).view(after.shape)
    truth = truth.masked_fill(after >= lengths[:, None, None], -1)
    block_ids = torch.full((*anchors.shape, block), drafter.shape.mask_token, device=ids.device)
    block_ids[:, :, 0] = ids.gather(1, anchors)
    with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=ids.is_cuda):
        hidden = drafter.blocks(F.embedding(block_ids, head), forward.features(ids), anchors)[:, :, 1:]
        rows = hidden.reshape(-1, hidden.shape[-1]).to(head.dtype)
        chunks = [rows[i : i + HEAD_ROWS] for i in range(0, len(rows), HEAD_ROWS)]
        drafts = torch.cat([(chunk @ head.t()).argmax(-1) for chunk in chunks]).view(truth.shape)
    return (drafts == truth).int().cumprod(-1).sum(-1)


def rounds(drafter: Drafter, forward: TargetForward, answers: Sequences) -> Iterator[tuple[int, int]]:
    """The rounds on recorded greedy ``answers``: anchor's position and accepted drafts.

    Rounds whose block would run past the end of an answer are left out.
    """
    device = forward.target.embedding.device
    stream = BatchStream(answers, device)
    for rows in passes(answers.lengths.tolist()):
        at = torch.tensor(rows, device=device)
        width = -(-max(int(answers.lengths[i]) for i in rows) // WIDTH_STEP) * WIDTH_STEP
        batch = stream.gather(at, width, 1)
        starts = torch.from_numpy(answers.answer_starts).to(device)[at]
        reach = -(-int((batch.lengths - starts).max()) // ANCHOR_STEP) * ANCHOR_STEP
        anchors = (starts[:, None] + torch.arange(reach, device=device)).clamp(max=width - 1)
        accepted = accepted_everywhere(drafter, forward, batch.ids, anchors, batch.lengths).tolist()
        for got, length, start in zip(accepted, batch.lengths.tolist(), starts.tolist(), strict=True):
            step = 0
            while start + step + drafter.shape.block <= length:
                yield start + step, got[step]
                step += got[step] + 1


def passes(lengths: list[int]) -> Iterator[list[int]]:
    """Indices of sequences to run together: of similar length, and at most :data:`TOKENS_PER_PASS` padded tokens."""
    rows: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if rows and (len(rows) + 1) * lengths[i] > TOKENS_PER_PASS:
            yield rows
            rows = []
        rows.append(i)
    if rows:
        yield rows


def replay(drafter: Drafter, forward: TargetForward, answers: Sequences) -> ChainResult:
    """Walk the recorded greedy ``answers`` in rounds. Rounds whose block would run past the end are not counted."""
    return ChainResult.of(drafter, [accepted for _, accepted in rounds(drafter, forward, answers)])


def by_context(drafter: Drafter, found: Iterable[tuple[int, int]], bounds: tuple[int, ...]) -> list[ChainResult]:
    """Rounds by the tokens before their anchor: fewer than ``bounds[0]``, fewer than ``bounds[1]``, …, the rest."""
    groups: list[list[int]] = [[] for _ in range(len(bounds) + 1)]
    for position, accepted in found:
        groups[bisect_right(bounds, position)].append(accepted)
    return [ChainResult.of(drafter, group) for group in groups]
