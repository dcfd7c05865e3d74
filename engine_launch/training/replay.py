"""The commit length of a drafter on recorded greedy answers, in one parallel pass.

Greedy chain decoding never leaves the target's own greedy text. So the rounds of a real run can be read off the recorded
text: draft a block at every position at once, count how many drafts match what follows, then walk from the first answer
token, jumping by the commit length. It equals a real decode loop (up to the arithmetic's rounding) and costs seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine_launch.training.dataset import BatchStream, Sequences
from engine_launch.training.drafter import Drafter
from engine_launch.training.target import TargetForward

WIDTH = 768
SEQUENCES_PER_PASS = 8
HEAD_ROWS = 8192
"""Rows whose logits are held at once."""


@dataclass(frozen=True)
class ChainResult:
    """Rounds of chain decoding over a set of prompts."""

    histogram: tuple[int, ...]
    """Index = accepted drafts of a round, value = rounds."""

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


def replay(drafter: Drafter, forward: TargetForward, answers: Sequences) -> ChainResult:
    """Walk the recorded greedy ``answers`` in rounds. Rounds whose block would run past the end are not counted."""
    device = forward.target.embedding.device
    stream = BatchStream(answers, device)
    histogram = [0] * drafter.shape.block
    order = range(len(answers.lengths))
    for first in range(0, len(order), SEQUENCES_PER_PASS):
        rows = torch.tensor(list(order[first : first + SEQUENCES_PER_PASS]), device=device)
        batch = stream.gather(rows, WIDTH, 1)
        starts = torch.from_numpy(answers.answer_starts).to(device)[rows]
        reach = int((batch.lengths - starts).max())
        anchors = (starts[:, None] + torch.arange(reach, device=device)).clamp(max=WIDTH - 1)
        accepted = accepted_everywhere(drafter, forward, batch.ids, anchors, batch.lengths).tolist()
        for got, length, start in zip(accepted, batch.lengths.tolist(), starts.tolist(), strict=True):
            at = 0
            while start + at + drafter.shape.block <= length:
                histogram[got[at]] += 1
                at += got[at] + 1
    return ChainResult(tuple(histogram))
