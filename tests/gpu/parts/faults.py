"""Planted errors: each must be seen by the checks that are to guard against it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.gpu.client import Client, Prompt, commit_length
from tests.gpu.context import Context, Findings, Part
from tests.gpu.parts.equality import TREE, differing
from tests.gpu.prompts import held_out
from tests.gpu.records import Check, judged

MASK, POSITION, FEATURE, NO_COMPACTION = 1, 2, 3, 4
"""Values of the hot key ``ddtree_plant``, which a server takes only when started with ``DDTREE_TEST_HOOKS=1``."""
GOING_ON = 48
"""Tokens of an answer that goes on from another."""
IN_THE_TREE = (
    (MASK, "mask: drafts do not see the root"),
    (POSITION, "positions of drafts one too high"),
    (NO_COMPACTION, "accepted KV not moved"),
)


def run(context: Context) -> Findings:
    tree = context.client(TREE)
    prompts = held_out(context.store, "code", "chat")[: context.share_of(32, 4)]
    tokens = context.share_of(96, 32)
    tree.set_state(speculation=1, speculative_ddtree_budget=16, speculative_ddtree_topk=4, ddtree_plant=0)
    good = tree.generate_all(prompts, tokens, 8)
    checks = []
    try:
        for number, name in IN_THE_TREE:
            tree.flush()
            tree.set_state(ddtree_plant=number)
            got = tree.generate_all(prompts, tokens, 8)
            unequal = len(differing(good, got))
            checks.append(judged(name, "equality fails", f"{unequal} of {len(got)} answers differ", unequal > 0))
        tree.flush()
        tree.set_state(ddtree_plant=FEATURE)
        got = tree.generate_all(prompts, tokens, 8)
        before, after = commit_length(good), commit_length(got)
        said = f"{before:.2f} → {after:.2f}; {len(differing(good, got))} answers differ"
        checks.append(
            judged("features of the first rows instead of the accepted ones", "commit length drops", said, after < 0.97 * before)
        )
    finally:
        tree.flush()
        tree.set_state(ddtree_plant=0)
    again = tree.generate_all(prompts, tokens, 8)
    checks += _draft_kv(tree, prompts[: max(4, len(prompts) // 2)], tokens)
    checks.append(
        judged(
            "afterwards, errors removed and cache emptied",
            "equal again",
            f"{len(differing(good, again))} differ",
            not differing(good, again),
        )
    )
    return Findings(checks, {"good_commit_length": commit_length(good)})


def _draft_kv(tree: Client, prompts: Sequence[Prompt], tokens: int) -> list[Check]:
    """Draft KV that decoding wrote against the same rows computed anew by prefill, right and with a planted error.

    The drafter's rows are kept with the prefix cache, so an answer that goes on from a cached one reads what decoding wrote,
    and after the cache was emptied what prefill writes. The same rows give the same drafts, hence the same verifies.
    """
    checks = []
    for plant in (0, FEATURE):
        tree.flush()
        tree.set_state(ddtree_plant=plant)
        begun = tree.generate_all(prompts, tokens, 8)
        tree.set_state(ddtree_plant=0)
        longer = [(*prompt, *answer.ids) for prompt, answer in zip(prompts, begun, strict=True)]
        kept = tree.generate_all(longer, GOING_ON, 1)
        tree.flush()
        anew = tree.generate_all(longer, GOING_ON, 1)
        same = sum(a.histogram == b.histogram and a.verifies == b.verifies for a, b in zip(kept, anew, strict=True))
        cached = sum(answer.cached for answer in kept) / sum(map(len, longer))
        name = "draft KV of decoding against its recomputation" + (", a planted error in its features" if plant else "")
        said = f"{same} of {len(longer)} answers go on with the same verifies; {cached:.0%} of their prompts was cached"
        target = "most differ" if plant else "the same in 9 of 10 at least"
        share = same / len(longer)
        checks.append(judged(name, target, said, cached > 0.5 and (share <= 0.5 if plant else share >= 0.9)))
    tree.flush()
    return checks


FAULTS = Part("faults", "planted errors are caught", (TREE,), run)
