"""Plain and tree decoding against transformers' ``generate`` on the same weights, dtype and threads.

    python -m tests.benchmarks.against_transformers [--prompts 6] [--tokens 96] [--exit-layer 10]

transformers decodes plainly, with prompt lookup (``prompt_lookup_num_tokens=10``) and with itself cut off at a layer
(``assistant_early_exit``). Greedy, stopping at the end token, one prompt at a time, all ways in turn on every prompt. Times are
those of whole answers (prefill included, for both sides alike; the engine's prefix cache is off), and so are the tokens.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from engine_launch.embedded.api import Algorithm, SamplingParams
from engine_launch.embedded.model_files import default_model_path
from engine_launch.embedded.options import EngineOptions
from engine_launch.training.sglang_check import export_target
from tests.benchmarks.engines import Bench, ask_together, bench
from tests.benchmarks.machine import description
from tests.benchmarks.prompts import held_out

Way = Callable[[tuple[int, ...]], int]
"""Answers a prompt; the number of new tokens."""


def of_engine(loaded: Bench, algorithm: Algorithm, tokens: int) -> Way:
    """Greedy answers of one of our engines, of so many tokens at most."""
    sampling = SamplingParams(max_new_tokens=tokens, temperature=0.0)

    def answer(prompt: tuple[int, ...]) -> int:
        return len(ask_together(loaded.engine(algorithm), [prompt], sampling)[0].ids)

    return answer


def of_transformers(model: Any, end: int, tokens: int, **options: object) -> Way:
    """Greedy answers of ``model.generate``, which is given ``options``; ``end`` is the id of the end token."""

    def answer(prompt: tuple[int, ...]) -> int:
        ids = torch.tensor([prompt])
        with torch.inference_mode():
            whole = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=tokens,
                do_sample=False,
                eos_token_id=end,
                pad_token_id=end,
                **options,
            )
        return int(whole.shape[1]) - len(prompt)

    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--exit-layer", type=int, default=10)
    arguments = parser.parse_args()
    from transformers import AutoModelForCausalLM

    options = EngineOptions(algorithm=Algorithm.DDTREE, tree_budget="auto", prefix_cache=False)
    with bench(options) as loaded, tempfile.TemporaryDirectory() as folder:
        export_target(default_model_path(), Path(folder))
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=loaded.drafter.dtype)
        model.eval()
        end, tokens = loaded.tokenizer.eos_token_id, arguments.tokens
        ways: dict[str, Way] = {
            "engine, plain": of_engine(loaded, Algorithm.PLAIN, tokens),
            "engine, tree auto": of_engine(loaded, Algorithm.DDTREE, tokens),
            "transformers, plain": of_transformers(model, end, tokens),
            "transformers, prompt lookup": of_transformers(model, end, tokens, prompt_lookup_num_tokens=10),
            "transformers, early exit": of_transformers(model, end, tokens, assistant_early_exit=arguments.exit_layer),
        }
        asked = held_out(loaded, "code", arguments.prompts)
        speeds: dict[str, list[float]] = {name: [] for name in ways}
        for way in ways.values():
            way(asked[0][:16])
        for prompt in asked:
            for name, way in ways.items():
                begin = time.perf_counter()
                made = way(prompt)
                speeds[name].append(made / (time.perf_counter() - begin))
        machine = description(loaded.drafter.dtype)
    base = speeds["transformers, plain"]
    print(f"{'':28} {'tok/s':>7} {'x transformers, plain':>22}")
    for name, values in speeds.items():
        gain = median(one / other for one, other in zip(values, base, strict=True))
        print(f"{name:28} {median(values):7.1f} {gain:22.2f}")
    print(f"\n{machine}")


if __name__ == "__main__":
    main()
