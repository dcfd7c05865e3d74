"""Plain, chain and tree decoding side by side, and what a round of the tree spends its time on.

    python -m tests.benchmarks.engine_speed [--budget 8] [--topk 4] [--runs 7] [--tokens 96]

One request at a time, temperature 0, tasks in code. The modes take turns on every prompt, so that what else the machine does
meets all of them; "x plain" is the median over the prompts. Plain is an engine without a drafter.
"""

from __future__ import annotations

import argparse

from engine_launch.embedded.api import Algorithm
from engine_launch.embedded.options import DEFAULT_TREE_BUDGET, DEFAULT_TREE_TOPK, EngineOptions
from tests.benchmarks.engines import bench
from tests.benchmarks.machine import description
from tests.benchmarks.modes import CHAIN, PLAIN, Mode, commit_length, interleaved, ratio, tok_s
from tests.benchmarks.prompts import CODE_PROMPTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=int, default=DEFAULT_TREE_BUDGET)
    parser.add_argument("--topk", type=int, default=DEFAULT_TREE_TOPK)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--prompts", type=int, default=len(CODE_PROMPTS))
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    options = EngineOptions(
        algorithm=Algorithm.DDTREE, tree_budget=arguments.budget, tree_topk=arguments.topk, threads=arguments.threads
    )
    with bench(options) as loaded:
        groups = [[loaded.chat(text)] for text in CODE_PROMPTS[: arguments.prompts]] * arguments.runs
        found = interleaved(loaded, [PLAIN, CHAIN, Mode(Algorithm.DDTREE, arguments.budget)], groups, arguments.tokens)
        parts = loaded.engine(Algorithm.DDTREE).stats().round_seconds
        machine = description(loaded.drafter.dtype)
    print(f"{'mode':8} {'tok/s':>7} {'x plain':>8} {'commit length':>14}")
    for mode, samples in found.items():
        print(f"{mode.name:8} {tok_s(samples):7.1f} {ratio(samples, found[PLAIN]):8.2f} {commit_length(samples):14.2f}")
    total = sum(parts.values())
    shares = ", ".join(f"{part} {seconds / total:.0%}" for part, seconds in parts.items())
    print(f"plain step {1000 / tok_s(found[PLAIN]):.1f} ms; tree round: {shares}")
    print(f"\n{machine}")


if __name__ == "__main__":
    main()
