"""Greedy answers of trees against plain decoding, token for token, over a grid of settings changed while running."""

from __future__ import annotations

from collections.abc import Sequence

from tests.gpu.client import Answer, Client, Prompt, commit_length
from tests.gpu.context import Context, Findings, Part
from tests.gpu.prompts import held_out
from tests.gpu.records import Check, Json, judged, shown
from tests.gpu.setups import BUDGETS, TOPKS

TREE, PLAIN = "tree32", "plain32"
EQUAL = "equal, 100 %"


def differing(expected: Sequence[Answer], got: Sequence[Answer]) -> list[tuple[int, int]]:
    """(answer, first token that differs), for those that are not the same."""
    found = []
    for number, (a, b) in enumerate(zip(expected, got, strict=True)):
        if a.ids != b.ids:
            same = next(
                (i for i, pair in enumerate(zip(a.ids, b.ids, strict=False)) if pair[0] != pair[1]), min(len(a.ids), len(b.ids))
            )
            found.append((number, same))
    return found


def margins(client: Client, prompts: Sequence[Prompt], plain: Sequence[Answer], places: Sequence[tuple[int, int]]) -> list[float]:
    """How far the best token is ahead of the second where answers part, in nats (below 1e-3: a tie that rounding decides)."""
    found = []
    for number, at in places[:8]:
        prompt = (*prompts[number], *plain[number].ids[:at])
        body = client.post(
            "/generate",
            {
                "input_ids": list(prompt),
                "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
                "return_logprob": True,
                "top_logprobs_num": 2,
            },
        )
        best, second = body["meta_info"]["output_top_logprobs"][0][:2]
        found.append(float(best[0]) - float(second[0]))
    return found


def grid(context: Context, prompts: Sequence[Prompt], tokens: int, at_once: int) -> tuple[list[Check], dict[str, Json]]:
    """Every budget with every top-k against plain decoding at the same batch size."""
    tree, plain_client = context.client(TREE), context.client(PLAIN)
    plain = plain_client.generate_all(prompts, tokens, at_once)
    tree.set_state(speculation=0)
    in_place = tree.generate_all(prompts, tokens, at_once)
    tree.set_state(speculation=1)
    cells: list[dict[str, Json]] = []
    worst, ties, unequal = 0.0, 0, 0
    for budget in BUDGETS:
        for topk in TOPKS:
            tree.set_state(speculative_ddtree_budget=budget, speculative_ddtree_topk=topk)
            got = tree.generate_all(prompts, tokens, at_once)
            places = differing(plain, got)
            gaps = margins(plain_client, prompts, plain, places)
            worst, ties = max([worst, *gaps]), ties + sum(gap < 1e-3 for gap in gaps)
            unequal += len(places)
            commit = commit_length(got)
            cells.append(
                {"budget": budget, "topk": topk, "unequal": len(places), "margins": gaps, "commit_length": round(commit, 3)}
            )
            print(f"    budget {budget} top-k {topk}: {len(places)} of {len(got)} differ, commit length {commit:.2f}", flush=True)
    count = len(prompts) * len(cells)
    said = f"{count - unequal} of {count} equal"
    if unequal:
        said += f"; {ties} of the looked-at differences are ties (below 1e-3 nats), the largest margin is {worst:.1e}"
    commits = [float(str(cell["commit_length"])) for cell in cells]
    name = f"batch {at_once}, {len(prompts)} prompts × {tokens} tokens"
    checks = [
        judged(f"fp32 greedy, tree = plain, {name}, {len(cells)} settings in one start", EQUAL, said, not unequal),
        judged(
            f"the same, speculation switched off in place, {name}",
            EQUAL,
            _equal_text(plain, in_place),
            not differing(plain, in_place),
        ),
        shown(f"commit length over the settings, {name}", f"{min(commits):.2f} to {max(commits):.2f}"),
    ]
    return checks, {"cells": cells}


def _equal_text(a: Sequence[Answer], b: Sequence[Answer]) -> str:
    return f"{len(a) - len(differing(a, b))} of {len(a)} equal"


def run(context: Context) -> Findings:
    prompts = held_out(context.store, "code", "chat")
    return Findings(*grid(context, prompts[: context.share_of(64)], context.share_of(128, 8), 8))


def single(context: Context) -> Findings:
    prompts = held_out(context.store, "code", "chat")
    return Findings(*grid(context, prompts[20 : 20 + context.share_of(8)], context.share_of(64, 8), 1))


def smoke(context: Context) -> Findings:
    """A few prompts and settings: does it work at all?"""
    prompts, tree = held_out(context.store, "code", "chat")[:8], context.client(TREE)
    tree.set_state(speculation=0)
    plain = tree.generate_all(prompts, 64, 4)
    tree.set_state(speculation=1)
    checks = []
    for budget, topk, at_once in ((16, 4, 1), (16, 4, 4), (7, 1, 4), (8, 4, 4), (1, 4, 4), (64, 8, 4)):
        tree.set_state(speculative_ddtree_budget=budget, speculative_ddtree_topk=topk)
        got = tree.generate_all(prompts, 64, at_once)
        said = f"{_equal_text(plain, got)}, commit length {commit_length(got):.2f}; parts at {differing(plain, got)[:4]}"
        checks.append(judged(f"budget {budget}, top-k {topk}, batch {at_once}", EQUAL, said, not differing(plain, got)))
    checks += _after_a_long_prompt(tree, prompts, held_out(context.store, "long")[0])
    return Findings(checks, {"text": plain[0].text[:300]})


def _after_a_long_prompt(tree: Client, prompts: Sequence[Prompt], long: Prompt) -> list[Check]:
    """Memory that SGLang takes for a long prompt and gives back must be none that the graphs of commits work in.

    Were it so, the draft KV would be wrong, which costs verifies and no token, or the server would end.
    """
    own = tree.states()[0].get("ddtree")
    sizes = own["commit_graphs"] if own else "no"  # the embedded engine has none
    before = tree.generate_all(prompts, 64, 4)
    tree.generate(long, 8)
    tree.flush()
    after = tree.generate_all(prompts, 64, 4)
    verifies = [sum(answer.verifies for answer in answers) for answers in (before, after)]
    said = f"{_equal_text(before, after)}, {verifies[0]} and {verifies[1]} verifies; commits of {sizes} requests have a graph"
    same = not differing(before, after) and abs(verifies[0] - verifies[1]) <= 0.01 * verifies[0]
    name = f"a prompt of {len(long)} tokens, the cache flushed, and again"
    return [judged(name, "same text; verifies within 1 %", said, same and bool(sizes))]


EQUALITY = Part("equality", "greedy fp32 grid against plain decoding, batch 8", (TREE, PLAIN), run)
SINGLE = Part("equality-single", "the same, batch 1", (TREE, PLAIN), single)
SMOKE = Part("smoke", "a few settings against plain decoding in place", (TREE,), smoke)
