"""What is measured of a drafter: every combination of held-out set, temperature, windows, chain and trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from engine_launch.training.dataset import Sequences
from engine_launch.training.drafter import Drafter
from engine_launch.training.heldout import HeldOutSet
from engine_launch.training.replay import CommitCounts, Drafts, Windows, by_context, draft_by_windows
from engine_launch.training.target import TargetForward

CONTEXT_BOUNDS = (256, 512, 1024, 2048, 4096)
"""Tokens before a round's anchor by which rounds are told apart."""


@dataclass(frozen=True)
class Tree:
    """A tree's size; a chain is ``None`` wherever one of these is meant."""

    budget: int
    topk: int


@dataclass(frozen=True)
class Key:
    """What a measurement is of."""

    held_out: HeldOutSet
    temperature: float
    windows: Windows
    tree: Tree | None


@dataclass(frozen=True)
class Measured:
    """The rounds of one combination."""

    whole: CommitCounts
    by_context: tuple[CommitCounts, ...]
    """By :data:`CONTEXT_BOUNDS`."""


Measures = dict[Key, Measured]


@dataclass(frozen=True)
class Wanted:
    """Which combinations. Trees are measured in every budget and top-k with the windows as trained, and in :attr:`usual`
    wherever else; windows at the first temperature only."""

    budgets: tuple[int, ...]
    topks: tuple[int, ...]
    windows: tuple[Windows, ...]
    """Besides those as trained."""
    usual: Tree

    @property
    def trees(self) -> tuple[Tree, ...]:
        """All trees of the windows as trained."""
        return tuple(
            Tree(b, k) for k in sorted({*self.topks, self.usual.topk}) for b in sorted({*self.budgets, self.usual.budget})
        )


def measure(
    drafter: Drafter,
    forward: TargetForward,
    name: HeldOutSet,
    temperature: float,
    answers: Sequences,
    wanted: Wanted,
    first: bool,
) -> Iterator[tuple[Key, Measured]]:
    """Everything that is ``wanted`` of one set's answers at one temperature, the ``first`` of them or another one."""
    trained = Windows.trained(drafter)
    longest = int(answers.lengths.max())
    asked = (trained, *(wanted.windows if first else ()))
    # Windows that a set's texts never reach are all the same to it, and drafted once.
    distinct = tuple(dict.fromkeys(windows.within(longest) for windows in asked))
    topk = max(tree.topk for tree in wanted.trees)
    drafts = dict(zip(distinct, draft_by_windows(drafter, forward, answers, topk, distinct), strict=True))
    known = {
        windows: dict(_rounds(drafter, drafts[windows], wanted.trees if windows == trained.within(longest) else (wanted.usual,)))
        for windows in distinct
    }
    for windows in dict.fromkeys(asked):
        for tree, measured in known[windows.within(longest)].items():
            if windows == trained or tree in (None, wanted.usual):
                yield Key(name, temperature, windows, tree), measured


def _rounds(drafter: Drafter, drafts: Drafts, trees: tuple[Tree, ...]) -> Iterator[tuple[Tree | None, Measured]]:
    accepted: dict[Tree | None, Tensor] = {None: drafts.of_chain()}
    for topk in {tree.topk for tree in trees}:
        budgets = [tree.budget for tree in trees if tree.topk == topk]
        accepted |= {Tree(b, topk): counts for b, counts in drafts.of_trees(budgets, topk).items()}
    for tree, counts in accepted.items():
        found = list(drafts.walk(counts))
        parts = tuple(by_context(drafter, found, CONTEXT_BOUNDS))
        yield tree, Measured(CommitCounts.of(drafter, (n for _, n in found)), parts)
