"""The automatic budget against the best fixed one, for one stream and for several.

    python -m tests.benchmarks.automatic [--suites code,chat,long] [--streams 1,4] [--prompts 16] [--tokens 96] [--seconds 200]

Groups of as many prompts as there are streams are answered in every mode before the next group, in an order that turns, so that
other load meets all modes alike. Every prompt has been answered once before, so that no mode pays for prefill. The best fixed
budget is picked on every other group and measured on those between, both ways round; "auto ÷ best" is the median over the groups
of the ratio on the same group, with the middle half of the ratios behind it. Groups are drawn anew until ``--seconds`` are over.
"""

from __future__ import annotations

import argparse
import random
import time
from statistics import median, quantiles

from engine_launch.embedded.api import Algorithm
from engine_launch.embedded.engine import CURVE_CONTEXTS
from engine_launch.embedded.options import EngineOptions
from tests.benchmarks.engines import Bench, bench
from tests.benchmarks.machine import description
from tests.benchmarks.modes import AUTO, Mode, Sample, commit_length, nodes, sample, tok_s
from tests.benchmarks.prompts import held_out

ALONE, TOGETHER = (4, 6, 8, 12, 16), (1, 2, 3, 4, 6, 8)
"""Budgets that could be the best fixed one (nodes), for one stream and for several."""


def measure(loaded: Bench, asked: list[tuple[int, ...]], streams: int, tokens: int, seconds: float) -> dict[Mode, list[Sample]]:
    """Samples by mode, group by group."""
    modes = [AUTO, *(Mode(Algorithm.DDTREE, budget) for budget in (ALONE if streams == 1 else TOGETHER))]
    found: dict[Mode, list[Sample]] = {mode: [] for mode in modes}
    for prompt in asked:
        sample(loaded, AUTO, [prompt], 2)
    draw = random.Random(0)
    left: list[tuple[int, ...]] = []
    begin = time.monotonic()
    turn = 0
    while turn < 2 or time.monotonic() - begin < seconds:
        if len(left) < streams:
            left = draw.sample(asked, len(asked))
        group, left = left[:streams], left[streams:]
        for mode in modes[turn % len(modes) :] + modes[: turn % len(modes)]:
            found[mode].append(sample(loaded, mode, group, tokens))
        turn += 1
    return found


def ratios(found: dict[Mode, list[Sample]]) -> tuple[list[Mode], list[float]]:
    """The fixed budgets picked on either half, and auto's speed ÷ theirs on the groups of the other half."""
    picked: list[Mode] = []
    all_ratios: list[float] = []
    for half in (0, 1):
        best = max((mode for mode in found if mode != AUTO), key=lambda mode: tok_s(found[mode][half::2]))
        picked.append(best)
        pairs = zip(found[AUTO][1 - half :: 2], found[best][1 - half :: 2], strict=True)
        all_ratios += [tok_s([auto]) / tok_s([fixed]) for auto, fixed in pairs]
    return picked, all_ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", default="code,chat,long")
    parser.add_argument("--streams", default="1,4")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--seconds", type=float, default=200, help="for each suite and number of streams")
    arguments = parser.parse_args()
    with bench(EngineOptions(algorithm=Algorithm.DDTREE, tree_budget="auto")) as loaded:
        for suite in arguments.suites.split(","):
            asked = held_out(loaded, suite, arguments.prompts)
            for streams in map(int, arguments.streams.split(",")):
                found = measure(loaded, asked, streams, arguments.tokens, arguments.seconds)
                picked, values = ratios(found)
                low, _, high = quantiles(values, n=4)
                total = tok_s(found[AUTO]) / max(tok_s(samples) for mode, samples in found.items() if mode != AUTO)
                print(f"\n== {suite}, {streams} at a time, {len(values)} groups, {arguments.tokens} new tokens at most")
                for mode, samples in found.items():
                    mark = " *" if mode in picked else ""
                    figures = f"{tok_s(samples):7.1f} tok/s, commit length {commit_length(samples):.2f}"
                    print(f"{mode.name + mark:11} {figures}, {nodes(samples):.1f} nodes")
                print(f"auto ÷ best fixed: {median(values):.3f} ({low:.2f} to {high:.2f}); all tokens ÷ all seconds: {total:.3f}")
                curve = loaded.engine(Algorithm.DDTREE).stats().verify_curves[CURVE_CONTEXTS[0]]
                print("verify by rows: " + ", ".join(f"{rows}: {ms:.1f} ms" for rows, ms in curve), flush=True)
        print(f"\n{description(loaded.drafter.dtype)}")


if __name__ == "__main__":
    main()
