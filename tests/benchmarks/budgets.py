"""Speed and commit length by budget, and the automatic budget against the best fixed one, on held-out prompts.

    python -m tests.benchmarks.budgets [--suites code,chat,long] [--prompts 10] [--tokens 192] [--streams 1] [--json FILE]

Greedy, stopping at the end token. The modes take turns on every prompt. The best fixed budget is picked on every other
prompt and measured on those between. Tok/s are those of decoding; "x plain" is the median over prompts of the ratio to plain
decoding (an engine without a drafter) on the same prompt. "of limit" is the speed ÷ what it would be if a round were draft,
verify and append alone. With --json figures are added to a file that ``docs/make_speed_picture.py`` draws.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from engine_launch.embedded.api import Algorithm
from engine_launch.embedded.options import EngineOptions
from tests.benchmarks.engines import Bench, bench
from tests.benchmarks.machine import description
from tests.benchmarks.modes import AUTO, CHAIN, PLAIN, Mode, Sample, commit_length, interleaved, nodes, of_limit, ratio, tok_s
from tests.benchmarks.prompts import held_out

BUDGETS = (2, 4, 8, 12, 16, 32, 64)


def table(found: dict[Mode, list[Sample]], chosen: Mode) -> None:
    """One line a mode."""
    print(f"{'mode':11} {'tok/s':>7} {'x plain':>8} {'commit':>7} {'without loops':>14} {'nodes':>6} {'of limit':>9}")
    for mode, samples in found.items():
        steady = [one for one in samples if not one.loops]
        apart = f"{commit_length(steady):.2f} ({len(steady)})" if steady else "-"
        limit = f"{of_limit(samples):.2f}" if mode.algorithm is not Algorithm.PLAIN else "-"
        mark = " *" if mode == chosen else ""
        print(
            f"{mode.name + mark:11} {tok_s(samples):7.1f} {ratio(samples, found[PLAIN]):8.2f} {commit_length(samples):7.2f} "
            f"{apart:>14} {nodes(samples):6.1f} {limit:>9}",
            flush=True,
        )


def fastest(found: dict[Mode, list[Sample]], fixed: Sequence[Mode], start: int) -> Mode:
    """The fixed budget with the highest speed on every other prompt from ``start`` on."""
    return max(fixed, key=lambda mode: ratio(found[mode][start::2], found[PLAIN][start::2]))


def run(loaded: Bench, suite: str, count: int, tokens: int, streams: int) -> dict[str, object]:
    """One suite: prints its table, returns its figures."""
    asked = held_out(loaded, suite, count)
    groups = [asked[at : at + streams] for at in range(0, len(asked), streams)]
    fixed = [Mode(Algorithm.DDTREE, budget) for budget in BUDGETS]
    found = interleaved(loaded, [PLAIN, CHAIN, *fixed, AUTO], groups, tokens)
    # Picked on one half and measured on the other, both ways round.
    picked = [fastest(found, fixed, start) for start in (0, 1)]
    held = [(found[mode][1 - start :: 2], start) for start, mode in enumerate(picked)]
    best = sum(ratio(samples, found[PLAIN][1 - start :: 2]) for samples, start in held) / 2
    auto = sum(ratio(found[AUTO][1 - start :: 2], samples) for samples, start in held) / 2
    print(f"\n== {suite}: {len(asked)} prompts, {streams} at a time, {tokens} new tokens at most")
    table(found, picked[0])
    names = " and ".join(sorted({mode.name for mode in picked}))
    print(f"best fixed budget picked on one half ({names}): {best:.2f} x plain on the other; auto ÷ best fixed: {auto:.2f}")
    return {
        "suite": suite,
        "streams": streams,
        "best": best,
        "auto": auto,
        "modes": [
            {
                "name": mode.name,
                "budget": mode.budget,
                "x_plain": ratio(samples, found[PLAIN]),
                "commit": commit_length(samples),
                "nodes": nodes(samples),
                "tok_s": tok_s(samples),
            }
            for mode, samples in found.items()
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", default="code,chat,long")
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.prompts <= arguments.streams:
        parser.error(
            f"--prompts must be above --streams ({arguments.streams}): the best budget is picked on one half of the groups"
        )
    with bench(EngineOptions(algorithm=Algorithm.DDTREE, tree_budget="auto")) as loaded:
        figures = [
            run(loaded, suite, arguments.prompts, arguments.tokens, arguments.streams) for suite in arguments.suites.split(",")
        ]
        machine = description(loaded.drafter.dtype)
    print(f"\n{machine}")
    if arguments.json:
        kept = json.loads(arguments.json.read_text(encoding="utf-8"))["runs"] if arguments.json.is_file() else []
        new = {(one["suite"], one["streams"]) for one in figures}
        kept = [one for one in kept if (one["suite"], one["streams"]) not in new]
        arguments.json.write_text(json.dumps({"machine": machine, "runs": kept + figures}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
