"""Trees that stop growing when another node would cost more time than it is likely to bring.

Expected tokens per second of a round are ``(requests + sum of node probabilities) / seconds``. Nodes are added in order of
probability over all requests of the round, since they share one verify pass, until that figure would fall (CaDDTree, arXiv
2606.01813, there for one request).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine_launch.embedded.verify_cost import CostModel
from engine_launch.tree import Growth, Tree


@dataclass(frozen=True)
class Growing:
    """One request whose tree is to be sized: what it may grow from, and its committed tokens."""

    growth: Growth
    context: int


@dataclass(frozen=True)
class Settled:
    """Another request of the same pass, which has its tree already (a plain step is one of no drafts)."""

    tree: Tree
    context: int


def grow_while_it_pays(growing: Sequence[Growing], settled: Sequence[Settled], costs: CostModel, most: int) -> list[Tree]:
    """A tree for each of ``growing``, each of at most ``most`` drafts; there may be none where the drafter is clueless."""
    contexts = [one.context for one in growing]
    widths = [1] * len(growing)
    seconds = costs.round([*widths, *(one.tree.width for one in settled)], [*contexts, *(one.context for one in settled)])
    expected = len(growing) + sum(1 + one.tree.expected_drafts for one in settled)
    rows = len(growing) + sum(one.tree.width for one in settled)
    while True:
        best, index = -math.inf, -1
        for number, one in enumerate(growing):
            logprob = one.growth.next_logprob
            if logprob is not None and logprob > best and widths[number] <= most:
                best, index = logprob, number
        if index < 0:
            break
        more = costs.one_more(rows, contexts[index])
        if math.exp(best) * seconds <= expected * more:
            break
        growing[index].growth.grow()
        widths[index] += 1
        expected += math.exp(best)
        seconds += more
        rows += 1
    return [one.growth.tree() for one in growing]
