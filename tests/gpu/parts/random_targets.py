"""Random targets with the oracle drafter on one GPU: MLA and experts, an 8B shape."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from tests.gpu.client import Answer, Client, Prompt, commit_length
from tests.gpu.context import Context, Findings, Part
from tests.gpu.models import BLOCK, DENSE_8B, MLA_MOE
from tests.gpu.oracle import Table, expected_commit, make_table, simulate, tuned_table
from tests.gpu.parts.equality import EQUAL
from tests.gpu.prompts import random_prompts
from tests.gpu.records import Check, Json, judged, shown
from tests.gpu.setups import table_path
from tests.gpu.statistics import median

SLOTS = BLOCK - 1
COMMITS = (1.5, 3.0, 5.0)
BUDGET, TOPK = 16, 4
TOLERANCE = 0.05
"""Relative; the count of verifies is compared exactly beside it."""


def exact_counts(table: Table, answers: Sequence[Answer], budget: int, topk: int, tokens: int) -> int:
    """Answers that took just the verifies that the table foretells."""
    return sum(answer.verifies == len(simulate(table, row, budget, topk, tokens)) for row, answer in enumerate(answers))


def _equal(wanted: Sequence[tuple[int, ...]], got: Sequence[Answer]) -> int:
    """Answers that are as ``wanted``, of which there may be more."""
    return sum(answer.ids == ids for answer, ids in zip(got, wanted, strict=False))


def _few(prompts: Sequence[Prompt]) -> Sequence[Prompt]:
    """Those that are asked one after another."""
    return prompts[: max(2, len(prompts) // 4)]


def _itself(clients: Mapping[str, Client], prompts: Sequence[Prompt], plain: Sequence[Answer], tokens: int) -> list[Check]:
    """Plain decoding against itself: a target that rounding leads elsewhere cannot be asked for equal trees."""
    cut = [answer.ids[:tokens] for answer in plain]
    checks = []
    for name, client in clients.items():
        for at_once, some in ((8, prompts), (1, _few(prompts))):
            client.flush()
            got = client.generate_all(some, tokens, at_once)
            said = f"{_equal(cut, got)} of {len(got)} equal"
            checks.append(shown(f"plain decoding in fp32, {name}, batch {at_once}, against batch 8", said))
    return checks


def _rounds(
    client: Client, table: Table, prompts: Sequence[Prompt], plain: Sequence[Answer], tokens: int, wanted: float
) -> list[Check]:
    checks = []
    cut = [answer.ids[:tokens] for answer in plain]
    for at_once in (1, 8):
        got = client.generate_all(prompts if at_once > 1 else _few(prompts), tokens, at_once)
        equal = _equal(cut, got)
        commit = commit_length(got)
        exact = exact_counts(table, got, BUDGET, TOPK, tokens)
        foretold = expected_commit(table, BUDGET, TOPK, tokens, rows=len(got))
        name = f"oracle at commit length {wanted}, batch {at_once}"
        checks.append(judged(f"{name}: greedy fp32, tree = plain", EQUAL, f"{equal} of {len(got)} equal", equal == len(got)))
        close = abs(commit - foretold) <= TOLERANCE * foretold
        said = f"{commit:.2f}, foretold {foretold:.2f}; {exact} of {len(got)} answers took exactly the foretold verifies"
        checks.append(judged(f"{name}: commit length as set", f"within {TOLERANCE:.0%} of the table's", said, close))
    return checks


def moe(context: Context) -> Findings:
    plain_client, tree = context.client("moe-plain"), context.client("moe-tree")
    tokens = context.share_of(96, 32)
    prompts = random_prompts(context.share_of(32, 8), int(MLA_MOE["vocab_size"]), seed=5)
    plain = plain_client.generate_all(prompts, tokens + 2 * BLOCK, 8)
    tree.set_state(speculation=0)
    servers = {"the same server": plain_client, "the tree's server with speculation off": tree}
    checks: list[Check] = [variety(plain), *_itself(servers, prompts, plain, tokens)]
    tree.set_state(speculation=1, speculative_ddtree_budget=BUDGET, speculative_ddtree_topk=TOPK)
    unaided = tree.generate_all(prompts, tokens, 8)
    checks.append(shown("random drafter without oracle", f"commit length {commit_length(unaided):.2f}"))
    for wanted in COMMITS:
        table = tuned_table(prompts, [answer.ids for answer in plain], SLOTS, wanted, budget=BUDGET, topk=TOPK, tokens=tokens)
        table.save(table_path(context.store, "moe-tree"))
        tree.flush()
        checks += _rounds(tree, table, prompts, plain, tokens, wanted)
    tree.flush()
    tree.set_state(ddtree_plant=1)
    broken = tree.generate_all(prompts, tokens, 8)
    tree.flush()
    tree.set_state(ddtree_plant=0)
    unequal = sum(answer.ids != base.ids[:tokens] for answer, base in zip(broken, plain, strict=True))
    checks.append(
        judged("planted mask error on this target", "equality fails", f"{unequal} of {len(broken)} differ", unequal > 0)
    )
    return Findings(checks, {})


def variety(plain: Sequence[Answer]) -> Check:
    """A random target that repeats one token would prove nothing."""
    kinds = median([len(set(answer.ids)) / len(answer.ids) for answer in plain])
    return judged("variety of the random target's text", "median ≥ 0.2 different tokens a token", f"{kinds:.2f}", kinds >= 0.2)


def cost(context: Context) -> Findings:
    """A round of the tree at width 17 against a round of the chain at 8, an 8B shape, batch 1 and 8."""
    chain, tree = context.client("dense-chain"), context.client("dense-tree")
    tokens = context.share_of(160, 32)
    prompts = random_prompts(8, int(DENSE_8B["vocab_size"]), seed=9, shortest=64, longest=64)
    tree.set_state(speculation=0)
    plain = tree.generate_all(prompts, tokens + 2 * BLOCK, 8)
    tree.set_state(speculation=1, speculative_ddtree_budget=16, speculative_ddtree_topk=TOPK)
    checks: list[Check] = []
    data: dict[str, Json] = {}
    for at_once in (1, 8):
        some = prompts[:at_once] if at_once > 1 else prompts[:2]
        line = _round_ms(chain, some, tokens // 2, at_once)
        # Without a table the random drafter is what proposes, as in the chain: the same number of tokens a round.
        bare = _round_ms(tree, some, tokens // 2, at_once)
        ratio = bare / line
        said = f"{ratio:.3f} ×: {bare:.2f} ms against {line:.2f} ms"
        name = f"round of the tree at width 17 against the chain at 8, 8B shape, batch {at_once}"
        checks.append(judged(name, "≤ 1.15 ×", said, ratio <= 1.15) if at_once == 1 else shown(name, said))
        data[f"batch_{at_once}"] = {"chain_ms": line, "tree_ms": bare}
    table = make_table(prompts, [answer.ids for answer in plain], SLOTS, 0.85)
    table.save(table_path(context.store, "dense-tree"))
    helped = _round_ms(tree, prompts[:2], tokens, 1)
    got = tree.generate_all(prompts[:2], tokens, 1)
    checks.append(
        shown("the same with the oracle, batch 1", f"{helped:.2f} ms a round at commit length {commit_length(got):.2f}")
    )
    return Findings(checks, data)


def _round_ms(client: Client, prompts: Sequence[Prompt], tokens: int, at_once: int, repeats: int = 3) -> float:
    """Milliseconds of decoding a verify, the prompts' prefill taken away by a run of one token."""
    client.generate_all(prompts, 4, at_once)
    times = []
    for _ in range(repeats):
        begun = time.monotonic()
        client.generate_all(prompts, 1, at_once)
        middle = time.monotonic()
        answers = client.generate_all(prompts, tokens, at_once)
        ended = time.monotonic()
        rounds = sum(answer.verifies for answer in answers) / at_once
        times.append(((ended - middle) - (middle - begun)) / rounds * 1000)
    return median(times)


MOE = Part("moe", "MLA and experts, random weights, oracle at three commit lengths", ("moe-plain", "moe-tree"), moe)
COST = Part("cost", "cost of a round at an 8B shape", ("dense-chain", "dense-tree"), cost, timed=True)
