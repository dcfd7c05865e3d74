"""What the embedded engine commits, against what replay reads off the same answers.

    python -m tests.benchmarks.replay_check HELD_OUT.json [--drafter FOLDER] [--limit 4] [--temperature 0] [--dtype bfloat16]

The engine answers some prompts of each held-out set (``engine_launch.training.heldout`` makes the file) with a chain and with a
tree, and tells every round. Replay, in fp32, is given the texts that came out. Rounds whose block runs past the answer's end are
left out of both; the engine's own average over all rounds stands in the last column.
"""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

import torch

from engine_launch.embedded.api import Algorithm, GenerateRequest, SamplingParams, TokenEvent
from engine_launch.embedded.engine import EmbeddedEngine
from engine_launch.embedded.events import SilentLog
from engine_launch.embedded.factory import build_engine
from engine_launch.embedded.model_files import resolve_model
from engine_launch.embedded.options import PACKAGED_DRAFTER, EngineOptions
from engine_launch.training.dataset import Record, to_sequences
from engine_launch.training.drafter import Drafter
from engine_launch.training.evaluate import spread
from engine_launch.training.heldout import read_prompts, turns_of
from engine_launch.training.replay import draft_everywhere
from engine_launch.training.target import END_OF_TEXT, IM_END, TargetForward, load_target

BUDGET, TOPK = 16, 8
TOKENS = 192
LONGEST = 2600
"""Prompt tokens at most: a longer one takes a minute to read on a CPU."""

Round = tuple[int, int]
"""Where it began, and its accepted drafts."""


def ask(engine: EmbeddedEngine, prompt: tuple[int, ...], temperature: float, rid: str) -> tuple[Record, list[Round]]:
    """One answer and its rounds."""
    tokens: list[int] = []
    rounds: list[Round] = []
    done = threading.Event()

    def listen(event: TokenEvent) -> None:
        tokens.extend(event.token_ids)
        if event.round is not None:
            rounds.append((event.round.start, len(event.round.path) - 1))
        if event.finish is not None:
            done.set()

    sampling = SamplingParams(max_new_tokens=TOKENS, temperature=temperature, stop_token_ids=(IM_END, END_OF_TEXT), seed=0)
    engine.submit(GenerateRequest(rid, prompt, sampling, record_rounds=True), listen)
    done.wait()
    return Record((*prompt, *tokens), len(prompt), 0, temperature), rounds


def mean_commits(rounds: list[Round]) -> float:
    return sum(accepted + 1 for _, accepted in rounds) / max(len(rounds), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("held_out", type=Path)
    parser.add_argument("--limit", type=int, default=4, help="prompts per set")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--drafter", type=Path, default=PACKAGED_DRAFTER)
    arguments = parser.parse_args()
    sets = {
        name: spread([first for first, *_ in turns_of(rows) if len(first) <= LONGEST], arguments.limit)
        for name, rows in read_prompts(arguments.held_out).items()
    }
    drafter = Drafter.load(arguments.drafter)
    forward = TargetForward(load_target(resolve_model(None)), drafter.shape.taps, LONGEST + TOKENS + 64)
    torch.set_grad_enabled(False)
    print("| held-out set | answers | mode | rounds | engine | replay | rounds that are the same | engine, all rounds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for algorithm, mode in ((Algorithm.DFLASH, "chain"), (Algorithm.DDTREE, f"tree {BUDGET}")):
        engine = build_engine(
            EngineOptions(
                draft_path=arguments.drafter, algorithm=algorithm, tree_budget=BUDGET, tree_topk=TOPK, dtype=arguments.dtype
            ),
            SilentLog(),
        )
        try:
            for name, prompts in sets.items():
                real: list[Round] = []
                read: list[Round] = []
                every: list[Round] = []
                same = 0
                for number, prompt in enumerate(prompts):
                    record, rounds = ask(engine, prompt, arguments.temperature, f"{name.value}-{number}")
                    whole = [r for r in rounds if r[0] + drafter.shape.block <= len(record.tokens)]
                    drafts = draft_everywhere(drafter, forward, to_sequences([record]), TOPK)
                    tree = algorithm is Algorithm.DDTREE
                    found = list(drafts.walk(drafts.of_trees((BUDGET,), TOPK)[BUDGET] if tree else drafts.of_chain()))
                    same += len(set(whole) & set(found))
                    real, read, every = real + whole, read + found, every + rounds
                figures = f"{len(real)} | {mean_commits(real):.3f} | {mean_commits(read):.3f} | {same / max(len(real), 1):.1%}"
                print(f"| `{name.value}` | {len(prompts)} | {mode} | {figures} | {mean_commits(every):.3f} |", flush=True)
        finally:
            engine.close()


if __name__ == "__main__":
    main()
