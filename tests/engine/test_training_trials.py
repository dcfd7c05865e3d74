"""Trials are fair and say what they found: same batches, same start, a table, and the options of the best objective."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from engine_launch.training import dataset, trials
from engine_launch.training.dataset import BatchStream, Record, Sequences, to_sequences
from engine_launch.training.drafter import Drafter, DrafterShape
from engine_launch.training.heldout import HeldOutSet
from engine_launch.training.loss import Objective
from engine_launch.training.precompile import precompile
from engine_launch.training.target import Target, TargetForward, TargetShape, random_target
from engine_launch.training.train import Recipe, Trainer, teacher_rows, train
from engine_launch.training.trials import GROUPS, PLAIN, Group, Score, Trial, part_of, table, train_group, write_scores

SHAPE = TargetShape(layers=4, hidden=32, heads=2, kv_heads=1, head_dim=16, ffn=32, vocab=128, rope_theta=1e4, rms_eps=1e-5)
SMALL = DrafterShape(
    hidden=32, heads=2, kv_heads=1, head_dim=16, ffn=32, vocab=128, block=4, window=8, sliding=(True, False),
    taps=(0, 2), target_layers=4, max_positions=128,
)  # fmt: skip
OTHER = replace(SMALL, taps=(0, 1, 3), sliding=(True,), ffn=48)
SCRIPT = Path(trials.__file__).with_name("improve.sh")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "BUCKETS", ((64, 4),))


@pytest.fixture(scope="module")
def target() -> Target:
    return random_target(SHAPE, scale=0.15)


def sequences() -> Sequences:
    rng = np.random.default_rng(0)
    return to_sequences([Record(tuple(rng.integers(20, 120, 40).tolist()), 8, 0, 0.0) for _ in range(12)])


def stream() -> BatchStream:
    return BatchStream(sequences(), torch.device("cpu"))


def test_trials_side_by_side_are_the_same_as_one_by_one(target: Target) -> None:
    chosen = (Trial("a", Objective(), SMALL), Trial("b", Objective(dpace=0.5, soft=0.5), SMALL), Trial("c", Objective(), OTHER))

    def trained(some: tuple[Trial, ...]) -> list[torch.Tensor]:
        group = Group(target, some, 1e-3, None, seed=3)
        train_group(group, stream(), 60, steps=3)
        return [trainer.drafter.fc.weight.detach() for trainer in group.trainers]

    together = trained(chosen)
    assert all(torch.allclose(together[i], trained((trial,))[0], atol=1e-6) for i, trial in enumerate(chosen))
    assert not torch.allclose(together[0], together[1], atol=1e-6)


def test_trials_begin_with_the_trained_weights(target: Target, tmp_path: Path) -> None:
    torch.manual_seed(5)
    Drafter(SMALL).export(tmp_path)
    group = Group(target, (Trial("a", Objective(), SMALL), Trial("b", Objective(gamma=9), SMALL)), 1e-3, tmp_path, seed=3)
    group.begin(stream().next())
    trained = Drafter.load(tmp_path)
    for trainer in group.trainers:
        assert torch.allclose(trainer.drafter.fc.weight * trainer.drafter.feature_scale, trained.fc.weight, atol=1e-5)
        assert torch.equal(trainer.drafter.norm.weight, trained.norm.weight)


def test_a_part_of_a_batch_is_its_first_sequences() -> None:
    batch = stream().next()
    half = part_of(batch, 2)
    assert torch.equal(half.ids, batch.ids[:2])
    assert [len(getattr(half, name)) for name in ("anchors", "valid", "lengths", "answers")] == [2] * 4


def test_the_target_s_distribution_is_that_of_the_token_s_own_place(target: Target) -> None:
    ids = torch.from_numpy(sequences().tokens[:40].astype(np.int64))[None]
    forward = TargetForward(target, SMALL.taps, 64)
    final = forward.outputs(ids, final=True).final
    assert final is not None
    labelled = torch.tensor([[9, 10, 25]])
    predicted = teacher_rows(final, labelled) @ target.embedding.t()
    assert torch.allclose(predicted[0], forward.logits(ids)[0, [8, 9, 24]], atol=1e-5)


def test_a_drafter_gets_the_columns_of_its_own_taps(target: Target) -> None:
    ids = stream().next().ids
    both = TargetForward(target, (0, 1, 2, 3), 64).outputs(ids)
    for taps in (SMALL.taps, OTHER.taps):
        assert torch.equal(both.of(taps).features, TargetForward(target, taps, 64).features(ids))


def score(name: str, chain: float, tree: float, objective: Objective | None = None) -> Score:
    return Score(name, objective or Objective(), 19_000_000, 100, 40.0, {"code": chain, "chat": 2.0}, {"code": tree, "chat": 3.0})


def test_the_table_compares_with_the_first_trial_and_the_best_objective_can_be_trained_with(tmp_path: Path) -> None:
    scores = [score("plain", 4.0, 5.0), score("better", 4.4, 5.5, Objective(dpace=0.5, soft=0.3)), score("worse", 3.6, 4.5)]
    lines = table(scores).splitlines()
    assert lines[0] == "| trial | parameters | steps | ms a step | code | chat | against the first |"
    assert lines[3] == "| better | 19.0 M | 100 | 40.0 | 4.40 / 5.50 | 2.00 / 3.00 | +5.0 % |"
    assert [line.split("|")[-2].strip() for line in lines[2:]] == ["+0.0 %", "+5.0 %", "-5.0 %"]
    write_scores(scores, tmp_path, "objectives")
    assert (tmp_path / "objectives.best").read_text() == "--gamma 4.0 --soft 0.3 --dpace 0.5\n"
    assert [row["against_first"] for row in json.loads((tmp_path / "objectives.json").read_text())] == [1.0, 1.05, 0.95]


def test_a_trial_is_measured_as_a_chain_and_as_a_tree(target: Target) -> None:
    group = Group(target, (Trial("a", Objective(), SMALL),), 1e-3, None, seed=3)
    train_group(group, stream(), 60, steps=2)
    measured = group.score(0, {HeldOutSet.CODE: sequences()})
    assert 1 <= measured.chain["code"] <= measured.tree["code"] <= 4
    assert (measured.steps, measured.name) == (2, "a")
    assert measured.parameters == sum(p.numel() for p in Drafter(SMALL).parameters())


def test_every_shape_that_is_tried_may_be_shipped() -> None:
    for trial in GROUPS["shapes"]:
        assert 2 * sum(p.numel() for p in Drafter(trial.shape).parameters()) <= 40_000_000, trial.name
    assert [trial.shape for trial in GROUPS["objectives"]] == [PLAIN] * len(GROUPS["objectives"])
    assert GROUPS["objectives"][0].objective == GROUPS["shapes"][0].objective == Objective()


def test_a_run_that_is_cut_off_leaves_the_drafter_of_its_last_report(target: Target, tmp_path: Path) -> None:
    torch.manual_seed(1)
    made = Trainer(Drafter(SMALL), TargetForward(target, SMALL.taps, 64), Recipe(warmup_steps=2, objective=Objective(soft=0.5)))
    made.measure_features(stream().next())
    train(made, stream(), {}, 60, 0.0, 0.0, 60, tmp_path / "log.jsonl", None, tmp_path / "out")
    assert torch.allclose(Drafter.load(tmp_path / "out").norm.weight, made.drafter.norm.weight, atol=0.01)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]


def test_every_width_of_batch_is_compiled_ahead(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "BUCKETS", ((48, 2), (64, 1)))
    assert precompile(target, SMALL, Recipe()) == 2


FAKE = """#!/bin/sh
# Stands in for Python: writes down what it is asked to run, and fails where the test says so.
echo "$@" >> "$CALLS"
case "$*" in
  *precompile*) case "$FAIL" in *precompile*) exit 1 ;; esac ;;
  *generate*) case "$FAIL" in *generate*) exit 1 ;; esac ;;
  *objectives*) case "$FAIL" in *objectives*) exit 1 ;; esac; echo "--gamma 4.0 --soft 0.5" > "$5/objectives.best" ;;
  *"train "*) case "$FAIL" in *compile*) case "$*" in *--compile*) exit 1 ;; esac ;; esac ;;
esac
"""


@pytest.mark.parametrize(
    ("fail", "trained"),
    [
        ("", ["--compile --flex --gamma 4.0 --soft 0.5"]),
        ("objectives", ["--compile --flex"]),
        ("precompile", ["--gamma 4.0 --soft 0.5"]),
        ("compile", ["--compile --flex --gamma 4.0 --soft 0.5", "--gamma 4.0 --soft 0.5"]),
    ],
)
def test_a_step_that_fails_is_left_out(fail: str, trained: list[str], tmp_path: Path) -> None:
    python, calls, out = tmp_path / "python", tmp_path / "calls", tmp_path / "out"
    python.write_text(FAKE)
    python.chmod(0o755)
    files = [tmp_path / name for name in ("model.gguf", "drafter/model.safetensors", "drafter/config.json")]
    for path in files:
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    environment = {**os.environ, "PYTHON": str(python), "CALLS": str(calls), "FAIL": fail, "TRAINING": "--every 120"}
    words = (SCRIPT, files[0], tmp_path / "drafter", tmp_path / "pool", tmp_path / "held", out, "1000")
    subprocess.run([str(w) for w in words], env=environment, check=True, timeout=60)
    runs = [line.partition("--every 120")[2].strip() for line in calls.read_text().splitlines() if ".train " in line]
    assert runs == trained
    steps = (out / "steps.txt").read_text()
    assert steps.rstrip().endswith("done")
    assert steps.count("begins") == steps.count("ended with status")


def test_files_that_never_come_end_the_run(tmp_path: Path) -> None:
    begun = time.monotonic()
    words = (SCRIPT, "/none.gguf", tmp_path, "pool", "held", tmp_path / "out", "1000")
    ended = subprocess.run([str(w) for w in words], env={**os.environ, "WAITING": "1", "PYTHON": sys.executable}, check=False)
    assert ended.returncode == 1
    assert time.monotonic() - begun < 20
    assert "/none.gguf did not come" in (tmp_path / "out" / "steps.txt").read_text()
