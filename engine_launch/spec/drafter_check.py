"""A drafter's configuration and tensors against the target that it is to draft for.

Pure. The errors here are the ones that would otherwise surface as a failed load, or, worse, as a server that runs and
accepts nothing (a tap off by one layer, a mask token outside the vocabulary).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from engine_launch.spec.drafter_config import DrafterConfig, default_target_layers

Shapes = Mapping[str, tuple[int, ...]]
"""Tensor name → shape, as a safetensors header lists them."""


class Severity(Enum):
    ERROR = "error"
    """It cannot draft for this target."""
    WARNING = "warning"
    """It can, but something is not as it is usually meant."""


@dataclass(frozen=True)
class Finding:
    severity: Severity
    message: str
    """One sentence."""


@dataclass(frozen=True)
class TargetShape:
    """What of a target a drafter must fit."""

    name: str
    hidden_size: int
    num_layers: int
    vocab_size: int


def taps(config: DrafterConfig, target: TargetShape) -> tuple[int, ...]:
    """The target layers that it reads: as configured, else those that DFlash's own formula picks for this target."""
    return config.target_layer_ids or default_target_layers(config.num_layers, target.num_layers)


def ranks_problem(config: DrafterConfig, ranks: int) -> str:
    """Why so many ranks (``--tp-size``) cannot share the drafter out, or an empty text.

    Source: SGLang 0.5.17, ``DFlashAttention``, which ends by an assertion. A KV head may be held by several ranks.
    """
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    if heads % ranks:
        return f"its {heads} attention heads do not divide by --tp-size {ranks}."
    if kv_heads % ranks and ranks % kv_heads:
        return f"its {kv_heads} KV heads and --tp-size {ranks} do not divide by each other."
    return ""


def capture_problem(config: DrafterConfig, target: TargetShape) -> str:
    """Why SGLang would not give the drafter the features that it was trained with, or an empty text.

    Source: SGLang 0.5.17's models, which keep what goes into a layer: each once, in the order of the layers, and nothing behind
    the last one. The embedded engine takes them as they are listed.
    """
    read = taps(config, target)
    if max(read) == target.num_layers - 1:
        return f"target_layer_ids names layer {max(read)}, the last one of {target.name}, whose output SGLang does not capture."
    if list(read) != sorted(set(read)):
        listed = ", ".join(map(str, read))
        return f"target_layer_ids is {listed}, but SGLang captures each layer once and in their order."
    return ""


def expected_shapes(config: DrafterConfig, tapped: int, target_hidden: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of a DFlash checkpoint (z-lab's names) with its shape ``[out, in]``.

    Args:
        tapped: how many target layers it reads.
        target_hidden: the target's hidden size.
    """
    hidden, ffn = config.hidden_size, config.intermediate_size
    q, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, tapped * target_hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    for layer in range(config.num_layers):
        prefix = f"layers.{layer}."
        shapes |= {
            f"{prefix}self_attn.q_proj.weight": (q, hidden),
            f"{prefix}self_attn.k_proj.weight": (kv, hidden),
            f"{prefix}self_attn.v_proj.weight": (kv, hidden),
            f"{prefix}self_attn.o_proj.weight": (hidden, q),
            f"{prefix}self_attn.q_norm.weight": (config.head_dim,),
            f"{prefix}self_attn.k_norm.weight": (config.head_dim,),
            f"{prefix}mlp.gate_proj.weight": (ffn, hidden),
            f"{prefix}mlp.up_proj.weight": (ffn, hidden),
            f"{prefix}mlp.down_proj.weight": (hidden, ffn),
            f"{prefix}input_layernorm.weight": (hidden,),
            f"{prefix}post_attention_layernorm.weight": (hidden,),
        }
    return shapes


def check_drafter(config: DrafterConfig, target: TargetShape, shapes: Shapes | None) -> tuple[Finding, ...]:
    """What is wrong with drafting for ``target`` with this checkpoint, worst first.

    Args:
        shapes: the checkpoint's tensors; ``None`` leaves them unchecked.
    """
    errors = [*_config_errors(config, target), *(_tensor_errors(config, target, shapes) if shapes is not None else ())]
    warnings = _warnings(config, target)
    return (
        *(Finding(Severity.ERROR, message) for message in errors),
        *(Finding(Severity.WARNING, message) for message in warnings),
    )


def _config_errors(config: DrafterConfig, target: TargetShape) -> list[str]:
    errors = []
    if config.hidden_size != target.hidden_size:
        errors.append(
            f"hidden_size is {config.hidden_size}, but {target.name}'s is {target.hidden_size}, and a drafter borrows the "
            "target's embedding."
        )
    if config.vocab_size != target.vocab_size:
        errors.append(f"vocab_size is {config.vocab_size}, but {target.name}'s is {target.vocab_size}.")
    if config.num_target_layers is not None and config.num_target_layers != target.num_layers:
        errors.append(f"num_target_layers is {config.num_target_layers}, but {target.name} has {target.num_layers} layers.")
    last_tap = max(taps(config, target))
    if last_tap >= target.num_layers:
        errors.append(f"target_layer_ids names layer {last_tap}, but {target.name}'s layers are 0 to {target.num_layers - 1}.")
    if config.mask_token_id is None:
        errors.append("dflash_config.mask_token_id is missing.")
    return errors


def _tensor_errors(config: DrafterConfig, target: TargetShape, shapes: Shapes) -> list[str]:
    expected = expected_shapes(config, len(taps(config, target)), target.hidden_size)
    missing = [name for name in expected if name not in shapes]
    wrong = [name for name, shape in expected.items() if name in shapes and tuple(shapes[name]) != shape]
    errors = []
    if missing:
        errors.append(f"{len(missing)} of {len(expected)} tensors are missing, the first is {missing[0]}.")
    if wrong:
        name = wrong[0]
        errors.append(f"{name} has shape {list(shapes[name])}, but the configuration says {list(expected[name])}.")
    return errors


def _warnings(config: DrafterConfig, target: TargetShape) -> list[str]:
    warnings = []
    if config.sliding_layers and config.sliding_window is None:
        warnings.append(
            f"{config.sliding_layers} layers are sliding_attention, but use_sliding_window is false: they run as full ones."
        )
    if config.is_causal is not None:
        warnings.append(
            "is_causal is set: SGLang 0.5.17 applies it to full-attention layers only, the embedded engine to all layers."
        )
    if config.rope_scaling_type is not None:
        warnings.append(f"rope scaling {config.rope_scaling_type!r} is set; the embedded engine runs plain RoPE only.")
    return warnings
