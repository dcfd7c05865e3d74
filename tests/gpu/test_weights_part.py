"""The checkpoint that the weight-update part makes, and how it takes an answer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.gpu.client import Client, ServerError
from tests.gpu.parts.weights import FACTOR, other_weights, update


def test_a_copy_differs_in_one_product_of_every_fourth_layer(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text("{}")
    names = [f"model.layers.{layer}.{part}.weight" for layer in (2, 3) for part in ("mlp.down_proj", "mlp.up_proj")]
    save_file({name: torch.ones(2, 2) for name in names}, target / "model.safetensors")
    found = load_file(other_weights(target, tmp_path / "other") / "model.safetensors")
    changed = "model.layers.3.mlp.down_proj.weight"
    assert {name: float(tensor[0, 0]) for name, tensor in found.items()} == {n: FACTOR if n == changed else 1.0 for n in names}
    assert (tmp_path / "other" / "config.json").read_text() == "{}"


def test_a_refusal_is_an_answer_and_a_dead_server_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    client = Client("http://127.0.0.1:1")

    def answering(status: int) -> None:
        def post(*_: object) -> None:
            raise ServerError(status, '{"success":false,"message":"DDTREE does not"}')

        monkeypatch.setattr(client, "post", post)

    answering(400)
    assert update(client, tmp_path) == (False, 'HTTP 400: {"success":false,"message":"DDTREE does not"}')
    answering(500)
    with pytest.raises(ServerError):
        update(client, tmp_path)
    monkeypatch.setattr(client, "post", lambda *_: {"success": True, "message": "taken"})
    assert update(client, tmp_path) == (True, "taken")
