"""Trains the drafter on generated text, bounded by wall-clock time.

``python -m engine_launch.training.train MODEL.gguf DATA_DIR OUT_DIR --budget 600`` reads the shards and answered
held-out sets of ``generate``, and writes the checkpoint. ``--until`` pauses early; ``--resume`` goes on from there, the
learning rate following the whole ``--budget``. ``--gamma``, ``--dpace`` and ``--soft`` choose the objective
(:mod:`engine_launch.training.loss`); :mod:`engine_launch.training.trials` compares some.
"""

from __future__ import annotations

import argparse
import json
import math
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from pickle import UnpicklingError

import torch
import torch.nn.functional as F

from engine_launch.training.command import run
from engine_launch.training.dataset import Batch, BatchStream, Sequences, leaking, read_sequences
from engine_launch.training.drafter import Drafter, DrafterShape, Mask, run_layer
from engine_launch.training.heldout import HeldOutSet, prompt_tokens, read_answers
from engine_launch.training.loss import Objective, head_loss
from engine_launch.training.masks import dense_mask, flex_mask
from engine_launch.training.replay import CommitCounts, replay
from engine_launch.training.target import TargetForward, TargetOutputs, load_target

COMPILATIONS = 64
"""How often one function may be compiled: once for every width of batch and kind of mask, with room to spare."""


@dataclass(frozen=True)
class Recipe:
    """How to train."""

    learning_rate: float = 1.5e-3
    final_share: float = 0.02
    warmup_steps: int = 150
    weight_decay: float = 0.05
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0
    objective: Objective = field(default_factory=Objective)
    flex: bool = False
    compiled: bool = False


@dataclass(frozen=True)
class StepResult:
    """Loss, and the teacher-forced accuracy of each slot; tensors, so that no step waits for the GPU."""

    loss: torch.Tensor
    slot_accuracy: torch.Tensor
    commit_length: torch.Tensor


class Trainer:
    """Drafter, optimiser and the step."""

    def __init__(self, drafter: Drafter, forward: TargetForward, recipe: Recipe) -> None:
        self.drafter, self.forward, self.recipe = drafter, forward, recipe
        self.steps = 0
        decayed = [p for p in drafter.parameters() if p.dim() == 2]
        others = [p for p in drafter.parameters() if p.dim() != 2]
        self.optimiser = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=recipe.learning_rate,
            betas=recipe.betas,
            fused=forward.target.embedding.is_cuda,
        )
        if recipe.compiled:
            drafter.run_layer = torch.compile(run_layer, dynamic=False)

    def learning_rate(self, progress: float) -> float:
        """Warm-up by steps, then a cosine over ``progress`` 0..1."""
        r = self.recipe
        cosine = r.final_share + (1 - r.final_share) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
        return r.learning_rate * cosine * min(1.0, (self.steps + 1) / r.warmup_steps)

    def masks(self, batch: Batch) -> dict[bool, Mask]:
        """The masks of full (False) and sliding (True) layers."""
        s, shape = batch.ids.shape[1], self.drafter.shape
        if self.recipe.flex:
            windows = ((False, None), (True, shape.window))
            return {k: flex_mask(batch.anchors, s, shape.block, w, self.recipe.compiled) for k, w in windows}
        return {k: dense_mask(batch.anchors, s, shape.block, shape.window if k else None) for k in (False, True)}

    def loss(self, batch: Batch, outputs: TargetOutputs | None = None) -> StepResult:
        """The loss of a batch, ready for ``backward``, and what it says about the drafter.

        ``outputs`` are the target's for this batch, where it has been run already.
        """
        shape, head = self.drafter.shape, self.forward.target.embedding
        device = batch.ids.device
        after = batch.anchors[:, :, None] + torch.arange(1, shape.block, device=device)
        inside = after.clamp(max=batch.ids.shape[1] - 1).flatten(1)
        # What comes after the answer's end is not the target's answer, though it may be one again further on.
        same_answer = batch.answers.gather(1, inside).view(after.shape).cumprod(-1).bool()
        usable = batch.valid[:, :, None] & same_answer & (after < batch.lengths[:, None, None])
        labels = batch.ids.gather(1, inside).view(after.shape)
        block_ids = torch.full((*batch.anchors.shape, shape.block), shape.mask_token, device=device)
        block_ids[:, :, 0] = batch.ids.gather(1, batch.anchors)
        soft = self.recipe.objective.soft > 0
        if outputs is None:
            outputs = self.forward.outputs(batch.ids, final=soft)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=batch.ids.is_cuda):
            embedded = F.embedding(block_ids, head)
            hidden = self.drafter.blocks(embedded, outputs.features, batch.anchors, self.masks(batch))[:, :, 1:]
        slots = shape.block - 1
        rows, teacher = hidden.reshape(-1, slots, shape.hidden).to(head.dtype), None
        if soft and outputs.final is not None:
            teacher = teacher_rows(outputs.final, inside).view_as(rows)
        loss, correct = head_loss(rows, head, labels.view(-1, slots), usable.view(-1, slots), self.recipe.objective, teacher)
        right = correct.view(usable.shape) & usable
        accuracy = right.sum((0, 1)) / usable.sum((0, 1)).clamp(min=1)
        whole = usable.all(-1)
        commit = 1 + (right.int().cumprod(-1).sum(-1) * whole).sum() / whole.sum().clamp(min=1)
        return StepResult(loss, accuracy, commit)

    def step(self, batch: Batch, progress: float, outputs: TargetOutputs | None = None) -> StepResult:
        """One optimiser step; ``outputs`` as for :meth:`loss`."""
        result = self.loss(batch, outputs)
        self.optimiser.zero_grad(set_to_none=True)
        result.loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), self.recipe.clip)
        rate = self.learning_rate(progress)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.optimiser.step()
        self.steps += 1
        return replace(result, loss=result.loss.detach())

    def warm_up(self, stream: BatchStream) -> None:
        """Compile for every width of batch, without learning anything."""
        for bucket in stream.buckets:
            self.loss(stream.of_bucket(bucket)).loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.zero_grad(set_to_none=True)

    @torch.no_grad()
    def measure_features(self, batch: Batch) -> None:
        """Set the drafter's feature scale from one batch, and its final norm from the target's (whose head it feeds)."""
        inside = torch.arange(batch.ids.shape[1], device=batch.ids.device) < batch.lengths[:, None]
        features = self.forward.features(batch.ids)[inside].float()
        self.drafter.feature_scale.copy_(1.0 / features.square().mean(0).sqrt().clamp(min=1e-3))
        self.drafter.norm.weight.copy_(self.forward.target.norm.float())

    @torch.no_grad()
    def start_from(self, trained: Drafter) -> None:
        """Begin with the weights of a drafter of the same shape; :meth:`measure_features` comes first.

        The scale of the features is folded into the trained ``fc``, so this takes it out again.
        """
        self.drafter.load_state_dict(trained.state_dict())
        self.drafter.fc.weight.div_(self.drafter.feature_scale)

    def save(self, path: Path, spent: float) -> None:
        """Write everything needed to go on, whole or not at all. The order of the batches is not part of it: who goes on gives
        the stream another seed."""
        state = {"drafter": self.drafter.state_dict(), "scale": self.drafter.feature_scale}
        unfinished = path.with_name(f"{path.name}.unfinished")
        torch.save(state | {"optimiser": self.optimiser.state_dict(), "steps": self.steps, "spent": spent}, unfinished)
        unfinished.replace(path)

    def restore(self, path: Path) -> float:
        """Go on from :meth:`save`; returns the seconds spent before.

        Raises:
            ValueError: the file is no such state, or one of a drafter of another shape.
        """
        try:
            state = torch.load(path, map_location=self.drafter.feature_scale.device, weights_only=True)
            self.drafter.load_state_dict(state["drafter"])
            self.drafter.feature_scale.copy_(state["scale"])
            self.optimiser.load_state_dict(state["optimiser"])
            self.steps = int(state["steps"])
            return float(state["spent"])
        except (RuntimeError, UnpicklingError, EOFError, KeyError, TypeError, struct.error) as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ValueError(f"{path} is no state of this drafter's training: {reason}") from error


def teacher_rows(final: torch.Tensor, labelled: torch.Tensor) -> torch.Tensor:
    """The target's ``final [B, S, H]`` hidden states where it predicts the tokens at ``labelled [B, R]``: one position before."""
    return final.gather(1, (labelled - 1)[:, :, None].expand(-1, -1, final.shape[-1]))


def evaluate(trainer: Trainer, answers: dict[HeldOutSet, Sequences]) -> dict[HeldOutSet, CommitCounts]:
    """Chain decoding on every held-out set."""
    forward = trainer.forward
    # Neither target nor drafter compiled: evaluation has many shapes of its own, not worth a compilation each.
    plain = TargetForward(forward.target, forward.taps, trainer.drafter.shape.max_positions)
    with plain_layers(trainer.drafter):
        return {name: replay(trainer.drafter, plain, a) for name, a in answers.items()}


@contextmanager
def plain_layers(drafter: Drafter) -> Iterator[None]:
    """Run the drafter's layers uncompiled inside."""
    compiled, drafter.run_layer = drafter.run_layer, run_layer
    try:
        yield
    finally:
        drafter.run_layer = compiled


def train(
    trainer: Trainer, stream: BatchStream, answers: dict[HeldOutSet, Sequences], budget: float, until: float, spent: float,
    every: float, log: Path, state: Path | None = None, export: Path | None = None,
) -> float:  # fmt: skip
    """Steps until ``until`` seconds of ``budget`` are spent, held-out evaluations included; returns the seconds spent.

    Every ``every`` seconds and at the end the held-out commit lengths are printed and added to ``log``, the drafter is exported
    to the folder ``export``, and ``state`` is written, for a run that is cut off to go on from there; both where given.
    """
    begun = time.monotonic() - spent
    reported = time.monotonic()
    result = None
    with log.open("a", encoding="utf-8") as lines:
        while True:
            now = time.monotonic() - begun
            if now >= until or time.monotonic() - reported >= every:
                scores = {n.value: round(r.commit_length, 3) for n, r in evaluate(trainer, answers).items()}
                line = {"seconds": round(now, 1), "steps": trainer.steps, "held_out": scores}
                if result is not None:
                    slots = [round(x, 3) for x in result.slot_accuracy.tolist()]
                    loss, commit = round(float(result.loss), 3), round(float(result.commit_length), 3)
                    line |= {"loss": loss, "commit": commit, "slots": slots}
                lines.write(json.dumps(line) + "\n")
                print(json.dumps(line), flush=True)
                if export is not None:
                    trainer.drafter.export(export)
                if state is not None:
                    trainer.save(state, time.monotonic() - begun)
                reported = time.monotonic()
                if now >= until:
                    return now
            result = trainer.step(stream.next(), now / budget)
            if trainer.steps % 20 == 0 and torch.cuda.is_available():
                # Keep the clock honest: without this, queued steps would run on after the time is up.
                torch.cuda.synchronize()


def read_text(data: Path) -> tuple[Sequences, dict[HeldOutSet, Sequences], int]:
    """The sequences to train on in the folder ``data``, its answered held-out sets, and how many the leak filter dropped.

    Raises:
        ValueError: nothing is left to train on.
    """
    sequences = read_sequences(sorted(data.glob("train-*.npz")))
    answers = read_answers(data)
    leaks = leaking(sequences, prompt_tokens(answers))
    if leaks.all():
        raise ValueError(f"nothing is left to train on: all {len(leaks)} sequences share text with the held-out prompts")
    return sequences.keep(~leaks), answers, int(leaks.sum())


def add_objective(parser: argparse.ArgumentParser) -> None:
    """The options that :func:`objective_of` reads."""
    plain = Objective()
    parser.add_argument("--gamma", type=float, default=plain.gamma, help="decay of the slots' weights")
    parser.add_argument("--dpace", type=float, metavar="ALPHA", help="D-PACE's weights with this smoothing, instead of --gamma")
    parser.add_argument(
        "--soft", type=float, default=plain.soft, metavar="SHARE", help="share of the loss held against the target's distribution"
    )


def objective_of(args: argparse.Namespace) -> Objective:
    """The objective that was chosen on the command line."""
    return Objective(args.gamma, args.dpace, args.soft)


def main() -> None:
    """Train and export."""
    begun = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="the target's GGUF file")
    parser.add_argument("data", type=Path, help="folder of shards and answered held-out sets")
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--budget", type=float, default=600, help="seconds that the learning-rate schedule spans (compiling apart)"
    )
    parser.add_argument("--within", type=float, help="seconds from now on for everything: reading and compiling leave the budget")
    parser.add_argument("--until", type=float, help="pause after so many seconds of the budget (default: all of it)")
    parser.add_argument("--every", type=float, default=60, help="seconds between held-out evaluations")
    parser.add_argument("--start", type=Path, help="folder of a trained drafter whose weights to begin with")
    parser.add_argument("--resume", type=Path, help="state file of a paused run")
    parser.add_argument("--state", type=Path, help="where to keep the state for --resume, at each evaluation and at the end")
    add_objective(parser)
    parser.add_argument("--learning-rate", type=float, default=Recipe.learning_rate)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--flex", action="store_true", help="flex_attention for the drafter's attention")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.budget <= 0 or args.every <= 0:
        parser.error("--budget and --every must be more than 0 seconds")
    if args.within is not None and (args.resume or args.until is not None):
        parser.error("--within sets the budget of a run that is not cut in two: give it without --until and --resume")
    if args.resume and args.start:
        parser.error("--resume goes on with the weights of its state: give it without --start")
    torch._dynamo.config.recompile_limit = COMPILATIONS
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(args.seed)
    target = load_target(args.model).to(device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    sequences, answers, dropped = read_text(args.data)
    drafter = Drafter(DrafterShape()).to(device)
    forward = TargetForward(target, drafter.shape.taps, drafter.shape.max_positions, compiled=args.compile)
    recipe = Recipe(args.learning_rate, objective=objective_of(args), flex=args.flex, compiled=args.compile)
    trainer = Trainer(drafter, forward, recipe)
    stream = BatchStream(sequences, device, args.seed + 1000 * int(args.resume is not None))
    made = stream.answer_tokens()
    print(f"{len(sequences.lengths)} sequences, {made} answer tokens; {dropped} dropped by the leak filter", flush=True)
    print(recipe, flush=True)
    if args.resume:
        spent = trainer.restore(args.resume)
    else:
        spent = 0.0
        trainer.measure_features(stream.next())
        if args.start:
            trainer.start_from(Drafter.load(args.start))
    if args.compile:
        trainer.warm_up(stream)
    args.out.mkdir(parents=True, exist_ok=True)
    budget = args.budget if args.within is None else max(1.0, args.within - (time.monotonic() - begun))
    until = budget if args.until is None else args.until
    train(trainer, stream, answers, budget, until, spent, args.every, args.out / "log.jsonl", args.state, args.out)
    drafter.export(args.out)
    for name, result in evaluate(trainer, answers).items():
        print(f"{name.value}: commit length {result.commit_length:.3f} over {result.rounds} rounds, {list(result.histogram)}")


if __name__ == "__main__":
    run(main)
