"""Measures a drafter: chain commit length at temperature 0 on held-out prompts, with the histogram of accepted drafts.

``python -m engine_launch.training.evaluate MODEL.gguf HELD_OUT.json [--drafter FOLDER] [--limit N]`` lets the target answer
the prompts greedily, then walks the answers in rounds (:mod:`engine_launch.training.replay`). Seconds on a GPU; on a CPU take
a small ``--limit``, or measure with the embedded engine itself, whose loop is made for one.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

from engine_launch.training.drafter import Drafter
from engine_launch.training.generate import make_decoder
from engine_launch.training.heldout import answer_sets, read_answers, read_prompts, write_prompts
from engine_launch.training.replay import ChainResult, replay
from engine_launch.training.target import TargetForward, load_target

PACKAGED = Path(__file__).parents[1] / "weights" / "smollm2-135m-dflash"


def measure(model: Path, held_out: Path, drafter_folder: Path, limit: int | None) -> dict[str, ChainResult]:
    """Results by set, of the first ``limit`` prompts of each."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    target = load_target(model).to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    drafter = Drafter.load(drafter_folder).to(device)
    prompts = {name: rows[:limit] for name, rows in read_prompts(held_out).items()}
    decoder = make_decoder(target, max(len(rows) for rows in prompts.values()), 1024)
    forward = TargetForward(target, drafter.shape.taps, 1024)
    with tempfile.TemporaryDirectory() as folder:
        write_prompts(prompts, Path(folder) / "prompts.json")
        answer_sets(decoder, Path(folder) / "prompts.json", Path(folder))
        return {name.value: replay(drafter, forward, a) for name, a in read_answers(Path(folder)).items()}


def main() -> None:
    """Print one line per set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the target's GGUF file")
    parser.add_argument("held_out", type=Path, help="tokenised prompts written by engine_launch.training.heldout")
    parser.add_argument("--drafter", type=Path, default=PACKAGED)
    parser.add_argument("--limit", type=int, help="prompts per set")
    args = parser.parse_args()
    for name, result in measure(args.model, args.held_out, args.drafter, args.limit).items():
        print(f"{name}: commit length {result.commit_length:.3f} over {result.rounds} rounds, {list(result.histogram)}")


if __name__ == "__main__":
    main()
