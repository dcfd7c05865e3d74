"""Throughput of several streams against one, with the automatic budget in both.

    python -m tests.benchmarks.streams [--streams 4] [--prompts 8] [--tokens 128]

The same prompts are answered one after another and ``--streams`` at a time; groups of both kinds take turns. Speed is tokens ÷
seconds of decoding, over all streams together.
"""

from __future__ import annotations

import argparse
from statistics import median

from engine_launch.embedded.api import Algorithm
from engine_launch.embedded.options import EngineOptions
from tests.benchmarks.engines import bench
from tests.benchmarks.machine import description
from tests.benchmarks.modes import AUTO, PLAIN, Mode, Sample, commit_length, nodes, sample, tok_s
from tests.benchmarks.prompts import held_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    arguments = parser.parse_args()
    with bench(EngineOptions(algorithm=Algorithm.DDTREE, tree_budget="auto")) as loaded:
        half = arguments.prompts // 2
        asked = [*held_out(loaded, "code", half), *held_out(loaded, "chat", arguments.prompts - half)]
        for mode in (PLAIN, AUTO):
            sample(loaded, mode, asked[:1], 8)
        alone: dict[Mode, list[Sample]] = {PLAIN: [], AUTO: []}
        together: dict[Mode, list[Sample]] = {PLAIN: [], AUTO: []}
        gains: dict[Mode, list[float]] = {PLAIN: [], AUTO: []}
        for begin in range(0, len(asked), arguments.streams):
            group = asked[begin : begin + arguments.streams]
            for mode in (PLAIN, AUTO):
                one_by_one = [sample(loaded, mode, [prompt], arguments.tokens) for prompt in group]
                at_once = sample(loaded, mode, group, arguments.tokens)
                alone[mode] += one_by_one
                together[mode].append(at_once)
                gains[mode].append(tok_s([at_once]) / tok_s(one_by_one))
        machine = description(loaded.drafter.dtype)
    print(f"{'mode':10} {'1 stream':>9} {str(arguments.streams) + ' streams':>10} {'gain':>6} {'commit':>13} {'nodes':>13}")
    for mode in (PLAIN, AUTO):
        print(
            f"{mode.name:10} {tok_s(alone[mode]):9.1f} {tok_s(together[mode]):10.1f} {median(gains[mode]):6.2f} "
            f"{commit_length(alone[mode]):6.2f} {commit_length(together[mode]):6.2f} "
            f"{nodes(alone[mode]):6.1f} {nodes(together[mode]):6.1f}"
        )
    print(f"\n{machine}")


if __name__ == "__main__":
    main()
