"""Writing the dequantised copy of a GGUF file: fused weights as safetensors, configuration, tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from engine_launch.embedded.gguf_reader import GgufModel
from engine_launch.embedded.model_files import Progress
from engine_launch.embedded.target_config import TargetConfig
from engine_launch.embedded.tokenizer import Tokenizer

TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def write_prepared(gguf: Path, dtype: str, folder: Path, progress: Progress) -> TargetConfig:
    """Dequantise ``gguf`` into ``folder``.

    Raises:
        EngineError: the file cannot be read.
        OSError: the folder cannot be written.
    """
    model = GgufModel(gguf)
    raw: dict[str, torch.Tensor] = {}
    for done, (name, values) in enumerate(model.tensors(), start=1):
        raw[name] = torch.from_numpy(values)
        progress(done, model.tensor_count)
    fused = fuse_weights(raw, model.config)
    weights = {name: tensor.to(TORCH_DTYPES[dtype]).contiguous() for name, tensor in fused.items()}
    try:
        save_file(weights, folder / "weights.safetensors")
    except SafetensorError as error:  # also what the disk says
        raise OSError(str(error)) from error
    Tokenizer.build(model.tokenizer_data()).save(folder)
    (folder / "config.json").write_text(json.dumps(model.config.to_json(), indent=1), encoding="utf-8")
    return model.config


def fuse_weights(raw: dict[str, torch.Tensor], config: TargetConfig) -> dict[str, torch.Tensor]:
    """GGUF's tensors under the engine's names, with Q/K/V and gate/up each joined into one matrix.

    One large product is cheaper than three small ones when a forward has only a few rows.
    """
    fused = {"embed": raw["token_embd.weight"], "norm": raw["output_norm.weight"]}
    if not config.tie_word_embeddings:
        fused["lm_head"] = raw["output.weight"]
    for layer in range(config.num_hidden_layers):
        block = f"blk.{layer}."
        fused[f"layers.{layer}.attn_norm"] = raw[block + "attn_norm.weight"]
        fused[f"layers.{layer}.qkv"] = torch.cat([raw[block + f"attn_{part}.weight"] for part in "qkv"])
        fused[f"layers.{layer}.o"] = raw[block + "attn_output.weight"]
        fused[f"layers.{layer}.mlp_norm"] = raw[block + "ffn_norm.weight"]
        fused[f"layers.{layer}.gate_up"] = torch.cat([raw[block + "ffn_gate.weight"], raw[block + "ffn_up.weight"]])
        fused[f"layers.{layer}.down"] = raw[block + "ffn_down.weight"]
    return fused
