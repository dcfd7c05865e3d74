"""Measures a drafter: chain commit length at temperature 0 on held-out prompts, with the histogram of accepted drafts.

``python -m engine_launch.training.evaluate MODEL.gguf HELD_OUT.json [--drafter FOLDER] [--limit N]`` lets the target answer
the prompts greedily, then walks the answers in rounds (:mod:`engine_launch.training.replay`). ``HELD_OUT`` may also be a
folder of answered sets, as ``generate`` leaves it. Seconds on a GPU; on a CPU take a small ``--limit``, or measure with the
embedded engine itself, whose loop is made for one.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from engine_launch.training.command import run
from engine_launch.training.dataset import Sequences
from engine_launch.training.drafter import Drafter
from engine_launch.training.heldout import HeldOutSet, answer_sets, read_answers, read_prompts
from engine_launch.training.replay import ChainResult, by_context, rounds
from engine_launch.training.target import Target, TargetForward, load_target

PACKAGED = Path(__file__).parents[1] / "weights" / "smollm2-135m-dflash"
CONTEXT_BOUNDS = (512, 1024, 2048, 4096)
"""Tokens before the anchor by which the long sets are told apart."""


def answered(target: Target, held_out: Path, limit: int | None) -> dict[HeldOutSet, Sequences]:
    """The sets of a folder as they are, or the answers to the first ``limit`` prompts of each set of a file."""
    if held_out.is_dir():
        return read_answers(held_out)
    prompts = {name: rows[:limit] for name, rows in read_prompts(held_out).items()}
    with tempfile.TemporaryDirectory() as folder:
        answer_sets(target, prompts, Path(folder))
        return read_answers(Path(folder))


def measure(
    target: Target, answers: dict[HeldOutSet, Sequences], drafter: Drafter
) -> Iterator[tuple[str, ChainResult, list[ChainResult]]]:
    """By set: its name, its result, and the results by context length (:data:`CONTEXT_BOUNDS`)."""
    forward = TargetForward(target, drafter.shape.taps, max(int(a.lengths.max()) for a in answers.values()) + 64)
    for name, sequences in answers.items():
        found = list(rounds(drafter, forward, sequences))
        whole = ChainResult.of(drafter, (accepted for _, accepted in found))
        yield name.value, whole, by_context(drafter, found, CONTEXT_BOUNDS)


def main() -> None:
    """Print one line per set, and one of the commit lengths by context."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the target's GGUF file")
    parser.add_argument("held_out", type=Path, help="prompts written by engine_launch.training.heldout, or a folder of answers")
    parser.add_argument("--drafter", type=Path, default=PACKAGED)
    parser.add_argument("--limit", type=int, help="prompts per set, where they are still to be answered")
    parser.add_argument("--window", type=int, help="another window for the sliding layers (a huge one turns it off)")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    target = load_target(args.model).to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    drafter = Drafter.load(args.drafter).to(device)
    if args.window:
        drafter.shape = replace(drafter.shape, window=args.window)
    for name, whole, parts in measure(target, answered(target, args.held_out, args.limit), drafter):
        print(f"{name}: commit length {whole.commit_length:.3f} over {whole.rounds} rounds, {list(whole.histogram)}")
        shown = [f"{part.commit_length:.3f} ({part.rounds})" if part.rounds else "-" for part in parts]
        print(
            f"  by tokens before the anchor, up to {', '.join(map(str, CONTEXT_BOUNDS))} and more: {', '.join(shown)}", flush=True
        )


if __name__ == "__main__":
    run(main)
