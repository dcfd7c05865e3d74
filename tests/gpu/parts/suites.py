"""Commit length by suite: stock DFLASH and the tree with the packaged drafter, answers ended where the model ends them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.gpu.client import Answer, Client, Prompt, commit_length
from tests.gpu.context import Context, Findings, Part
from tests.gpu.records import Check, Json, shown

TOKENS = 256
"""The most of an answer, as in the evaluation of the drafter."""
AT_ONCE = 16
SEVERAL_TURNS = "conversation"
"""A set left out: its prompts lack the answers of earlier turns."""


def _answers(client: Client, prompts: Sequence[Prompt]) -> list[Answer]:
    return client.generate_all(prompts, TOKENS, AT_ONCE, {"temperature": 0.0, "ignore_eos": False})


def _accepted(answers: Sequence[Answer]) -> list[int]:
    """Index: accepted drafts of a verify; value: how often, over all answers."""
    width = max((len(answer.histogram) for answer in answers), default=0)
    return [sum(answer.histogram[index] for answer in answers if index < len(answer.histogram)) for index in range(width)]


def run(context: Context) -> Findings:
    chain, tree = context.client("chain16"), context.client("tree16")
    tree.set_state(speculation=1, speculative_ddtree_budget=16, speculative_ddtree_topk=4)
    sets = json.loads((context.store / "prompts.json").read_text(encoding="utf-8"))
    sets.pop(SEVERAL_TURNS, None)
    checks: list[Check] = []
    data: dict[str, Json] = {}
    for name, rows in sets.items():
        prompts = [tuple(row) for row in rows][: context.share_of(len(rows), 2)]
        with ThreadPoolExecutor(2) as pool:
            both = list(pool.map(lambda client: _answers(client, prompts), (chain, tree)))  # noqa: B023 - used up in this turn
        line, wide = map(commit_length, both)
        tokens = sum(len(answer.ids) for answer in both[0])
        said = f"stock DFLASH {line:.3f}, tree {wide:.3f} ({len(prompts)} prompts, {tokens} tokens)"
        checks.append(shown(f"commit length, {name}, temperature 0, chain and budget 16, top-k 4", said))
        data[name] = {"prompts": len(prompts), "tokens": tokens}
        for kind, answers in zip(("chain", "tree"), both, strict=True):
            data[f"{name} {kind}"] = {"commit_length": round(commit_length(answers), 4), "accepted": _accepted(answers)}
    return Findings(checks, data)


SUITES = Part("suites", "commit length of stock DFLASH and of the tree by suite", ("chain16", "tree16"), run)
