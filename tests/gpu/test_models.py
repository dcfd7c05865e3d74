"""Written random targets are checkpoints that transformers reads whole, and whose text depends on what is attended to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from engine_launch.commands.checkpoint import read_checkpoint
from engine_launch.spec.drafter_check import Severity, TargetShape, check_drafter
from tests.gpu import models

TOKENIZER = dict.fromkeys(models.TOKENIZER_FILES, "{}")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A tokenizer's folder, and both shapes narrowed so that writing them takes a moment."""
    narrow = {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256}
    few = {"moe_intermediate_size": 64, "n_routed_experts": 16, "num_attention_heads": 8, "num_key_value_heads": 8}
    shapes = {"dense-small": models.DENSE_SMALL | narrow, "mla-moe": models.MLA_MOE | narrow | few}
    monkeypatch.setattr(models, "TARGETS", shapes)
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    for name, content in TOKENIZER.items():
        (folder / name).write_text(content, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", ["dense-small", "mla-moe"])
def test_transformers_finds_every_weight_and_no_other(small: Path, tmp_path: Path, name: str) -> None:
    from transformers import AutoModelForCausalLM

    target, drafter = models.write_configs(name, tmp_path, small, layers=6, sliding=5)
    models.write_weights(target, drafter)
    loaded: Any = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32, output_loading_info=True)
    model, info = loaded
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    ids = torch.arange(100, 140)[None]
    with torch.inference_mode():
        one = model(ids).logits[0, -1]
        other = model(torch.cat([ids[:, 5:6], ids[:, 1:]], dim=1)).logits[0, -1]
    # Another first token moves the best logits of the last place by more than rounding does.
    assert float((one - other).abs().max()) > 0.01 * float(one.std())


@pytest.mark.parametrize("name", ["dense-small", "mla-moe"])
def test_the_drafter_fits_its_target(small: Path, tmp_path: Path, name: str) -> None:
    target, drafter = models.write_configs(name, tmp_path, small, layers=6, sliding=5)
    models.write_weights(target, drafter)
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    shape = TargetShape(name, config["hidden_size"], config["num_hidden_layers"], config["vocab_size"])
    checkpoint = read_checkpoint(drafter)
    findings = check_drafter(checkpoint.config, shape, checkpoint.shapes)
    assert [finding.message for finding in findings if finding.severity is Severity.ERROR] == []
    assert checkpoint.config.window_text == "5 of 6 layers sliding, 2048"


def test_weights_are_the_same_each_time(small: Path, tmp_path: Path) -> None:
    digests = []
    for attempt in ("one", "two"):
        target, drafter = models.write_configs("dense-small", tmp_path / attempt, small, layers=2, sliding=1)
        models.write_weights(target, drafter)
        digests.append((target / "model.safetensors").read_bytes())
    assert digests[0] == digests[1]
