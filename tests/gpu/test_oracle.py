"""The oracle proposes what its table says, and the simulation foretells how many verifies that takes."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from engine_launch.tree import Tree, build, walk
from tests.gpu.client import Prompt
from tests.gpu.oracle import ABSENT, RANKS, Oracle, Table, expected_commit, make_table, simulate, tuned_table
from tests.gpu.prompts import random_prompts

SLOTS, VOCABULARY, TOKENS = 7, 300, 60


@dataclass(frozen=True)
class Request:
    origin_input_ids: list[int]


def texts(count: int = 6) -> tuple[list[Prompt], list[Prompt]]:
    prompts = random_prompts(count, VOCABULARY, seed=1)
    answers = random_prompts(count, VOCABULARY, seed=2, shortest=TOKENS + 16, longest=TOKENS + 16)
    return prompts, answers


def token_after(tree: Tree, text: list[int], anchor: int, node: int) -> int:
    """The token that stands in ``text`` after a node of a tree whose root is at ``anchor``."""
    return text[anchor + 1 + (tree.depths[node - 1] if node else 0)]


def decode(oracle: Oracle, table: Table, row: int, budget: int, topk: int) -> list[int]:
    """The commits of one answer, decoded as a server does it: ask, build, walk along the text."""
    request, text = Request(list(table.prompt(row))), table.tokens[row].tolist()
    position, made, commits = int(table.prompt_lengths[row]), 1, []
    while made < TOKENS:
        blank = torch.zeros(1, SLOTS, topk, dtype=torch.int64)
        ids, scores = oracle.propose([request], torch.tensor([position]), blank, blank.float())
        tree = build(ids[0].tolist(), scores[0].tolist(), budget)
        path, _ = walk(tree, functools.partial(token_after, tree, text, position))
        commits.append(len(path))
        position, made = position + len(path), made + len(path)
    return commits


@pytest.mark.parametrize(("budget", "topk"), [(16, 4), (7, 1), (1, 8), (32, 8)])
def test_an_answer_takes_the_verifies_that_the_simulation_foretells(tmp_path: Path, budget: int, topk: int) -> None:
    table = make_table(*texts(), SLOTS, hit=0.85)
    table.save(tmp_path / "table.npz")
    oracle = Oracle(tmp_path / "table.npz")
    for row in range(len(table.lengths)):
        assert decode(oracle, table, row, budget, topk) == list(simulate(table, row, budget, topk, TOKENS))


@pytest.mark.parametrize("commit", [1.5, 3.0, 5.0])
def test_a_table_is_tuned_to_a_commit_length(commit: float) -> None:
    table = tuned_table(*texts(12), SLOTS, commit, budget=16, topk=4, tokens=TOKENS)
    assert expected_commit(table, 16, 4, TOKENS) == pytest.approx(commit, rel=0.08)


def test_no_other_candidate_is_the_true_token_or_outside_the_vocabulary(tmp_path: Path) -> None:
    prompts, answers = texts()
    table = make_table(prompts, answers, SLOTS, hit=0.0)
    assert (table.ranks == ABSENT).all()
    table.save(tmp_path / "table.npz")
    blank = torch.zeros(1, SLOTS, RANKS, dtype=torch.int64)
    ids, scores = Oracle(tmp_path / "table.npz").propose(
        [Request(list(prompts[0]))], torch.tensor([len(prompts[0])]), blank, blank.float()
    )
    truth = torch.tensor(answers[0][1 : 1 + SLOTS])
    assert not (ids[0] == truth[:, None]).any()
    assert all(len(set(row)) == RANKS for row in ids[0].tolist())
    assert int(ids.min()) >= 0
    assert int(ids.max()) < VOCABULARY + RANKS
    assert (scores.diff(dim=-1) < 0).all()


def test_requests_that_it_does_not_know_keep_their_drafts(tmp_path: Path) -> None:
    prompts, answers = texts()
    make_table(prompts, answers, SLOTS, hit=1.0).save(tmp_path / "table.npz")
    given = torch.arange(2 * SLOTS * 4).view(2, SLOTS, 4)
    reqs = [Request([1, 2, 3]), Request(list(prompts[0]))]
    ids, scores = Oracle(tmp_path / "table.npz").propose(reqs, torch.tensor([3, len(prompts[0])]), given, given.float())
    assert torch.equal(ids[0], given[0])
    assert torch.equal(scores[0], given[0].float())
    assert not torch.equal(ids[1], given[1])


def test_without_a_table_nothing_changes_and_a_new_table_is_taken_up(tmp_path: Path) -> None:
    prompts, answers = texts()
    path = tmp_path / "table.npz"
    oracle = Oracle(path)
    given = torch.zeros(1, SLOTS, 4, dtype=torch.int64)

    def asked() -> torch.Tensor:
        return oracle.propose([Request(list(prompts[0]))], torch.tensor([len(prompts[0])]), given, given.float())[0]

    assert torch.equal(asked(), given)
    make_table(prompts, answers, SLOTS, hit=1.0, branch=0.0).save(path)
    assert asked()[0, :, 0].tolist() == list(answers[0][1 : 1 + SLOTS])
    make_table(prompts, [answer[::-1] for answer in answers], SLOTS, hit=1.0, branch=0.0).save(path)
    os.utime(path, ns=(1, 1))
    assert asked()[0, :, 0].tolist() == list(answers[0][::-1][1 : 1 + SLOTS])
