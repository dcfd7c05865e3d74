"""Written random targets are checkpoints that transformers reads whole, and whose text depends on what is attended to."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from engine_launch.commands.checkpoint import read_checkpoint
from engine_launch.spec.drafter_check import Severity, TargetShape, check_drafter
from tests.gpu import models, setups

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


def test_rounding_chooses_no_experts(small: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    target, drafter = models.write_configs("mla-moe", tmp_path, small, layers=6, sliding=5)
    models.write_weights(target, drafter)
    model: Any = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    noise = torch.Generator().manual_seed(1)
    gaps: list[float] = []
    chosen: set[tuple[int, ...]] = set()
    relative = 0.0

    def look(gate: Any, inputs: tuple[Any, ...], _: object) -> None:
        rows = inputs[0].reshape(-1, gate.weight.shape[1])
        scores = torch.sigmoid(rows @ gate.weight.T) + gate.e_score_correction_bias
        best = scores.topk(9, dim=-1)
        gaps.append(float((best.values[:, 7] - best.values[:, 8]).min()))
        chosen.update((id(gate), *sorted(row)) for row in best.indices[:, :8].tolist())

    def disturb(_: object, __: object, hidden: Any) -> Any:
        return hidden * (1 + relative * torch.randn(hidden.shape, generator=noise))

    for layer in model.model.layers:
        layer.register_forward_hook(disturb)
        if hasattr(layer.mlp, "gate"):
            layer.mlp.gate.register_forward_hook(look)
    ids = torch.randint(100, 512, (4, 48), generator=torch.Generator().manual_seed(2))
    with torch.inference_mode():
        calm = model(ids).logits
        routes = set(chosen)
        relative = 1e-5
        noisy = model(ids).logits
    assert min(gaps) > 0.2
    # Sixteen kinds in five layers: which experts a token takes depends on the token.
    assert len(routes) > 60
    assert chosen == routes
    assert float((calm - noisy).abs().max()) < 0.01 * float(calm.std())
    assert len(calm.argmax(-1).unique()) > 50


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


def test_who_needs_a_target_meanwhile_waits_for_it(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small.rename(tmp_path / "target")
    written: list[Path] = []
    begun, go_on = threading.Event(), threading.Event()

    def write(target: Path, _: Path) -> None:
        written.append(target)
        begun.set()
        assert go_on.wait(10)

    monkeypatch.setattr(setups, "write_weights", write)
    found: list[tuple[Path, Path]] = []
    lanes = [threading.Thread(target=lambda: found.append(setups.random_model(tmp_path, "mla-moe"))) for _ in range(2)]
    for lane in lanes:
        lane.start()
    assert begun.wait(10)
    lanes[0].join(0.2)
    assert found == []
    go_on.set()
    for lane in lanes:
        lane.join(10)
    assert len(found) == 2
    assert written == [tmp_path / "random" / "mla-moe"]
    assert (found[0][1] / "config.json").is_file()
    # A target whose weights the server makes up has no need of it.
    monkeypatch.setitem(models.TARGETS, "dense-8b", models.DENSE_SMALL)
    setups.random_model(tmp_path, "dense-8b")
    assert len(written) == 1


def test_ranks_share_one_of_their_gpus_with_the_server_that_they_are_held_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setups, "random_model", lambda store, name: (store / name, store / f"{name}-drafter"))
    many, one = (setups.setup(f"dense-{name}", tmp_path, 2) for name in ("many", "one"))
    assert (many.ranks, one.ranks) == (2, 1)
    assert "--tp-size=2" in many.flags
    # SGLang ends a start that finds a tenth less memory free on one GPU than on another, unless told not to.
    assert many.environment["SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK"] == "0"
    assert many.environment["TRITON_F32_DEFAULT"] == "tf32x3"
