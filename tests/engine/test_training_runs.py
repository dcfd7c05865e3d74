"""Training that is cut off goes on, batches without a label do no harm, and files that will not do are named in a sentence."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine_launch.embedded.api import EngineError
from engine_launch.training import dataset
from engine_launch.training.command import run
from engine_launch.training.dataset import BatchStream, Record, read_sequences, to_sequences, write_sequences
from engine_launch.training.drafter import Drafter, DrafterShape
from engine_launch.training.generate import SeedSource
from engine_launch.training.prompts import Kind, Opening
from engine_launch.training.target import TargetForward, TargetShape, random_target
from engine_launch.training.train import Recipe, Trainer, train

SHAPE = TargetShape(layers=3, hidden=32, heads=2, kv_heads=1, head_dim=16, ffn=32, vocab=128, rope_theta=1e4, rms_eps=1e-5)
DRAFTER = DrafterShape(
    hidden=32, heads=2, kv_heads=1, head_dim=16, ffn=32, vocab=128, block=4, window=8, sliding=(True, False),
    taps=(0, 2), target_layers=3, max_positions=64,
)  # fmt: skip
RECORDS = [Record(tuple(range(20 + i, 60 + i)), 10, 0, 0.0) for i in range(8)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset, "BUCKETS", ((64, 4),))


def trainer(shape: DrafterShape = DRAFTER, seed: int = 1) -> Trainer:
    torch.manual_seed(seed)
    return Trainer(Drafter(shape), TargetForward(random_target(SHAPE), shape.taps, 64), Recipe(warmup_steps=2))


def stream() -> BatchStream:
    return BatchStream(to_sequences(RECORDS), torch.device("cpu"))


def test_the_same_seeds_train_the_same_weights() -> None:
    def weights() -> torch.Tensor:
        made, batches = trainer(), stream()
        for _ in range(3):
            made.step(batches.next(), 0.1)
        return made.drafter.fc.weight.detach()

    assert torch.equal(weights(), weights())


def test_a_run_that_is_cut_off_goes_on_from_the_state_of_its_last_report(tmp_path: Path) -> None:
    made, state = trainer(), tmp_path / "state.pt"

    class CutOff(BatchStream):
        def next(self) -> dataset.Batch:
            if made.steps == 4:
                raise KeyboardInterrupt
            return super().next()

    batches = CutOff(to_sequences(RECORDS), torch.device("cpu"))
    with pytest.raises(KeyboardInterrupt):
        # A report after each step.
        train(made, batches, {}, 60, 60, 5.0, 1e-9, tmp_path / "log.jsonl", state)
    again = trainer(seed=2)
    spent = again.restore(state)
    assert 5.0 < spent < 60
    assert again.steps == 4
    assert all(torch.equal(a, b) for a, b in zip(again.drafter.parameters(), made.drafter.parameters(), strict=True))
    batch = stream().next()
    assert torch.equal(again.step(batch, 0.5).loss, made.step(batch, 0.5).loss)
    assert torch.equal(again.drafter.fc.weight, made.drafter.fc.weight), "the optimiser's state is there too"
    assert [json.loads(line)["steps"] for line in (tmp_path / "log.jsonl").read_text().splitlines()][-1] == 4
    assert [path.name for path in tmp_path.iterdir() if "unfinished" in path.name] == []


def test_a_batch_without_a_single_label_leaves_the_weights_finite() -> None:
    made = trainer()
    alone = BatchStream(to_sequences([Record((5, 6, 7), 2, 0, 0.0)] * 4), torch.device("cpu")).next()
    assert not alone.valid.any()
    result = made.step(alone, 0.1)
    assert result.loss == 0
    assert all(bool(parameter.isfinite().all()) for parameter in made.drafter.parameters())


def test_a_state_that_is_none_or_of_another_drafter_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    trainer(replace(DRAFTER, ffn=48)).save(path, 1.0)
    with pytest.raises(ValueError, match="no state of this drafter's training"):
        trainer().restore(path)
    for junk in (b"", b"junk", path.read_bytes()[:200]):
        path.write_bytes(junk)
        with pytest.raises(ValueError, match="no state of this drafter's training"):
            trainer().restore(path)


def test_shards_that_are_missing_cut_off_or_something_else_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"run engine_launch.training.generate first"):
        read_sequences([])
    path = tmp_path / "train-short-000.npz"
    write_sequences(to_sequences(RECORDS), path)
    assert len(read_sequences([path]).lengths) == len(RECORDS)
    whole = path.read_bytes()
    for broken in (whole[: len(whole) // 2], b"", b"text"):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"train-short-000.npz is no shard of training text"):
            read_sequences([path])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"window": 3}, "window of 3 tokens is smaller than the block of 4"),
        ({"taps": (0, 3)}, "are not layers of a target of 3"),
        ({"taps": (2, 0)}, "ascending"),
        ({"kv_heads": 3}, "cannot share 3 key-value heads"),
    ],
)
def test_sizes_that_do_not_fit_together_are_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(DRAFTER, **change)  # type: ignore[arg-type]


def test_a_drafter_whose_files_do_not_belong_together_is_refused(tmp_path: Path) -> None:
    Drafter(DRAFTER).export(tmp_path)
    (tmp_path / "config.json").write_text(replace(DRAFTER, ffn=48).config_json())
    with pytest.raises(ValueError, match=r"does not hold the weights of its config.json"):
        Drafter.load(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"no config.json of a trained drafter"):
        Drafter.load(tmp_path)


def test_a_pool_that_would_run_out_is_refused_before_anything_is_generated() -> None:
    with pytest.raises(ValueError, match="no openings that may be used again"):
        SeedSource([Opening(Kind.FUNCTION, (1, 2), False)], random.Random(0), 8)


@pytest.mark.parametrize("problem", [ValueError("no shards"), FileNotFoundError(2, "No such file", "x.gguf"), EngineError("no")])
def test_a_programs_user_reads_one_sentence(problem: Exception) -> None:
    def main() -> None:
        raise problem

    with pytest.raises(SystemExit) as ended:
        run(main)
    assert str(ended.value.code) == f"error: {problem}"


def test_ctrl_c_ends_a_program_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as ended:
        run(main)
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_training_run_says_what_is_wrong_with_its_files(tmp_path: Path) -> None:
    words = (sys.executable, "-m", "engine_launch.training.train", str(tmp_path / "x.gguf"), str(tmp_path), str(tmp_path / "out"))
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: ")
    assert "x.gguf" in ended.stderr
    assert "Traceback" not in ended.stderr
