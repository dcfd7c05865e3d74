"""Plain, chain and tree decoding side by side: tok/s and commit length on held-out code prompts.

    python -m tests.benchmarks.engine_speed [--budget 8] [--topk 4] [--runs 7] [--tokens 96]

One request at a time, temperature 0. The modes take turns within every run, so that what else the machine does meets all of
them; the figures are medians over the runs. Plain is an engine without a drafter.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from statistics import median

from engine_launch.embedded.api import Algorithm, SamplingParams
from engine_launch.embedded.options import DEFAULT_TREE_BUDGET, DEFAULT_TREE_TOPK, EngineOptions
from tests.benchmarks.engines import Bench, bench
from tests.benchmarks.prompts import CODE_PROMPTS


@dataclass(frozen=True)
class Measurement:
    tok_s: float
    """Decode tokens ÷ decode seconds; the first token of each answer belongs to prefill."""
    commit_length: float
    """Tokens per verify, the answers' own (cut at their end); 1 for plain."""


def measure(loaded: Bench, algorithm: Algorithm, prompts: list[tuple[int, ...]], tokens: int) -> Measurement:
    """One run of one mode over all prompts."""
    sampling = SamplingParams(max_new_tokens=tokens, temperature=0.0)
    stats = [answer.stats for answer in loaded.ask(algorithm, prompts, sampling)]
    decoded = sum(item.completion_tokens - 1 for item in stats)
    verifies = sum(item.spec_verify_ct for item in stats)
    return Measurement(decoded / sum(item.decode_seconds for item in stats), decoded / verifies if verifies else 1.0)


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
    runs: dict[Algorithm, list[Measurement]] = {algorithm: [] for algorithm in Algorithm}
    with bench(options) as loaded:
        prompts = [loaded.chat(text) for text in CODE_PROMPTS[: arguments.prompts]]
        for algorithm in Algorithm:
            measure(loaded, algorithm, prompts[:1], 8)
        for run in range(arguments.runs):
            for algorithm in Algorithm:
                runs[algorithm].append(measure(loaded, algorithm, prompts, arguments.tokens))
            print(f"run {run + 1}: " + ", ".join(f"{a.value} {runs[a][-1].tok_s:.1f} tok/s" for a in Algorithm), flush=True)
        parts = loaded.engine(Algorithm.DDTREE).stats().round_seconds
    plain = median(item.tok_s for item in runs[Algorithm.PLAIN])
    print(f"\n{'mode':8} {'tok/s':>7} {'x plain':>8} {'commit length':>14}")
    for algorithm, items in runs.items():
        ratio = median(item.tok_s / base.tok_s for item, base in zip(items, runs[Algorithm.PLAIN], strict=True))
        speed, commit = median(item.tok_s for item in items), median(item.commit_length for item in items)
        print(f"{algorithm.value:8} {speed:7.1f} {ratio:8.2f} {commit:14.2f}")
    total = sum(parts.values())
    print(f"plain step {1000 / plain:.1f} ms; tree round: " + ", ".join(f"{k} {v / total:.0%}" for k, v in parts.items()))


if __name__ == "__main__":
    main()
