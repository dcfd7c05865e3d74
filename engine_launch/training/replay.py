"""The commit length of a drafter on recorded answers, for chains and trees, in one parallel pass.

Whatever is drafted, the verify takes the target's own token at each node and goes on where the draft holds it; so the text that
comes out is the target's, and a round's commits are the longest beginning of it that the draft held, and the bonus token. The
rounds of a real run can therefore be read off the recorded text: draft a block at every position at once, see how much of what
follows a chain or a tree would have held, then walk from the first answer token, jumping by the commit length. It equals a real
decode loop (up to the arithmetic's rounding) and costs seconds.

The same holds at a temperature. There the verify *draws* the target's token at a node, from the target's distribution given
the path to it. Nothing of the draft enters into the draw; it only decides how many draws one round can make. So a text that was
sampled plainly is distributed as one that came out of drafting and verifying, and its rounds are read off in the same way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from engine_launch.embedded.vocabulary import best_candidates
from engine_launch.training.dataset import BatchStream, Sequences
from engine_launch.training.drafter import Drafter, Mask
from engine_launch.training.masks import dense_mask
from engine_launch.training.target import TargetForward
from engine_launch.training.tree_order import nodes_needed

TOKENS_PER_PASS = 6144
WIDTH_STEP = 64
ANCHOR_STEP = 8
"""Widths and anchors are rounded up to these, which the fast attention kernels want of a mask's size."""
HEAD_ROWS = 4096
"""Rows whose logits are held at once."""


@dataclass(frozen=True)
class CommitCounts:
    """Rounds of decoding over a set of prompts."""

    histogram: tuple[int, ...]
    """Index = accepted drafts of a round, value = rounds."""

    @classmethod
    def of(cls, drafter: Drafter, accepted: Iterable[int]) -> CommitCounts:
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

    @property
    def by_slot(self) -> tuple[float, ...]:
        """The share of rounds that accepted the draft in slot 1, 2, … (and so all before it)."""
        return tuple(sum(self.histogram[slot:]) / max(self.rounds, 1) for slot in range(1, len(self.histogram)))


@dataclass(frozen=True)
class Windows:
    """What bounds the drafter's look back, in tokens; ``None`` = nothing does."""

    layers: int | None
    """Window of the sliding layers. Without it they stay causal in the block."""
    compact: int | None = None
    """Compact draft cache: committed tokens that the drafter is given, in every layer."""

    @classmethod
    def trained(cls, drafter: Drafter) -> Windows:
        """The layers' own window, and no compact cache."""
        return cls(drafter.shape.window)

    def within(self, tokens: int) -> Windows:
        """The same without the bounds that sequences of at most ``tokens`` tokens never reach."""
        layers = None if self.layers is not None and self.layers >= tokens else self.layers
        return Windows(layers, None if self.compact is not None and self.compact >= tokens else self.compact)

    def masks(self, drafter: Drafter, anchors: Tensor, context: int) -> dict[bool, Mask]:
        """The masks of sliding (True) and full layers, for :meth:`Drafter.blocks`."""
        # A window beyond the sequence: no bound, and causal in the block as sliding layers are.
        layers = context + drafter.shape.block if self.layers is None else self.layers
        return {s: dense_mask(anchors, context, drafter.shape.block, layers if s else None, self.compact) for s in (False, True)}


@dataclass(frozen=True)
class Drafts:
    """What the drafter proposes at each of ``P`` positions of recorded answers, one answer after the other, in order."""

    firsts: tuple[int, ...]
    """Per answer: the position in its sequence of its first token, where the first round begins."""
    counts: tuple[int, ...]
    """Per answer: positions from there whose whole block lies in the answer; may be 0."""
    logprobs: Tensor
    """``[P, b - 1, K]``: of the candidates, best first."""
    ranks: Tensor
    """``[P, b - 1]``: the place of the text's token among the candidates; ``K`` where it is none of them."""

    def of_chain(self) -> Tensor:
        """Drafts that a chain begun at each position has accepted, ``[P]``."""
        return (self.ranks == 0).int().cumprod(-1).sum(-1)

    def of_trees(self, budgets: Iterable[int], topk: int) -> dict[int, Tensor]:
        """The same for the tree of each budget, over the ``topk`` best candidates of each slot.

        Raises:
            ValueError: there are not so many candidates.
        """
        wanted = sorted(budgets)
        if topk > self.logprobs.shape[-1]:
            raise ValueError(f"trees of top-k {topk} cannot be replayed from {self.logprobs.shape[-1]} candidates a slot")
        needed = nodes_needed(self.logprobs[..., :topk], self.ranks, wanted[-1])
        return {budget: (needed <= budget).sum(-1) for budget in wanted}

    def walk(self, accepted: Tensor) -> Iterator[tuple[int, int]]:
        """The rounds with ``accepted [P]`` drafts at each position: anchor's position in its sequence, accepted drafts."""
        values, begin = accepted.tolist(), 0
        for first, count in zip(self.firsts, self.counts, strict=True):
            step = 0
            while step < count:
                got = values[begin + step]
                yield first + step, got
                step += got + 1
            begin += count


def draft_everywhere(
    drafter: Drafter, forward: TargetForward, answers: Sequences, topk: int = 1, windows: Windows | None = None
) -> Drafts:
    """Draft at every position of recorded ``answers``, with ``topk`` candidates a slot; the layers' own window by default.

    Rounds whose block would run past the end of an answer are left out.
    """
    return draft_by_windows(drafter, forward, answers, topk, (windows or Windows.trained(drafter),))[0]


@torch.no_grad()
def draft_by_windows(
    drafter: Drafter, forward: TargetForward, answers: Sequences, topk: int, windows: tuple[Windows, ...]
) -> list[Drafts]:
    """The same for each of ``windows``, the target being run once for all."""
    device, block = forward.target.embedding.device, drafter.shape.block
    stream = BatchStream(answers, device)
    firsts: list[int] = []
    counts: list[int] = []
    logprobs: list[list[Tensor]] = [[] for _ in windows]
    ranks: list[list[Tensor]] = [[] for _ in windows]
    for rows in passes(answers.lengths.tolist()):
        at = torch.tensor(rows, device=device)
        width = -(-max(int(answers.lengths[i]) for i in rows) // WIDTH_STEP) * WIDTH_STEP
        batch = stream.gather(at, width, 1)
        starts = torch.from_numpy(answers.answer_starts).to(device)[at]
        number = (batch.lengths - starts - block + 1).clamp(min=0)
        reach = max(-(-int(number.max()) // ANCHOR_STEP), 1) * ANCHOR_STEP
        steps = torch.arange(reach, device=device)
        anchors, used = (starts[:, None] + steps).clamp(max=width - 1), steps < number[:, None]
        after = (anchors[:, :, None] + torch.arange(1, block, device=device)).clamp(max=width - 1)
        text = batch.ids.gather(1, after.flatten(1)).view(after.shape)[used]
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=batch.ids.is_cuda):
            features = forward.features(batch.ids)
            for i, one in enumerate(windows):
                hidden = drafted(drafter, forward.target.embedding, features, batch.ids, anchors, one)[used]
                for values, places in candidates(hidden, forward.target.embedding, text, topk):
                    logprobs[i].append(values)
                    ranks[i].append(places)
        firsts += starts.tolist()
        counts += number.tolist()
    return [Drafts(tuple(firsts), tuple(counts), torch.cat(p), torch.cat(r)) for p, r in zip(logprobs, ranks, strict=True)]


def drafted(drafter: Drafter, head: Tensor, features: Tensor, ids: Tensor, anchors: Tensor, windows: Windows) -> Tensor:
    """Hidden states ``[B, N, b - 1, hidden]`` of the drafts after each of ``anchors [B, N]``."""
    block_ids = torch.full((*anchors.shape, drafter.shape.block), drafter.shape.mask_token, device=ids.device)
    block_ids[:, :, 0] = ids.gather(1, anchors)
    masks = windows.masks(drafter, anchors, ids.shape[1])
    return drafter.blocks(F.embedding(block_ids, head), features, anchors, masks)[:, :, 1:].to(head.dtype)


def candidates(hidden: Tensor, head: Tensor, text: Tensor, topk: int) -> Iterator[tuple[Tensor, Tensor]]:
    """In parts: candidates' log-probabilities for ``hidden [P, b - 1, H]``, and the text's token's place among them."""
    at_once = HEAD_ROWS // text.shape[-1]
    for rows, truth in zip(torch.split(hidden, at_once), torch.split(text, at_once), strict=True):
        ids, values = best_candidates(rows @ head.t(), topk)
        # Candidates are all different: where one is the text's token, the maximum of the hits is its place.
        hits = (ids == truth[..., None]).int()
        yield values, torch.where(hits.any(-1), hits.argmax(-1), ids.shape[-1])


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


def rounds(drafter: Drafter, forward: TargetForward, answers: Sequences) -> Iterator[tuple[int, int]]:
    """The rounds of a chain on recorded ``answers``: anchor's position and accepted drafts."""
    drafts = draft_everywhere(drafter, forward, answers)
    return drafts.walk(drafts.of_chain())


def replay(drafter: Drafter, forward: TargetForward, answers: Sequences) -> CommitCounts:
    """A chain on recorded ``answers``."""
    return CommitCounts.of(drafter, [accepted for _, accepted in rounds(drafter, forward, answers)])


def replay_trees(
    drafter: Drafter, forward: TargetForward, answers: Sequences, budgets: Iterable[int], topk: int
) -> dict[int, CommitCounts]:
    """Trees of several budgets on recorded ``answers``, from one pass of the drafter."""
    drafts = draft_everywhere(drafter, forward, answers, topk)
    trees = drafts.of_trees(budgets, topk)
    return {budget: CommitCounts.of(drafter, [n for _, n in drafts.walk(accepted)]) for budget, accepted in trees.items()}


def tree_commit_length(drafter: Drafter, forward: TargetForward, answers: Sequences, budget: int = 16, topk: int = 8) -> float:
    """Mean tokens per round of trees of one budget on recorded ``answers``."""
    return replay_trees(drafter, forward, answers, (budget,), topk)[budget].commit_length


def by_context(drafter: Drafter, found: Iterable[tuple[int, int]], bounds: tuple[int, ...]) -> list[CommitCounts]:
    """Rounds by the tokens before their anchor: fewer than ``bounds[0]``, fewer than ``bounds[1]``, …, the rest."""
    groups: list[list[int]] = [[] for _ in range(len(bounds) + 1)]
    for position, accepted in found:
        groups[bisect_right(bounds, position)].append(accepted)
    return [CommitCounts.of(drafter, group) for group in groups]
