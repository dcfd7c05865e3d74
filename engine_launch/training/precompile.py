"""Compiles what training runs for every width of batch, so that a run started later finds it in the compiler's cache.

``python -m engine_launch.training.precompile MODEL.gguf`` takes minutes, most of them on the CPU, and needs no training text: it
can run while :mod:`engine_launch.training.generate` makes that.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from engine_launch.training import dataset
from engine_launch.training.command import run
from engine_launch.training.dataset import BatchStream, Record, Sequences, to_sequences
from engine_launch.training.drafter import Drafter, DrafterShape
from engine_launch.training.target import Target, TargetForward, load_target
from engine_launch.training.train import COMPILATIONS, Recipe, Trainer

FIRST_WORD = 20
"""Made-up text is of ids from this one on: the ones before are the tokenizer's special tokens."""


def made_up(vocab: int) -> Sequences:
    """A batch of random tokens for every width of batch."""
    rng = np.random.default_rng(0)
    return to_sequences(
        [
            Record(tuple(rng.integers(FIRST_WORD, vocab, width).tolist()), FIRST_WORD, 0, 0.0)
            for width, count in dataset.BUCKETS
            for _ in range(count)
        ]
    )


def precompile(target: Target, shape: DrafterShape, recipe: Recipe) -> int:
    """Run forward and backward once for every width of batch; returns how many there are."""
    device = target.embedding.device
    forward = TargetForward(target, shape.taps, shape.max_positions, compiled=recipe.compiled)
    trainer = Trainer(Drafter(shape).to(device), forward, recipe)
    stream = BatchStream(made_up(shape.vocab), device)
    trainer.warm_up(stream)
    return len(stream.buckets)


def main() -> None:
    """Compile, and say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the target's GGUF file")
    parser.add_argument(
        "--memory",
        type=float,
        default=0.2,
        metavar="SHARE",
        help="share of the GPU's memory to stay within, for who else uses it",
    )
    args = parser.parse_args()
    begun = time.monotonic()
    torch._dynamo.config.recompile_limit = COMPILATIONS
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(args.memory)
    target = load_target(args.model).to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    widths = precompile(target, DrafterShape(), Recipe(flex=True, compiled=True))
    print(f"compiled for {widths} widths of batch in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    run(main)
