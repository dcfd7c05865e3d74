"""A drafter that knows the answer: it proposes the target's own greedy continuation, as often as it is told to.

A drafter with random weights never gets a token accepted, so accept paths, compaction and windows of a random target would never
be exercised. The table of an oracle holds the greedy continuation of every prompt and, for each place and slot, the rank at
which the true token is proposed (or none). From the same table :func:`simulate` tells how many verifies each answer must take,
so that a tree that is built, masked or walked wrongly shows as a wrong count even where the text is right.

The server finds :func:`propose` through ``DDTREE_PROPOSER=tests.gpu.oracle:propose`` and the table through ``DDTREE_ORACLE``.
Until the file is there, proposals pass unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine_launch.tree import Tree, build, walk
from tests.gpu.client import Prompt

TABLE_VARIABLE = "DDTREE_ORACLE"
RANKS = 16
"""Candidates per slot in a table; a server may use fewer."""
SHARES = (0.72, 0.14, 0.06, 0.03, 0.015, 0.007, 0.003, 0.0015)
"""Probability given to each rank; the ranks after these halve it again and again."""
JITTER = 0.2
"""Spread of the log-probabilities, so that no two paths are equally likely; below the distance between two ranks."""
ABSENT = -1


@dataclass(frozen=True)
class Table:
    """What an oracle proposes. ``R`` answers, ``T`` positions, ``L`` slots, ``K`` ranks."""

    tokens: npt.NDArray[np.int64]
    """``[R, T]``: prompt and greedy continuation, zeros after the end."""
    prompt_lengths: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int64]
    """``[R, T, L]``: rank of the true token at each slot when the anchor stands at the position; :data:`ABSENT` for none."""
    logprobs: npt.NDArray[np.float32]
    """``[R, T, L, K]``, falling along ``K``."""

    def save(self, path: Path) -> None:
        """Write it whole: a server that looks sees the old table or the new one."""
        part = path.with_suffix(".part.npz")
        with part.open("wb") as file:
            np.savez(file, **vars(self))
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Table:
        with np.load(path) as file:
            return cls(**{name: file[name] for name in file.files})

    def prompt(self, row: int) -> Prompt:
        return tuple(self.tokens[row, : self.prompt_lengths[row]].tolist())


def make_table(
    prompts: Sequence[Prompt], answers: Sequence[Sequence[int]], slots: int, hit: float, branch: float = 0.3, seed: int = 0
) -> Table:
    """A table for greedy ``answers``.

    Args:
        slots: drafts a round, the block size without the anchor.
        hit: how often a slot has the true token among its candidates.
        branch: how often a true token that is there stands at rank 1 or 2 instead of 0.
    """
    source = np.random.default_rng(seed)
    rows, longest = len(prompts), max(len(p) + len(a) for p, a in zip(prompts, answers, strict=True))
    tokens = np.zeros((rows, longest), dtype=np.int64)
    for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        tokens[row, : len(prompt) + len(answer)] = (*prompt, *answer)
    places = (rows, longest, slots)
    ranks = np.where(source.random(places) < branch, source.integers(1, 3, places), 0)
    ranks = np.where(source.random(places) < hit, ranks, ABSENT)
    shares = list(SHARES)
    while len(shares) < RANKS:
        shares.append(shares[-1] / 2)
    logprobs = np.log(np.array(shares)) - source.random((*places, RANKS)) * JITTER
    return Table(
        tokens,
        np.array([len(p) for p in prompts], dtype=np.int64),
        np.array([len(p) + len(a) for p, a in zip(prompts, answers, strict=True)], dtype=np.int64),
        ranks.astype(np.int64),
        logprobs.astype(np.float32),
    )


def tuned_table(
    prompts: Sequence[Prompt], answers: Sequence[Sequence[int]], slots: int, commit: float, *, budget: int, topk: int, tokens: int
) -> Table:
    """A table whose hit rate gives the ``commit`` length (tokens a verify) in :func:`simulate`, found by halving.

    Raises:
        ValueError: trees of this budget do not commit so much, however often the oracle is right.
    """
    for branch in (0.3, 0.2, 0.1, 0.0):
        if expected_commit(make_table(prompts, answers, slots, 1.0, branch), budget, topk, tokens) >= commit:
            break
    else:
        raise ValueError(f"budget {budget} and top-k {topk} cannot commit {commit} tokens a verify")
    low, high = 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        table = make_table(prompts, answers, slots, middle, branch)
        if expected_commit(table, budget, topk, tokens) < commit:
            low = middle
        else:
            high = middle
    return make_table(prompts, answers, slots, (low + high) / 2, branch)


def simulate(table: Table, row: int, budget: int, topk: int, tokens: int) -> tuple[int, ...]:
    """Tokens committed by each verify of one answer of ``tokens`` tokens, the last one not cut off at the end."""
    position, made, commits = int(table.prompt_lengths[row]), 1, []
    while made < tokens:
        accepted = _accepted(_ranks_tree(table, row, position, budget, topk), table.ranks[row, position].tolist())
        commits.append(accepted + 1)
        position += accepted + 1
        made += accepted + 1
    return tuple(commits)


def _ranks_tree(table: Table, row: int, position: int, budget: int, topk: int) -> Tree:
    """The tree at a place, its tokens being ranks."""
    logprobs = table.logprobs[row, position, :, :topk].tolist()
    return build([list(range(topk))] * len(logprobs), logprobs, budget)


def _accepted(tree: Tree, ranks: Sequence[int]) -> int:
    """Drafts that a target accepts whose tokens stand at these ranks, slot by slot."""
    after = [*ranks, ABSENT]
    path, _ = walk(tree, lambda node: after[tree.depths[node - 1] if node else 0])
    return len(path) - 1


def expected_commit(table: Table, budget: int, topk: int, tokens: int, rows: int | None = None) -> float:
    """Tokens a verify over the first ``rows`` answers (all, unless given) of ``tokens`` tokens.

    Counted as a server does: what is cut off at the end is not.
    """
    asked = range(len(table.lengths) if rows is None else rows)
    return len(asked) * (tokens - 1) / sum(len(simulate(table, row, budget, topk, tokens)) for row in asked)


class _Request(Protocol):
    """What of SGLang's ``Req`` is read here."""

    origin_input_ids: Sequence[int]


class Oracle:
    """The table on the device, and which row each request is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int] | None = None
        self._rows: dict[Prompt, int] = {}
        self._known: dict[int, tuple[object, int]] = {}
        self._tensors: tuple[Tensor, Tensor, Tensor] | None = None
        self._last: tuple[list[int], Tensor] | None = None

    def propose(self, reqs: Sequence[Any], seq_lens: Tensor, ids: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor]:
        """Replace the drafter's candidates of requests whose prompt is in the table.

        Args:
            seq_lens: ``[B]``, committed tokens, which is where the anchor stands.
            ids: ``[B, L, K]``.
            logprobs: ``[B, L, K]``.
        """
        if not self._load(ids.device) or self._tensors is None:
            return ids, logprobs
        rows = self._rows_of(reqs, ids.device)
        tokens, ranks, scores = self._tensors
        known = (rows >= 0).view(-1, 1, 1)
        row = rows.clamp(min=0)
        slots, candidates = ids.shape[1], ids.shape[2]
        last = tokens.shape[1] - 1
        here = seq_lens.to(torch.int64).clamp(max=last)
        ahead = (here[:, None] + torch.arange(1, slots + 1, device=ids.device)).clamp(max=last)
        truth = tokens[row[:, None], ahead].unsqueeze(-1)
        steps = torch.arange(1, candidates + 1, device=ids.device)
        # Neighbours of the true token, on the side where the vocabulary cannot end.
        wrong = torch.where(truth > RANKS, truth - steps, truth + steps)
        at = ranks[row, here][:, :slots].unsqueeze(-1) == torch.arange(candidates, device=ids.device)
        made = torch.where(at, truth, wrong)
        return (
            torch.where(known, made, ids).to(ids.dtype),
            torch.where(known, scores[row, here][:, :slots, :candidates], logprobs).to(logprobs.dtype),
        )

    def _load(self, device: torch.device) -> bool:
        try:
            status = self.path.stat()
        except OSError:
            return False
        stamp = (status.st_mtime_ns, status.st_size)
        if stamp != self._stamp:
            table = Table.load(self.path)
            self._rows = {table.prompt(row): row for row in range(len(table.lengths))}
            self._tensors = (
                torch.from_numpy(table.tokens).to(device),
                torch.from_numpy(table.ranks).to(device),
                torch.from_numpy(table.logprobs).to(device),
            )
            self._known, self._last, self._stamp = {}, None, stamp
        return True

    def _rows_of(self, reqs: Sequence[_Request], device: torch.device) -> Tensor:
        rows = []
        for req in reqs:
            entry = self._known.get(id(req))
            if entry is None or entry[0] is not req:
                # The request is kept beside its number: as long as it is, no other one can have the same id.
                entry = (req, self._rows.get(tuple(req.origin_input_ids), -1))
                if len(self._known) > 4096:
                    self._known.clear()
                self._known[id(req)] = entry
            rows.append(entry[1])
        if self._last is None or self._last[0] != rows:
            self._last = (rows, torch.tensor(rows, dtype=torch.int64, device=device))
        return self._last[1]


_oracle: Oracle | None = None


def propose(reqs: Sequence[Any], seq_lens: Tensor, ids: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor]:
    """What the server calls; see :meth:`Oracle.propose`. Without ``DDTREE_ORACLE`` nothing is changed."""
    global _oracle
    if _oracle is None:
        path = os.environ.get(TABLE_VARIABLE)
        if path is None:
            return ids, logprobs
        _oracle = Oracle(Path(path))
    return _oracle.propose(reqs, seq_lens, ids, logprobs)
