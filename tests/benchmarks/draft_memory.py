"""Bytes of draft keys and values at a long context, as the running engine reports them: what the two windows save.

    python -m tests.benchmarks.draft_memory [--tokens 6000] [--compact 512]

Three engines answer the same prompt: with the compact cache and the layers' windows, with the layers' windows alone, with
neither. Read from the engine's own figures while the request runs, and held against the tensors that it has allocated. Exit code
1 when the ratios are above what the project promises (0.30 and 0.10).
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
from typing import Literal

from engine_launch.embedded.api import Algorithm, GenerateRequest, SamplingParams, TokenEvent
from engine_launch.embedded.events import SilentLog
from engine_launch.embedded.factory import build_engine
from engine_launch.embedded.options import EngineOptions

TO_WINDOWS, TO_NEITHER = 0.30, 0.10


def draft_bytes(layers: Literal["config", "off"], compact: int, tokens: int) -> tuple[int, int]:
    """Draft KV bytes that the engine reports, and committed tokens, in a round after ``tokens`` of prompt."""
    engine = build_engine(
        EngineOptions(algorithm=Algorithm.DFLASH, layers_window=layers, draft_window=compact, prefix_cache=False), SilentLog()
    )
    draw = random.Random(0)
    seen: list[tuple[int, int]] = []
    done = threading.Event()

    def listen(event: TokenEvent) -> None:
        running = engine._running
        if running and running[0].draft is not None:
            allocated = sum(store.rows.nbytes for store in running[0].draft.stores)
            reported = engine.stats().draft_kv_bytes
            assert reported == allocated, f"{reported} bytes are reported, {allocated} allocated"
            seen.append((reported, running[0].draft.length))
        if event.finish is not None:
            done.set()

    prompt = tuple(draw.randrange(100, 40000) for _ in range(tokens))
    try:
        engine.submit(
            GenerateRequest("memory", prompt, SamplingParams(max_new_tokens=12, temperature=0.0, ignore_eos=True)), listen
        )
        done.wait()
    finally:
        engine.close()
    return seen[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=6000)
    parser.add_argument("--compact", type=int, default=512)
    arguments = parser.parse_args()
    found = {}
    for name, layers, compact in (
        (f"compact {arguments.compact} and layers' windows", "config", arguments.compact),
        ("layers' windows alone", "config", 0),
        ("neither", "off", 0),
    ):
        found[name], length = draft_bytes(layers, compact, arguments.tokens)  # type: ignore[arg-type]
        print(f"{name}: {found[name]:,} bytes at {length} committed tokens", flush=True)
    both, windows, neither = found.values()
    print(f"both / layers' windows alone: {both / windows:.3f} (at most {TO_WINDOWS}); both / neither: {both / neither:.3f} "
          f"(at most {TO_NEITHER})")  # fmt: skip
    return 0 if both / windows <= TO_WINDOWS and both / neither <= TO_NEITHER else 1


if __name__ == "__main__":
    sys.exit(main())
