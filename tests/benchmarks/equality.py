"""Greedy answers of chain and tree against plain decoding, token for token, at full size (fp32).

    python -m tests.benchmarks.equality [--prompts 20] [--tokens 128] [--budgets 1,2,7,8,16,32,64]

Where an answer differs, the place and the target's margin between its two best tokens there are printed: a margin near fp32's
noise (1e-4) is a tie that batch shapes decide, anything larger is a fault. Exit code 1 when anything differs.
"""

from __future__ import annotations

import argparse
import sys

import torch

from engine_launch.embedded.api import Algorithm, SamplingParams
from engine_launch.embedded.options import EngineOptions
from engine_launch.embedded.target import Segment, TargetModel
from tests.benchmarks.engines import Answer, bench
from tests.benchmarks.prompts import MIXED_PROMPTS


@torch.inference_mode()
def margin(target: TargetModel, ids: list[int]) -> float:
    """How far the best next token is ahead of the second, in logits."""
    kv = target.new_kv(len(ids))
    out = target.forward(torch.tensor(ids), torch.arange(len(ids)), [Segment(kv, len(ids))])
    best, second = target.logits(out.hidden[-1:])[0].topk(2).values.tolist()
    return float(best - second)


def report(target: TargetModel, name: str, prompts: list[tuple[int, ...]], plain: list[Answer], other: list[Answer]) -> bool:
    """Print one line for a mode, and one for each answer that differs; True when all are equal."""
    equal = sum(a.ids == b.ids for a, b in zip(plain, other, strict=True))
    tokens = sum(len(answer.ids) for answer in other)
    verifies = sum(answer.stats.spec_verify_ct for answer in other)
    print(
        f"{name:16} {equal}/{len(plain)} answers equal, commit length {(tokens - len(other)) / max(1, verifies):.2f}", flush=True
    )
    for number, (prompt, expected, got) in enumerate(zip(prompts, plain, other, strict=True)):
        if expected.ids != got.ids:
            at = next(i for i, pair in enumerate(zip(expected.ids, got.ids, strict=False)) if pair[0] != pair[1])
            print(f"  prompt {number}: differs at token {at}, margin {margin(target, [*prompt, *expected.ids[:at]]):.2e}")
    return equal == len(plain)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=len(MIXED_PROMPTS))
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--budgets", type=lambda text: [int(item) for item in text.split(",")], default=[1, 2, 7, 8, 16, 32, 64])
    parser.add_argument("--parallel", type=int, default=4)
    arguments = parser.parse_args()
    sampling = SamplingParams(max_new_tokens=arguments.tokens, temperature=0.0)
    with bench(EngineOptions(algorithm=Algorithm.DDTREE, dtype="float32")) as loaded:
        prompts = [loaded.chat(text) for text in MIXED_PROMPTS[: arguments.prompts]]
        target = loaded.engine(Algorithm.DDTREE)._target
        plain = loaded.ask(Algorithm.PLAIN, prompts, sampling, arguments.parallel)
        chain = loaded.ask(Algorithm.DFLASH, prompts, sampling, arguments.parallel)
        equal = report(target, "DFLASH", prompts, plain, chain)
        for budget in arguments.budgets:
            loaded.engine(Algorithm.DDTREE).change("speculative_ddtree_budget", budget)
            tree = loaded.ask(Algorithm.DDTREE, prompts, sampling, arguments.parallel)
            equal = report(target, f"DDTREE {budget}", prompts, plain, tree) and equal
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
