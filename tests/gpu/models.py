"""Targets and drafters with random weights, in the shapes that people serve: written where they are used, from a seed.

Weights of a real file are random but large enough that attention decides which token comes next: a wrong mask must change the
text. (SGLang's own ``--load-format dummy`` makes weights so small that every token follows from the last one alone; it is used
for the 8B shape, where only time is measured.)
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

BLOCK = 8
MASK_TOKEN = 15
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
Config = dict[str, Any]

DENSE_8B: Config = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000.0,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}
"""The shape of Qwen3-8B."""

DENSE_SMALL: Config = DENSE_8B | {
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 6,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 8192,
    "max_position_embeddings": 8192,
}
"""Everything divides by two, four and eight, for tensor parallelism."""

MLA_MOE: Config = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 512,
    "intermediate_size": 1536,
    "moe_intermediate_size": 128,
    "num_hidden_layers": 6,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_routed_experts": 384,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.827,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "q_lora_rank": 256,
    # K2's are 512 and 64; this is the other pair that SGLang's Triton kernels are written for, and it fits in fp32.
    "kv_lora_rank": 256,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 64,
    "v_head_dim": 64,
    "vocab_size": 8192,
    "max_position_embeddings": 8192,
    "rope_theta": 50000.0,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "num_nextn_predict_layers": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}
"""Kimi K2.6's architecture (multi-head latent attention, 384 experts with sigmoid routing), a few narrow layers of it.

The number of experts and of heads is K2's, so that SGLang takes the kernels that it takes there.
"""

TARGETS: Mapping[str, Config] = {"dense-8b": DENSE_8B, "dense-small": DENSE_SMALL, "mla-moe": MLA_MOE}


def drafter_config(target: Config, layers: int, sliding: int, window: int = 2048) -> Config:
    """A DFlash drafter for ``target``: ``sliding`` of its ``layers`` have the window, the last ones see everything."""
    depth = int(target["num_hidden_layers"])
    hidden = int(target["hidden_size"])
    # Eight at least, so that eight ranks can share them.
    heads = max(8, hidden // 128)
    # At most as many taps as the target has layers between its first and its third from last.
    taps = sorted({round(1 + i * (depth - 4) / max(1, layers - 1)) for i in range(layers)})
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": hidden,
        "intermediate_size": int(target["intermediate_size"]),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": max(2, heads // 4),
        "head_dim": 128,
        "vocab_size": target["vocab_size"],
        "max_position_embeddings": target["max_position_embeddings"],
        "rope_theta": target["rope_theta"],
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "block_size": BLOCK,
        "num_target_layers": depth,
        "layer_types": ["sliding_attention"] * sliding + ["full_attention"] * (layers - sliding),
        "use_sliding_window": sliding > 0,
        "sliding_window": window if sliding else None,
        "max_window_layers": layers,
        "dflash_config": {"mask_token_id": MASK_TOKEN, "target_layer_ids": taps},
        "torch_dtype": "bfloat16",
    }


def write_configs(name: str, folder: Path, tokenizer: Path, *, layers: int, sliding: int) -> tuple[Path, Path]:
    """Folders of a target and its drafter without weights; both get the tokenizer's files."""
    target, drafter = folder / name, folder / f"{name}-drafter"
    config = TARGETS[name]
    for place, content in ((target, config), (drafter, drafter_config(config, layers, sliding))):
        place.mkdir(parents=True, exist_ok=True)
        (place / "config.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
        for file in TOKENIZER_FILES:
            shutil.copy(tokenizer / file, place / file)
    return target, drafter


def write_weights(target: Path, drafter: Path, seed: int = 7) -> None:
    """Random bf16 weights for two folders that :func:`write_configs` made."""
    threads = torch.get_num_threads()
    # Thousands of small tensors: several threads would spend their time waiting for one another, and for other processes.
    torch.set_num_threads(1)
    try:
        _write_weights(target, drafter, seed)
    finally:
        torch.set_num_threads(threads)


def _write_weights(target: Path, drafter: Path, seed: int) -> None:
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    shapes = TENSORS[config["model_type"]](config)
    _save(dict(shapes), target, seed, _steady_routing if "n_routed_experts" in config else None)
    draft = json.loads((drafter / "config.json").read_text(encoding="utf-8"))
    _save(dict(drafter_shapes(draft)), drafter, seed + 1)


def _save(
    shapes: Mapping[str, tuple[int, ...]],
    folder: Path,
    seed: int,
    change: Callable[[dict[str, Tensor], torch.Generator], None] | None = None,
) -> None:
    source = torch.Generator().manual_seed(seed)
    tensors = {name: _random(name, shape, source) for name, shape in shapes.items()}
    if change is not None:
        change(tensors, source)
    # Put in place whole: another run may look for it at the same time.
    part = folder / f"model.part{os.getpid()}"
    save_file(tensors, part, metadata={"format": "pt"})
    part.replace(folder / "model.safetensors")


def _random(name: str, shape: tuple[int, ...], source: torch.Generator) -> Tensor:
    if name.endswith("norm.weight") or "layernorm" in name:
        return torch.ones(shape, dtype=torch.bfloat16)
    if name.endswith("e_score_correction_bias"):
        return torch.randn(shape, generator=source) * 0.01
    # Each layer adds about as much as the embedding brings; scaled by what goes in, so that no width saturates.
    scale = 1.0 if name.endswith("embed_tokens.weight") else 1.5 / float(shape[-1]) ** 0.5
    return (torch.randn(shape, generator=source) * scale).to(torch.bfloat16)


def _steady_routing(tensors: dict[str, Tensor], source: torch.Generator) -> None:
    """Let a token's kind decide its experts, so that rounding does not.

    With random weights alone the scores of the 8th and the 9th of 384 experts lie so close together (in the median 0.0024, in one
    token of a hundred under 0.00005) that plain decoding in fp32 differs from itself between batch sizes in half of the answers.
    So the last channels of the residual stream say of which kind a token is; no layer writes there, and each router prefers eight
    experts of its own for each kind, by far: over a thousand random tokens the gap is 0.67 at least.
    """
    kinds, chosen = 16, 8
    embedding = tensors["model.embed_tokens.weight"]
    embedding[:, -kinds:] = 0
    embedding[torch.arange(len(embedding)), torch.arange(len(embedding)) % kinds - kinds] = 16
    for name, tensor in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensor[-kinds:] = 0
        elif name.endswith("mlp.gate.weight"):
            tensor *= 0.5
            for kind in range(kinds):
                tensor[:, kind - kinds] = -6
                tensor[torch.randperm(len(tensor), generator=source)[:chosen], kind - kinds] = 2


Shapes = Iterator[tuple[str, tuple[int, ...]]]


def dense_shapes(c: Config) -> Shapes:
    """Tensors of a Qwen3 checkpoint."""
    yield from _frame(c)
    for layer in range(c["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        yield from _grouped_attention(c, prefix)
        yield from _mlp(prefix + "mlp.", c["hidden_size"], c["intermediate_size"])
        yield from _norms(c, prefix)


def mla_moe_shapes(c: Config) -> Shapes:
    """Tensors of a DeepSeek-V3 checkpoint without quantisation."""
    yield from _frame(c)
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    query = c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
    for layer in range(c["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        attention = prefix + "self_attn."
        yield attention + "q_a_proj.weight", (c["q_lora_rank"], hidden)
        yield attention + "q_a_layernorm.weight", (c["q_lora_rank"],)
        yield attention + "q_b_proj.weight", (heads * query, c["q_lora_rank"])
        yield attention + "kv_a_proj_with_mqa.weight", (c["kv_lora_rank"] + c["qk_rope_head_dim"], hidden)
        yield attention + "kv_a_layernorm.weight", (c["kv_lora_rank"],)
        yield attention + "kv_b_proj.weight", (heads * (c["qk_nope_head_dim"] + c["v_head_dim"]), c["kv_lora_rank"])
        yield attention + "o_proj.weight", (hidden, heads * c["v_head_dim"])
        if layer < c["first_k_dense_replace"]:
            yield from _mlp(prefix + "mlp.", hidden, c["intermediate_size"])
        else:
            yield prefix + "mlp.gate.weight", (c["n_routed_experts"], hidden)
            yield prefix + "mlp.gate.e_score_correction_bias", (c["n_routed_experts"],)
            for expert in range(c["n_routed_experts"]):
                yield from _mlp(f"{prefix}mlp.experts.{expert}.", hidden, c["moe_intermediate_size"])
            yield from _mlp(prefix + "mlp.shared_experts.", hidden, c["moe_intermediate_size"] * c["n_shared_experts"])
        yield from _norms(c, prefix)


def drafter_shapes(c: Config) -> Shapes:
    """Tensors of a DFlash checkpoint (z-lab's names)."""
    hidden = c["hidden_size"]
    yield "fc.weight", (hidden, len(c["dflash_config"]["target_layer_ids"]) * hidden)
    yield "hidden_norm.weight", (hidden,)
    yield "norm.weight", (hidden,)
    for layer in range(c["num_hidden_layers"]):
        prefix = f"layers.{layer}."
        yield from _grouped_attention(c, prefix)
        yield from _mlp(prefix + "mlp.", hidden, c["intermediate_size"])
        yield from _norms(c, prefix)


def _frame(c: Config) -> Shapes:
    yield "model.embed_tokens.weight", (c["vocab_size"], c["hidden_size"])
    yield "model.norm.weight", (c["hidden_size"],)
    yield "lm_head.weight", (c["vocab_size"], c["hidden_size"])


def _norms(c: Config, prefix: str) -> Shapes:
    yield prefix + "input_layernorm.weight", (c["hidden_size"],)
    yield prefix + "post_attention_layernorm.weight", (c["hidden_size"],)


def _mlp(prefix: str, hidden: int, inner: int) -> Shapes:
    yield prefix + "gate_proj.weight", (inner, hidden)
    yield prefix + "up_proj.weight", (inner, hidden)
    yield prefix + "down_proj.weight", (hidden, inner)


def _grouped_attention(c: Config, prefix: str) -> Shapes:
    head, hidden = c["head_dim"], c["hidden_size"]
    query, keys = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    yield prefix + "self_attn.q_proj.weight", (query, hidden)
    yield prefix + "self_attn.k_proj.weight", (keys, hidden)
    yield prefix + "self_attn.v_proj.weight", (keys, hidden)
    yield prefix + "self_attn.o_proj.weight", (hidden, query)
    yield prefix + "self_attn.q_norm.weight", (head,)
    yield prefix + "self_attn.k_norm.weight", (head,)


TENSORS: Mapping[str, Callable[[Config], Shapes]] = {"qwen3": dense_shapes, "deepseek_v3": mla_moe_shapes}
