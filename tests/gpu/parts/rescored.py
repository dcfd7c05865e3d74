"""bf16 greedy answers, judged token by token in fp32: bf16 flips near-ties, so equality of texts is no measure there."""

from __future__ import annotations

from tests.gpu.client import Answer
from tests.gpu.context import Context, Findings, Part
from tests.gpu.prompts import held_out
from tests.gpu.records import Check, Json, judged, shown
from tests.gpu.scoring import Scorer
from tests.gpu.statistics import binomial_bound, quantile

SHARE = 0.999


def run(context: Context) -> Findings:
    prompts = held_out(context.store, "code", "chat")[: context.share_of(64, 4)]
    tokens = context.share_of(128, 16)
    plain, tree = context.client("plain16"), context.client("tree16")
    scorer = Scorer(context.store / "target")

    def gaps(answers: list[Answer]) -> list[float]:
        return scorer.gaps(prompts, answers)

    baseline = gaps(plain.generate_all(prompts, tokens, 1)) + gaps(plain.generate_all(prompts, tokens, 8))
    delta = quantile(baseline, SHARE)
    checks: list[Check] = [
        shown(
            "δ: 99.9 % quantile of plain bf16 decoding's gaps, batch 1 and 8",
            f"{delta:.4f} logits ({len(baseline)} tokens, largest {max(baseline):.3f})",
        )
    ]
    data: dict[str, Json] = {"delta": delta, "plain_largest": max(baseline)}
    for budget, at_once in ((7, 8), (16, 1), (16, 8), (32, 8)):
        tree.set_state(speculation=1, speculative_ddtree_budget=budget, speculative_ddtree_topk=4)
        found = gaps(tree.generate_all(prompts, tokens, at_once))
        beyond = sum(gap > delta for gap in found)
        bound = binomial_bound(len(found), 1 - SHARE)
        said = f"{beyond} of {len(found)} beyond δ (plain's own share allows {bound}), largest {max(found):.3f}"
        checks.append(
            judged(
                f"bf16, budget {budget}, batch {at_once}: tokens within δ",
                "no more beyond δ than plain itself",
                said,
                beyond <= bound,
            )
        )
        data[f"budget_{budget}_batch_{at_once}"] = {"beyond": beyond, "tokens": len(found), "largest": max(found)}
    return Findings(checks, data)


RESCORED = Part("rescored", "bf16 tokens re-scored in fp32", ("tree16", "plain16"), run)
