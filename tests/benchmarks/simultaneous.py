"""Requests that arrive at the same moment with the same beginning: how long their prompts take.

    python -m tests.benchmarks.simultaneous [--requests 8] [--tokens 1000] [--turns 3]

Each request is the same document with a question of its own. Prompts that share nothing, of the same lengths, take turns with
them; the cache is emptied before each turn.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from engine_launch.embedded.api import Algorithm, SamplingParams
from engine_launch.embedded.options import EngineOptions
from tests.benchmarks.engines import ask_together, bench
from tests.benchmarks.machine import description
from tests.benchmarks.prompts import HELD_OUT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1000, help="that all share")
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    with bench(EngineOptions(algorithm=Algorithm.DDTREE, max_running_requests=arguments.requests)) as loaded:
        text = (HELD_OUT / "long.jsonl").read_text(encoding="utf-8")
        document = loaded.tokenizer.encode(text)[: arguments.tokens]
        questions = [loaded.chat(f"What does part {number} of this text say about it?") for number in range(arguments.requests)]
        # The first token is another one in each, so nothing can be shared.
        apart = [(100 + number, *document[1:], *question) for number, question in enumerate(questions)]
        alike = [(*document, *question) for question in questions]
        engine = loaded.engine(Algorithm.DDTREE)
        seconds: dict[str, list[float]] = {"apart": [], "alike": []}
        cached: dict[str, int] = {}
        for _ in range(arguments.turns):
            for name, asked in (("apart", apart), ("alike", alike)):
                engine.flush_cache()
                begin = time.perf_counter()
                answers = ask_together(engine, asked, SamplingParams(max_new_tokens=1, temperature=0.0))
                seconds[name].append(time.perf_counter() - begin)
                cached[name] = sum(answer.stats.cached_tokens for answer in answers)
        machine = description(loaded.drafter.dtype)
    total = sum(len(prompt) for prompt in alike)
    for name, taken in seconds.items():
        first = f"{median(taken):.2f} s until all of {len(alike)} have their first token"
        print(f"{name}: {first}, {cached[name]} of {total} tokens cached")
    print(f"\n{machine}")


if __name__ == "__main__":
    main()
