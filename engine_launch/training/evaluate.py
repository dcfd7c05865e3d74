"""Measures a drafter on held-out prompts and writes the tables of the model card.

``python -m engine_launch.training.evaluate MODEL.gguf HELD_OUT.json [--drafter FOLDER] [--table OUT.md] [--json OUT.json]`` lets
the target answer the prompts, greedily and at a temperature, and reads the rounds off the answers
(:mod:`engine_launch.training.replay`): chain and trees, by set, by context length, with every combination of the layers' window
and the compact draft cache. Two minutes on a GPU. On a CPU take a small ``--limit`` and an ``--answers`` folder, which keeps
what the target answered; ``HELD_OUT`` may also be a folder of greedily answered sets, as ``generate`` leaves it.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from engine_launch.training.command import run
from engine_launch.training.dataset import Sequences, read_sequences, to_sequences, write_sequences
from engine_launch.training.drafter import Drafter
from engine_launch.training.engine_answers import EngineAnswers
from engine_launch.training.evaluation_tables import as_json, as_markdown
from engine_launch.training.heldout import (
    ANSWER_LIMIT,
    HeldOutSet,
    answer_set,
    read_answers,
    read_prompts,
    turn_by_turn,
    turns_of,
)
from engine_launch.training.measures import Key, Measures, Tree, Wanted, measure
from engine_launch.training.replay import Windows
from engine_launch.training.target import Target, TargetForward, load_target

PACKAGED = Path(__file__).parents[1] / "weights" / "smollm2-135m-dflash"
SEED = 0
"""Of the answers at a temperature."""

T = TypeVar("T")


def spread(rows: list[T], limit: int | None) -> list[T]:
    """``limit`` of the rows, evenly spaced: neighbours are often about one text, or of one length."""
    if limit is None or limit >= len(rows):
        return rows
    return [rows[i * len(rows) // limit] for i in range(limit)]


def answers_to(target: Target, args: argparse.Namespace) -> Iterator[tuple[float, HeldOutSet, Sequences]]:
    """The answered sets, one temperature after the other."""
    if args.held_out.is_dir():
        for name, answers in read_answers(args.held_out).items():
            if name in args.sets:
                chosen = spread(list(range(len(answers.lengths))), args.limit)
                yield 0.0, name, answers.keep(np.isin(np.arange(len(answers.lengths)), chosen))
        return
    weights = hashlib.sha256(args.model.read_bytes()).hexdigest()
    for temperature in args.temperatures:
        for name, prompts in read_prompts(args.held_out).items():
            if name in args.sets and prompts:
                rows = spread(prompts, args.limit)
                asked = repr((weights, rows, temperature, str(target.embedding.dtype), target.embedding.device.type))
                known = hashlib.sha256(asked.encode()).hexdigest()[:12]
                path = args.answers and args.answers / f"{name.value}-{temperature:g}-{known}.npz"
                yield temperature, name, kept(path, partial(answered, target, args.model, rows, temperature))


def answered(target: Target, model: Path, rows: list[tuple[int, ...]], temperature: float) -> Sequences:
    """Answers to one set: from all slots at once on a GPU, from the embedded engine on a CPU."""
    if target.embedding.is_cuda:
        torch.manual_seed(SEED)
        return answer_set(target, rows, temperature)
    with EngineAnswers.of(model) as engine:
        return to_sequences(turn_by_turn(lambda prompts: engine.answer(prompts, ANSWER_LIMIT, temperature), turns_of(rows)))


def kept(path: Path | None, make: Callable[[], Sequences]) -> Sequences:
    """What is in the file, or what is made now and put there."""
    if path is None:
        return make()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name("part-" + path.name)
        write_sequences(make(), part)
        part.rename(path)
    return read_sequences([path])


def numbers(text: str) -> tuple[int, ...]:
    """``4,8`` as numbers."""
    return tuple(int(part) for part in text.split(","))


def windows(drafter: Drafter, layers: list[str], compact: tuple[int, ...]) -> tuple[Windows, ...]:
    """Every combination of ``layers`` (``on``, ``off`` or a number of tokens) and ``compact`` (0 = off)."""
    known = {"on": drafter.shape.window, "off": None}
    bounds = [known[word] if word in known else int(word) for word in layers]
    if any(bound is not None and bound < drafter.shape.block for bound in (*bounds, *(c or None for c in compact))):
        raise ValueError(f"a window is smaller than the drafter's block of {drafter.shape.block} tokens")
    return tuple(Windows(bound, size or None) for bound in bounds for size in compact)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the target's GGUF file")
    parser.add_argument("held_out", type=Path, help="prompts written by engine_launch.training.heldout, or a folder of answers")
    parser.add_argument("--drafter", type=Path, default=PACKAGED)
    parser.add_argument("--table", type=Path, help="write the tables there too")
    parser.add_argument("--json", type=Path, help="write every histogram there")
    parser.add_argument("--answers", type=Path, help="a folder that keeps the target's answers")
    parser.add_argument("--limit", type=int, help="prompts (or answers, of a folder) per set, evenly spaced")
    parser.add_argument("--sets", type=lambda text: [HeldOutSet(part) for part in text.split(",")], default=list(HeldOutSet))
    parser.add_argument("--temperatures", type=lambda text: [float(part) for part in text.split(",")], default=[0.0, 0.8])
    parser.add_argument("--budgets", type=numbers, default=(4, 8, 16, 32, 64), help="of trees, root not counted")
    parser.add_argument("--topk", type=numbers, default=(1, 2, 4, 8), help="candidates a slot; the last one is the usual")
    parser.add_argument("--usual-budget", type=int, default=16, help="the tree that is measured in every window")
    parser.add_argument(
        "--layers", type=lambda text: text.split(","), default=["on", "off"], help="windows of the sliding layers"
    )
    parser.add_argument("--compact", type=numbers, default=(0, 2048, 512, 128), help="sizes of the compact draft cache; 0 = off")
    args = parser.parse_args()
    if min(*args.budgets, *args.topk, args.usual_budget) < 1 or (args.limit is not None and args.limit < 1):
        parser.error("budgets, top-k and --limit are 1 or more")
    return args


def main() -> None:
    """Measure, and write what there is after every set."""
    args = parse()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    target = load_target(args.model).to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    drafter = Drafter.load(args.drafter).to(device)
    wanted = Wanted(args.budgets, args.topk, windows(drafter, args.layers, args.compact), Tree(args.usual_budget, args.topk[-1]))
    machine = torch.cuda.get_device_name() if device.type == "cuda" else f"CPU ({platform.machine()})"
    dtype = str(target.embedding.dtype).removeprefix("torch.")
    trained = Windows.trained(drafter)
    measures: Measures = {}
    counts: dict[tuple[HeldOutSet, float], int] = {}
    for temperature, name, answers in answers_to(target, args):
        begun = time.monotonic()
        forward = TargetForward(target, drafter.shape.taps, int(answers.lengths.max()) + 64)
        first = not counts or temperature == next(iter(counts))[1]
        counts[name, temperature] = len(answers.lengths)
        measures |= measure(drafter, forward, name, temperature, answers, wanted, first)
        chain, tree = (measures[Key(name, temperature, trained, which)].whole for which in (None, wanted.usual))
        print(
            f"{name.value} at temperature {temperature:g}: chain {chain.commit_length:.3f} over {chain.rounds} rounds, "
            f"tree of {wanted.usual.budget} {tree.commit_length:.3f}; {time.monotonic() - begun:.0f} s",
            flush=True,
        )
        setting = {"drafter": str(args.drafter), "machine": machine, "dtype": dtype, "torch": torch.__version__}
        if args.json:
            args.json.write_text(as_json(measures, counts, setting), encoding="utf-8")
        if args.table:
            args.table.write_text(as_markdown(measures, counts, drafter, wanted), encoding="utf-8")
    if not measures:
        raise ValueError(f"{args.held_out} holds no set of that name")
    print("\n" + as_markdown(measures, counts, drafter, wanted))


if __name__ == "__main__":
    run(main)
