"""Resident memory over many requests of mixed length: it must stay as it is once the prefix cache is full.

    python -m tests.benchmarks.memory [--requests 500] [--tokens 4] [--cache-mib 64]

Every request has a prompt of its own (24 to 400 tokens), so that each leaves something behind. The prefix cache is made small
enough to be full early. Prints the resident size along the way; exit code 1 when the last fifth differs from the fifth before
by more than 5 %.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean

from engine_launch.embedded.api import Algorithm, SamplingParams
from engine_launch.embedded.engine import EmbeddedEngine
from engine_launch.embedded.events import SilentLog
from engine_launch.embedded.options import EngineOptions
from tests.benchmarks.engines import ask_together, bench

TOLERANCE = 0.05


def resident_mib() -> float:
    """Of this process."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no VmRSS")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--cache-mib", type=int, default=64)
    arguments = parser.parse_args()
    draw = random.Random(0)
    sizes: list[float] = []
    with bench(EngineOptions(algorithm=Algorithm.DDTREE)) as loaded:
        first = loaded.engine(Algorithm.DDTREE)
        limits = replace(first.limits, prefix_cache_bytes=arguments.cache_mib << 20)
        engine = EmbeddedEngine(first._target, loaded.drafter, loaded.tokenizer, first.settings, limits, SilentLog())
        try:
            for number in range(arguments.requests):
                prompt = tuple(draw.randrange(100, 40000) for _ in range(draw.choice((24, 60, 120, 250, 400))))
                ask_together(engine, [prompt], SamplingParams(max_new_tokens=arguments.tokens, temperature=0.0, ignore_eos=True))
                sizes.append(resident_mib())
                if (number + 1) % max(1, arguments.requests // 10) == 0:
                    kept = engine.stats()
                    print(
                        f"{number + 1:5} requests: {sizes[-1]:7.1f} MiB resident, prefix cache "
                        f"{kept.prefix_bytes / (1 << 20):6.1f} MiB in {kept.prefix_entries} entries",
                        flush=True,
                    )
        finally:
            engine.close()
    fifth = max(1, len(sizes) // 5)
    growth = mean(sizes[-fifth:]) / mean(sizes[-2 * fifth : -fifth]) - 1
    print(f"last fifth against the fifth before: {growth:+.1%}")
    return 0 if abs(growth) <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
