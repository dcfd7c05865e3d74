"""Proof that stock SGLang loads the drafter: writes the target in Hugging Face's form, and measures a running server.

``python -m engine_launch.training.sglang_check export MODEL.gguf FOLDER`` writes the target for ``--model-path``;
``python -m engine_launch.training.sglang_check measure URL HELD_OUT.json`` sends the held-out prompts at temperature 0 and
prints the server's own commit lengths. ``docs/drafter.md`` has the server's command line.
"""

from __future__ import annotations

import argparse
import json
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from engine_launch.embedded.gguf_reader import GgufModel
from engine_launch.embedded.tokenizer import build_bpe
from engine_launch.training.command import run
from engine_launch.training.heldout import ANSWER_LIMIT, read_prompts

PROJECTIONS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
TOP_LEVEL = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
REQUESTS_AT_ONCE = 16


def hugging_face_name(gguf_name: str) -> str:
    """``LlamaForCausalLM``'s name of a GGUF tensor; :class:`KeyError` when there is none."""
    if gguf_name in TOP_LEVEL:
        return TOP_LEVEL[gguf_name]
    _, layer, part, suffix = gguf_name.split(".")
    return f"model.layers.{layer}.{PROJECTIONS[part]}.{suffix}"


def export_target(gguf: Path, folder: Path) -> None:
    """Write ``config.json``, bf16 ``model.safetensors`` and the tokenizer of a Llama GGUF file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = GgufModel(gguf)
    c, data = file.config, file.tokenizer_data()
    tensors = {hugging_face_name(name): torch.from_numpy(values).bfloat16() for name, values in file.tensors()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "bos_token_id": data.bos_token_id,
        "dtype": "bfloat16",
        "eos_token_id": data.eos_token_id,
        "head_dim": c.head_dim,
        "hidden_act": "silu",
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "max_position_embeddings": c.max_position_embeddings,
        "mlp_bias": False,
        "num_attention_heads": c.num_attention_heads,
        "num_hidden_layers": c.num_hidden_layers,
        "num_key_value_heads": c.num_key_value_heads,
        "rms_norm_eps": c.rms_norm_eps,
        "rope_theta": c.rope_theta,
        "tie_word_embeddings": c.tie_word_embeddings,
        "vocab_size": c.vocab_size,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    build_bpe(data).save(str(folder / "tokenizer.json"))
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": data.tokens[data.eos_token_id]}
    about |= {"chat_template": data.chat_template or ""}
    if data.bos_token_id is not None:
        about |= {"bos_token": data.tokens[data.bos_token_id]}
    (folder / "tokenizer_config.json").write_text(json.dumps(about | {"clean_up_tokenization_spaces": False}), encoding="utf-8")


@dataclass(frozen=True)
class Answer:
    """What a server says of one answer. ``verifies`` and the histogram are 0 and empty without speculation."""

    tokens: int
    verifies: int
    histogram: tuple[int, ...]


def ask(url: str, prompt: tuple[int, ...]) -> Answer:
    """One greedy answer from ``/generate``; :class:`OSError` when the server cannot be reached or refuses."""
    sampling = {"temperature": 0, "max_new_tokens": ANSWER_LIMIT}
    body = json.dumps({"input_ids": list(prompt), "sampling_params": sampling}).encode()
    request = urllib.request.Request(f"{url}/generate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as response:
        meta = json.load(response)["meta_info"]
    histogram = meta.get("spec_correct_drafts_histogram") or []
    return Answer(int(meta["completion_tokens"]), int(meta.get("spec_verify_ct") or 0), tuple(int(n) for n in histogram))


def measure(url: str, held_out: Path, limit: int | None) -> None:
    """Print commit length, histogram and throughput by set."""
    for name, rows in read_prompts(held_out).items():
        prompts = rows[:limit]
        begun = time.monotonic()
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
            answers = list(pool.map(lambda p: ask(url, p), prompts))
        seconds = time.monotonic() - begun
        tokens, verifies = sum(a.tokens for a in answers), sum(a.verifies for a in answers)
        width = max(len(a.histogram) for a in answers)
        histogram = [sum(a.histogram[i] for a in answers if i < len(a.histogram)) for i in range(width)]
        # The first token of each answer comes from prefill, not from a verify.
        commit = f"commit length {(tokens - len(answers)) / verifies:.3f}" if verifies else "no speculation"
        print(f"{name.value}: {commit}, {tokens / seconds:.0f} tok/s, {len(answers)} prompts, {histogram}", flush=True)


def main() -> None:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="write the target for SGLang")
    export.add_argument("model", type=Path, help="the target's GGUF file")
    export.add_argument("folder", type=Path)
    run = commands.add_parser("measure", help="measure a running server")
    run.add_argument("url")
    run.add_argument("held_out", type=Path, help="tokenised prompts written by engine_launch.training.heldout")
    run.add_argument("--limit", type=int, help="prompts per set")
    args = parser.parse_args()
    if args.command == "export":
        export_target(args.model, args.folder)
    else:
        measure(args.url, args.held_out, args.limit)


if __name__ == "__main__":
    run(main)
