"""How far bf16 answers fall short of the best token, for plain decoding and for trees, re-scored in fp32.

    python -m tests.benchmarks.bf16_margin [--prompts 20] [--tokens 128] [--budgets 8,16,32]

In bf16 a pass over 17 rows rounds differently from a pass over one, so near ties fall either way and equality is the wrong
question. Instead every emitted token is scored again in fp32 on its own prefix: its *shortfall* is the best token's logit
less its own. The yardstick δ is the 99.9 % quantile of plain bf16 decoding, one request at a time and eight at a time.
Chain and trees hold when the 99.9 % quantile of theirs is within δ. Exit code 1 when one is not. A quantile that far out needs
thousands of tokens: of 500, it is the largest but for half a token.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from engine_launch.embedded.api import Algorithm, SamplingParams
from engine_launch.embedded.options import EngineOptions
from engine_launch.embedded.target import Segment, TargetModel
from tests.benchmarks.engines import Answer, bench
from tests.benchmarks.prompts import MIXED_PROMPTS

QUANTILE = 0.999


@torch.inference_mode()
def shortfalls(target: TargetModel, prompt: Sequence[int], answer: Sequence[int]) -> Tensor:
    """``[len(answer)]`` logits between the best next token and the emitted one, in fp32."""
    ids = torch.tensor([*prompt, *answer])
    kv = target.new_kv(len(ids))
    out = target.forward(ids, torch.arange(len(ids)), [Segment(kv, len(ids))])
    logits = target.logits(out.hidden[len(prompt) - 1 : -1])
    emitted = logits.gather(1, torch.tensor(answer)[:, None])[:, 0]
    return logits.max(dim=-1).values - emitted


def measure(target: TargetModel, prompts: Sequence[Sequence[int]], answers: Sequence[Answer]) -> Tensor:
    """All shortfalls of a mode."""
    return torch.cat([shortfalls(target, prompt, answer.ids) for prompt, answer in zip(prompts, answers, strict=True)])


def report(name: str, values: Tensor, delta: float | None = None) -> float:
    """Print one line; the quantile that counts."""
    quantile = float(torch.quantile(values, QUANTILE))
    flips = float((values > 0).float().mean())
    print(
        f"{name:16} {len(values):6} tokens   not the best {flips:6.2%}   {QUANTILE:.1%} quantile {quantile:.4f}"
        f"   largest {float(values.max()):.4f}" + ("" if delta is None else f"   beyond δ {int((values > delta).sum())}"),
        flush=True,
    )
    return quantile


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--budgets", type=lambda text: [int(item) for item in text.split(",")], default=[8, 16, 32])
    arguments = parser.parse_args()
    sampling = SamplingParams(max_new_tokens=arguments.tokens, temperature=0.0)
    answers: dict[str, list[Answer]] = {}
    with bench(EngineOptions(algorithm=Algorithm.DDTREE, dtype="bfloat16")) as loaded:
        prompts = [loaded.chat(text) for text in MIXED_PROMPTS[: arguments.prompts]]
        answers["plain, batch 1"] = loaded.ask(Algorithm.PLAIN, prompts, sampling, 1)
        answers["plain, batch 8"] = loaded.ask(Algorithm.PLAIN, prompts, sampling, 8)
        answers["DFLASH"] = loaded.ask(Algorithm.DFLASH, prompts, sampling, 4)
        for budget in arguments.budgets:
            loaded.engine(Algorithm.DDTREE).change("speculative_ddtree_budget", budget)
            answers[f"DDTREE {budget}"] = loaded.ask(Algorithm.DDTREE, prompts, sampling, 4)
    with bench(EngineOptions(algorithm=Algorithm.PLAIN, dtype="float32")) as loaded:
        target = loaded.engine(Algorithm.PLAIN)._target
        values = {name: measure(target, prompts, of_mode) for name, of_mode in answers.items()}
    plain = torch.cat([values["plain, batch 1"], values["plain, batch 8"]])
    delta = report("plain, both", plain)
    print(f"δ = {delta:.4f}")
    quantiles = [report(name, of_mode, delta) for name, of_mode in values.items() if not name.startswith("plain")]
    return 0 if all(quantile <= delta for quantile in quantiles) else 1


if __name__ == "__main__":
    sys.exit(main())
