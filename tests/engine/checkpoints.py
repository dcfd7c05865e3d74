"""Checkpoints for tests: drafters of the right form without training, and the configuration of a target that they fit."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from engine_launch.spec.drafter_check import expected_shapes
from engine_launch.spec.drafter_config import parse_drafter_config

TARGET_HIDDEN = 576
DRAFTER_CONFIG = {
    "architectures": ["DFlashDraftModel"],
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 2,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 49152,
    "block_size": 8,
    "num_target_layers": 30,
    "layer_types": ["sliding_attention", "full_attention"],
    "use_sliding_window": True,
    "sliding_window": 512,
    "dflash_config": {"mask_token_id": 16, "target_layer_ids": [1, 15, 27]},
}


def _shapes() -> dict[str, tuple[int, ...]]:
    config = parse_drafter_config(json.dumps(DRAFTER_CONFIG))
    return expected_shapes(config, len(config.target_layer_ids or ()), TARGET_HIDDEN)


def write_drafter(folder: Path, **changes: object) -> Path:
    """A checkpoint whose header lists every tensor and whose file has their size (a hole, no data)."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {**DRAFTER_CONFIG, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    header, offset = {}, 0
    for name, shape in _shapes().items():
        size = 2
        for side in shape:
            size *= side
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)
    return folder


def write_untrained_drafter(folder: Path) -> Path:
    """A checkpoint that loads and drafts nonsense: small random projections, norms of one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(DRAFTER_CONFIG))
    random = np.random.default_rng(0)
    save_file(
        {
            name: (np.ones(shape) if len(shape) == 1 else random.normal(0, 0.02, shape)).astype(np.float32)
            for name, shape in _shapes().items()
        },
        folder / "model.safetensors",
    )
    return folder


def write_target(folder: Path, **changes: object) -> Path:
    """A target's folder with its configuration alone."""
    folder.mkdir(parents=True)
    config = {"hidden_size": 576, "num_hidden_layers": 30, "vocab_size": 49152, **changes}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def flags_for(tmp_path: Path, *more: str, **changes: object) -> list[str]:
    """Flags that start DDTREE with a drafter and a target that fit; ``changes`` are of the target's configuration."""
    drafter, model = write_drafter(tmp_path / "drafter"), write_target(tmp_path / "target", **changes)
    head = (
        f"--model-path {model} --speculative-draft-model-path {drafter} --speculative-algorithm DDTREE --attention-backend triton"
    )
    return [*head.split(), *more]
