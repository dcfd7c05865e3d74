"""Which tensors a Llama model in a GGUF file has, and of which shapes: what a file must hold before anything is made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine_launch.embedded.target_config import TargetConfig

Shape = tuple[int, ...]


def tensor_shapes(config: TargetConfig) -> Iterator[tuple[str, Shape]]:
    """Every tensor's GGUF name with its shape ``[out, in]``."""
    hidden, ffn = config.hidden_size, config.intermediate_size
    yield "token_embd.weight", (config.vocab_size, hidden)
    yield "output_norm.weight", (hidden,)
    if not config.tie_word_embeddings:
        yield "output.weight", (config.vocab_size, hidden)
    for layer in range(config.num_hidden_layers):
        block = f"blk.{layer}."
        yield block + "attn_norm.weight", (hidden,)
        yield block + "attn_q.weight", (config.q_size, hidden)
        yield block + "attn_k.weight", (config.kv_size, hidden)
        yield block + "attn_v.weight", (config.kv_size, hidden)
        yield block + "attn_output.weight", (hidden, config.q_size)
        yield block + "ffn_norm.weight", (hidden,)
        yield block + "ffn_gate.weight", (ffn, hidden)
        yield block + "ffn_up.weight", (ffn, hidden)
        yield block + "ffn_down.weight", (hidden, ffn)


def misfit(config: TargetConfig, held: Mapping[str, Shape]) -> str:
    """The first tensor of ``held`` that is not as the configuration says, in words; or an empty text."""
    wanted = dict(tensor_shapes(config))
    for name, shape in wanted.items():
        if name not in held:
            return f"the tensor {name} is missing"
        if held[name] != shape:
            return f"the tensor {name} has shape {list(held[name])}, but its configuration says {list(shape)}"
    # A tensor that nobody reads (rope_freqs of Llama 3.1, a bias, experts) would make it another model without a word.
    beyond = next((name for name in held if name not in wanted), None)
    return "" if beyond is None else f"the tensor {beyond} has no part in a model of its configuration as it is run here"
