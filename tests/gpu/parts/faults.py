"""Planted errors: each must be seen by the checks that are to guard against it."""

from __future__ import annotations

from tests.gpu.client import commit_length
from tests.gpu.context import Context, Findings, Part
from tests.gpu.parts.equality import TREE, differing
from tests.gpu.prompts import held_out
from tests.gpu.records import judged

MASK, POSITION, FEATURE, NO_COMPACTION = 1, 2, 3, 4
"""Values of the hot key ``ddtree_plant``, which a server takes only when started with ``DDTREE_TEST_HOOKS=1``."""
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
    checks.append(
        judged(
            "afterwards, errors removed and cache emptied",
            "equal again",
            f"{len(differing(good, again))} differ",
            not differing(good, again),
        )
    )
    return Findings(checks, {"good_commit_length": commit_length(good)})


FAULTS = Part("faults", "planted errors are caught", (TREE,), run)
