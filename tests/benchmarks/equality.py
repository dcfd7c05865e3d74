"""Greedy answers of chain and tree against plain decoding, token for token, at full size (fp32).

    python -m tests.benchmarks.equality [--prompts 64] [--tokens 64] [--budgets 1,2,7,8,16,32,64,auto] [--windows 16,128]

The prompts are the held-out ones: code, then chat. Every budget is tried with ``--parallel`` requests at a time, then every
window of the compact draft cache, other batch sizes, and batches in which every request has a budget of its own or none. Plain
decoding's answers are those of one request at a time.

Where an answer differs, the place and the target's margin between its two best tokens there are printed: a margin near fp32's
noise (1e-4) is a tie that batch shapes decide, anything larger is a fault. Exit code 1 when anything differs.
"""

from __future__ import annotations

import argparse
import sys

import torch

from engine_launch.embedded.api import Algorithm, RequestOverrides, SamplingParams
from engine_launch.embedded.options import EngineOptions
from engine_launch.embedded.target import Segment, TargetModel
from tests.benchmarks.engines import Answer, Bench, ask_together, bench
from tests.benchmarks.machine import description
from tests.benchmarks.prompts import held_out

MIX = (
    RequestOverrides(),
    RequestOverrides(ddtree_budget=1),
    RequestOverrides(ddtree_budget=64, ddtree_topk=8),
    RequestOverrides(speculative=False),
    RequestOverrides(ddtree_budget=7, ddtree_topk=1),
    RequestOverrides(ddtree_budget=16),
)
"""What the requests of a mixed batch ask for, in turn."""


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
    commits = f", commit length {(tokens - len(other)) / verifies:.2f}" if verifies else ""
    print(f"{name:16} {equal}/{len(plain)} answers equal{commits}", flush=True)
    for number, (prompt, expected, got) in enumerate(zip(prompts, plain, other, strict=True)):
        if expected.ids != got.ids:
            at = next(i for i, pair in enumerate(zip(expected.ids, got.ids, strict=False)) if pair[0] != pair[1])
            print(f"  prompt {number}: differs at token {at}, margin {margin(target, [*prompt, *expected.ids[:at]]):.2e}")
    return equal == len(plain)


def in_batches(
    loaded: Bench,
    prompts: list[tuple[int, ...]],
    sampling: SamplingParams,
    parallel: int,
    *,
    budget: int = 16,
    window: int = 0,
    mix: tuple[RequestOverrides, ...] = (RequestOverrides(),),
) -> list[Answer]:
    """Answers of DDTREE with these settings, ``parallel`` requests at a time; ``budget`` 0 is automatic."""
    engine = loaded.engine(Algorithm.DDTREE)
    for name, value in (("speculative_ddtree_budget", budget), ("speculative_draft_window_size", window)):
        assert engine.change(name, value), f"{name} {value} was refused"
    answers: list[Answer] = []
    for begin in range(0, len(prompts), parallel):
        batch = prompts[begin : begin + parallel]
        own = [mix[(begin + number) % len(mix)] for number in range(len(batch))]
        answers += ask_together(engine, batch, sampling, own)
    return answers


def numbers(text: str) -> list[int]:
    """``1,2,auto`` as ``[1, 2, 0]``."""
    return [0 if item == "auto" else int(item) for item in text.split(",") if item]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--budgets", type=numbers, default=numbers("1,2,7,8,16,32,64,auto"))
    parser.add_argument("--windows", type=numbers, default=numbers("16,128"))
    parser.add_argument("--batches", type=numbers, default=numbers("1,8"))
    parser.add_argument("--parallel", type=int, default=4)
    arguments = parser.parse_args()
    sampling = SamplingParams(max_new_tokens=arguments.tokens, temperature=0.0)
    parallel: int = arguments.parallel
    equal = True
    with bench(EngineOptions(algorithm=Algorithm.DDTREE, dtype="float32", tree_budget="auto")) as loaded:
        prompts = [*held_out(loaded, "code", arguments.prompts), *held_out(loaded, "chat", arguments.prompts)][
            : arguments.prompts
        ]
        target = loaded.engine(Algorithm.DDTREE)._target
        plain = loaded.ask(Algorithm.PLAIN, prompts, sampling)

        def hold(name: str, answers: list[Answer]) -> None:
            nonlocal equal
            equal = report(target, name, prompts, plain, answers) and equal

        hold(f"plain, {parallel} at once", loaded.ask(Algorithm.PLAIN, prompts, sampling, parallel))
        hold("chain", loaded.ask(Algorithm.DFLASH, prompts, sampling, parallel))
        for budget in arguments.budgets:
            hold(f"budget {budget or 'auto'}", in_batches(loaded, prompts, sampling, parallel, budget=budget))
        for window in arguments.windows:
            hold(f"window {window}", in_batches(loaded, prompts, sampling, parallel, window=window))
        for size in arguments.batches:
            hold(f"batch {size}", in_batches(loaded, prompts, sampling, size))
        hold("mixed batches", in_batches(loaded, prompts, sampling, 2 * parallel, mix=MIX))
        print(f"\n{len(prompts)} prompts, {arguments.tokens} new tokens at most; {description(loaded.drafter.dtype)}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
