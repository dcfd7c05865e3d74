"""DDTree: the tree of draft tokens that is most likely under the drafter's per-position distributions.

DFlash gives one distribution per position of the block, not conditioned on the path, so the probability of a path is taken to
be the product of its tokens' probabilities. The expected number of accepted drafts of a tree is then the sum of its nodes'
path probabilities, and the best tree of ``budget`` nodes is the ``budget`` most probable prefixes (arXiv 2604.12989). A prefix
is never more probable than its parent, so best-first search finds exactly these, parents first.

Nodes are numbered from the root, which is node 0 and holds the newest emitted token; lists about *drafts* leave it out, so
entry ``i - 1`` belongs to node ``i``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tree:
    """Draft nodes in an order in which parents precede their children."""

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    """Node number of each draft's parent; 0 is the root."""
    depths: tuple[int, ...]
    """1 for children of the root."""
    logprobs: tuple[float, ...]
    """Log-probability of the path to each draft under the drafter."""

    @property
    def nodes(self) -> int:
        """Number of drafts (root not counted)."""
        return len(self.tokens)

    @property
    def width(self) -> int:
        """Rows of the verify pass: drafts and root."""
        return len(self.tokens) + 1

    @property
    def is_chain(self) -> bool:
        """Whether every node's parent is the node before it: then causal attention is all that is needed."""
        return all(parent == index for index, parent in enumerate(self.parents))

    @property
    def expected_drafts(self) -> float:
        """Expected accepted drafts, if the drafter's distributions were the target's."""
        return float(torch.tensor(self.logprobs, dtype=torch.float64).exp().sum()) if self.logprobs else 0.0


ROOT_ONLY = Tree((), (), (), ())
"""Nothing proposed: verifying it is one plain decoding step."""


def chain(tokens: Sequence[int], logprobs: Sequence[float]) -> Tree:
    """The drafts one after another; ``logprobs`` are those of each single token."""
    total, paths = 0.0, []
    for logprob in logprobs:
        total += logprob
        paths.append(total)
    count = len(tokens)
    return Tree(tuple(tokens), tuple(range(count)), tuple(range(1, count + 1)), tuple(paths))


def top_candidates(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` best tokens per position: ids and log-probabilities, ``[..., L, k]`` from ``[..., L, V]``, best first.

    The log-probabilities are normalised over the whole vocabulary, at draft temperature 1.
    """
    values, ids = logits.float().topk(min(k, logits.shape[-1]), dim=-1)
    return ids, values - logits.float().logsumexp(dim=-1, keepdim=True)


class Growth:
    """A tree that grows by its most probable missing prefix, one node at a time.

    ``ids`` and ``logprobs`` are ``[L, K]``, best first in each row (as :func:`top_candidates` gives them). Ties are broken by
    the ranks along the path, so that equal inputs give equal trees.
    """

    def __init__(self, ids: Sequence[Sequence[int]], logprobs: Sequence[Sequence[float]]) -> None:
        self._ids = ids
        self._logprobs = logprobs
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._depths: list[int] = []
        self._scores: list[float] = []
        # (-score, ranks along the path, parent node, score of the parent)
        self._heap: list[tuple[float, tuple[int, ...], int, float]] = []
        if ids:
            self._heap.append((-logprobs[0][0], (0,), 0, 0.0))

    @property
    def next_logprob(self) -> float | None:
        """Log-probability of the node that :meth:`grow` would add: never more than that of the one before. ``None`` = no more."""
        return -self._heap[0][0] if self._heap else None

    def grow(self) -> None:
        """Add the most probable prefix that is not in the tree yet."""
        negative, ranks, parent, base = heapq.heappop(self._heap)
        depth, rank, score = len(ranks), ranks[-1], -negative
        self._tokens.append(self._ids[depth - 1][rank])
        self._parents.append(parent)
        self._depths.append(depth)
        self._scores.append(score)
        node = len(self._tokens)
        if rank + 1 < len(self._ids[depth - 1]):
            sibling = base + self._logprobs[depth - 1][rank + 1]
            heapq.heappush(self._heap, (-sibling, (*ranks[:-1], rank + 1), parent, base))
        if depth < len(self._ids):
            heapq.heappush(self._heap, (-(score + self._logprobs[depth][0]), (*ranks, 0), node, score))

    def tree(self) -> Tree:
        """What has grown so far."""
        return Tree(tuple(self._tokens), tuple(self._parents), tuple(self._depths), tuple(self._scores))


def build(ids: Sequence[Sequence[int]], logprobs: Sequence[Sequence[float]], budget: int) -> Tree:
    """Best-first tree of at most ``budget`` drafts (see :class:`Growth`).

    The tree is smaller than the budget only when all ``K + K² + … + K^L`` prefixes are in it.
    """
    growth = Growth(ids, logprobs)
    for _ in range(budget):
        if growth.next_logprob is None:
            break
        growth.grow()
    return growth.tree()


def visibility(tree: Tree) -> Tensor:
    """``[width, width]`` bool, True = may attend: each row sees the root, its ancestors and itself."""
    width = tree.width
    rows = [[False] * width for _ in range(width)]
    rows[0][0] = True
    for node, parent in enumerate(tree.parents, start=1):
        row = rows[parent].copy()
        row[node] = True
        rows[node] = row
    return torch.tensor(rows, dtype=torch.bool)


def positions(tree: Tree, start: int) -> list[int]:
    """Absolute positions of root and drafts: nodes of one depth share a position."""
    return [start, *(start + depth for depth in tree.depths)]


def walk(tree: Tree, choose: Callable[[int], int]) -> tuple[tuple[int, ...], int]:
    """Follow the target through the tree.

    ``choose(node)`` is the target's token after that node; it is asked once per node on the way, in order. Returns the
    accepted path (node numbers, root included: its length is the commit length) and the bonus token after it.
    """
    children: dict[tuple[int, int], int] = {}
    for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens, strict=True), start=1):
        children[parent, token] = node
    path = [0]
    while True:
        token = choose(path[-1])
        child = children.get((path[-1], token))
        if child is None:
            return tuple(path), token
        path.append(child)
