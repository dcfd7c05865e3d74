"""Compares objectives and shapes: several drafters trained side by side on the same batches, then measured on the held-out sets.

``python -m engine_launch.training.trials MODEL.gguf DATA_DIR OUT_DIR --group objectives --start FOLDER --seconds 110`` begins
every trial with the weights of a trained drafter; ``--group shapes`` begins with random ones, since a new shape has no others.
All trials of a group take the same steps: each batch runs through the target once and through every drafter after that. Only
sequences of up to 1,536 tokens are used, uncompiled, and half of each batch, for more steps in the same time.

Writes ``GROUP.json``, the same as a Markdown table ``GROUP.md``, and ``GROUP.best``: the options of ``train`` for the objective
whose commit lengths are best, relative to the first trial's and on average over the sets.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from engine_launch.training.command import run
from engine_launch.training.dataset import Batch, BatchStream, Sequences
from engine_launch.training.drafter import Drafter, DrafterShape
from engine_launch.training.heldout import HeldOutSet
from engine_launch.training.loss import Objective
from engine_launch.training.replay import CommitCounts, Drafts, draft_everywhere
from engine_launch.training.target import Target, TargetForward, load_target
from engine_launch.training.train import Recipe, Trainer, read_text

LONGEST = 1536
"""Longer sequences are left out: their dense masks cost more than they tell about an objective."""
BATCH_PARTS = 2
WARMUP_STEPS = 20
TREE_BUDGET, TREE_TOPK = 16, 8


@dataclass(frozen=True)
class Trial:
    """One drafter of a group."""

    name: str
    objective: Objective = field(default_factory=Objective)
    shape: DrafterShape = field(default_factory=DrafterShape)


PLAIN = DrafterShape()
GROUPS = {
    "objectives": (
        Trial("cross-entropy, gamma 4"),
        Trial("cross-entropy, gamma 2.5", Objective(gamma=2.5)),
        Trial("cross-entropy, gamma 7", Objective(gamma=7.0)),
        Trial("D-PACE, alpha 0.5", Objective(dpace=0.5)),
        Trial("target's distribution, half", Objective(soft=0.5)),
        Trial("target's distribution, all", Objective(soft=1.0)),
        Trial("D-PACE and half", Objective(dpace=0.5, soft=0.5)),
    ),
    "shapes": (
        Trial("4 layers, FFN 2048, 5 taps"),
        Trial("5 layers, FFN 1536, 5 taps", shape=replace(PLAIN, sliding=(True,) * 4 + (False,), ffn=1536)),
        Trial("4 layers, FFN 1920, 7 taps", shape=replace(PLAIN, taps=(1, 5, 9, 14, 18, 23, 27), ffn=1920)),
    ),
}
"""Shapes of about the same size, at most 40 MB in bf16. The first trial of a group is what the others are compared with."""


@dataclass(frozen=True)
class Score:
    """What a trial came to: commit lengths by set, chain and tree, and what a step cost."""

    name: str
    objective: Objective
    parameters: int
    steps: int
    step_ms: float
    chain: dict[str, float]
    tree: dict[str, float]

    def against(self, first: Score) -> float:
        """The mean ratio of its commit lengths to those of ``first``."""
        pairs = [(mine[k], theirs[k]) for mine, theirs in ((self.chain, first.chain), (self.tree, first.tree)) for k in mine]
        return sum(a / b for a, b in pairs) / max(len(pairs), 1)


class Group:
    """The trainers of a group's trials, and the steps that they take together."""

    def __init__(self, target: Target, trials: tuple[Trial, ...], learning_rate: float, start: Path | None, seed: int) -> None:
        shapes = [trial.shape for trial in trials]
        taps = tuple(sorted({tap for shape in shapes for tap in shape.taps}))
        self.forward = TargetForward(target, taps, max(shape.max_positions for shape in shapes))
        self.trials, self.start, self.steps = trials, start, 0
        self.trainers: list[Trainer] = []
        for trial in trials:
            torch.manual_seed(seed)
            recipe = Recipe(learning_rate, warmup_steps=WARMUP_STEPS, objective=trial.objective)
            forward = TargetForward(target, trial.shape.taps, trial.shape.max_positions)
            self.trainers.append(Trainer(Drafter(trial.shape).to(target.embedding.device), forward, recipe))
        self.spent = [0.0] * len(trials)

    def begin(self, batch: Batch) -> None:
        """Scale the features, and take over the trained weights where there are any."""
        for trainer in self.trainers:
            trainer.measure_features(batch)
            if self.start is not None:
                trainer.start_from(Drafter.load(self.start))

    def step(self, batch: Batch, progress: float) -> list[float]:
        """One step of every trial on the same batch; the teacher-forced commit lengths."""
        soft = any(trial.objective.soft for trial in self.trials)
        outputs = self.forward.outputs(batch.ids, final=soft)
        commits = []
        for i, trainer in enumerate(self.trainers):
            begun = time.monotonic()
            result = trainer.step(batch, progress, outputs.of(trainer.drafter.shape.taps))
            commits.append(float(result.commit_length))  # Waits for the GPU, so that the time is this trial's.
            self.spent[i] += time.monotonic() - begun
        self.steps += 1
        return commits

    def score(self, i: int, answers: dict[HeldOutSet, Sequences]) -> Score:
        """Measure trial ``i`` on the held-out sets: a chain, and trees of :data:`TREE_BUDGET` nodes."""
        trial, drafter, forward = self.trials[i], self.trainers[i].drafter, self.trainers[i].forward
        chain, tree = {}, {}
        for name, sequences in answers.items():
            drafts = draft_everywhere(drafter, forward, sequences, TREE_TOPK)
            chain[name.value] = commit_length(drafter, drafts, drafts.of_chain())
            tree[name.value] = commit_length(drafter, drafts, drafts.of_trees((TREE_BUDGET,), TREE_TOPK)[TREE_BUDGET])
        parameters = sum(p.numel() for p in drafter.parameters())
        step_ms = round(1000 * self.spent[i] / max(self.steps, 1), 1)
        return Score(trial.name, trial.objective, parameters, self.steps, step_ms, chain, tree)


def commit_length(drafter: Drafter, drafts: Drafts, accepted: Tensor) -> float:
    """Mean tokens per round when ``accepted`` drafts are accepted at each position."""
    return round(CommitCounts.of(drafter, [n for _, n in drafts.walk(accepted)]).commit_length, 3)


def part_of(batch: Batch, parts: int) -> Batch:
    """The first of so many parts of a batch."""
    n = max(1, len(batch.ids) // parts)
    return Batch(batch.ids[:n], batch.anchors[:n], batch.valid[:n], batch.lengths[:n], batch.answers[:n])


def train_group(group: Group, stream: BatchStream, seconds: float, steps: int | None) -> None:
    """Steps until the time is up, or so many ``steps``; the learning rate follows whichever is asked for."""
    group.begin(part_of(stream.next(), BATCH_PARTS))
    begun = reported = time.monotonic()
    while True:
        spent = time.monotonic() - begun
        progress = spent / seconds if steps is None else group.steps / steps
        if progress >= 1:
            return
        commits = group.step(part_of(stream.next(), BATCH_PARTS), progress)
        if time.monotonic() - reported >= 10 or group.steps == 1:
            reported = time.monotonic()
            print(f"{spent:.0f} s: step {group.steps}, commit lengths {[round(c, 3) for c in commits]}", flush=True)


def table(scores: list[Score]) -> str:
    """Markdown: a line for each trial, its commit lengths by set, chain and tree, and their mean ratio to the first trial's."""
    sets = list(scores[0].chain)
    lines = [
        "| trial | parameters | steps | ms a step | " + " | ".join(sets) + " | against the first |",
        "|---" * (len(sets) + 5) + "|",
    ]
    for score in scores:
        cells = [f"{score.chain[k]:.2f} / {score.tree[k]:.2f}" for k in sets]
        size = f"{score.parameters / 1e6:.1f} M"
        row = (score.name, size, score.steps, score.step_ms, *cells, f"{100 * (score.against(scores[0]) - 1):+.1f} %")
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines) + "\n"


def write_scores(scores: list[Score], folder: Path, name: str) -> None:
    """Write what is known so far as JSON, as a table, and as the options of the best objective."""
    rows = [{**vars(s), "objective": vars(s.objective), "against_first": round(s.against(scores[0]), 4)} for s in scores]
    (folder / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(table(scores), encoding="utf-8")
    best = max(scores, key=lambda s: s.against(scores[0])).objective
    options = [f"--gamma {best.gamma}", f"--soft {best.soft}"] + ([f"--dpace {best.dpace}"] if best.dpace is not None else [])
    (folder / f"{name}.best").write_text(" ".join(options) + "\n", encoding="utf-8")


def main() -> None:
    """Train a group, measure it, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the target's GGUF file")
    parser.add_argument("data", type=Path, help="folder of shards and answered held-out sets")
    parser.add_argument("out", type=Path)
    parser.add_argument("--group", choices=sorted(GROUPS), required=True)
    parser.add_argument("--start", type=Path, help="folder of a trained drafter of the usual shape to begin with")
    parser.add_argument("--seconds", type=float, default=110)
    parser.add_argument("--steps", type=int, help="so many steps, however long they take")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    trials = GROUPS[args.group]
    if args.start and any(trial.shape != PLAIN for trial in trials):
        parser.error("--start is for trials of the usual shape: other shapes begin with random weights")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    target = load_target(args.model).to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    sequences, answers, _ = read_text(args.data)
    stream = BatchStream(sequences.keep(sequences.lengths <= LONGEST), device, args.seed)
    group = Group(target, trials, args.learning_rate, args.start, args.seed)
    train_group(group, stream, args.seconds, args.steps)
    args.out.mkdir(parents=True, exist_ok=True)
    scores: list[Score] = []
    for i in range(len(trials)):
        scores.append(group.score(i, answers))
        write_scores(scores, args.out, args.group)
    print(table(scores), end="")


if __name__ == "__main__":
    run(main)
