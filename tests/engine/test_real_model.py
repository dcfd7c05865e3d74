"""The packaged target itself: its numbers are transformers', its greedy text is that of a server on a GPU."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from engine_launch.embedded.api import GenerateRequest
from engine_launch.embedded.engine import EmbeddedEngine
from engine_launch.embedded.events import SilentLog
from engine_launch.embedded.factory import build_engine
from engine_launch.embedded.gguf_reader import GgufModel
from engine_launch.embedded.model_files import get_default_model, prepare
from engine_launch.embedded.options import EngineOptions
from engine_launch.embedded.target import Segment
from engine_launch.embedded.target_loader import load_target
from engine_launch.embedded.tokenizer import ChatMessage
from tests.engine.models import Answer, greedy, submit, transformers_config

pytestmark = pytest.mark.slow

CAPTURE = json.loads((Path(__file__).parent.parent / "fixtures" / "engine" / "greedy_answer.json").read_text())
TOKENS = 40
"""The captured answer was made in bf16 on a GPU; the first tokens are far from any tie."""


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    get_default_model()
    engine = build_engine(EngineOptions(dtype="float32"), SilentLog())
    yield engine
    engine.close()


def test_the_greedy_answer_is_the_one_that_sglang_gave(engine: EmbeddedEngine) -> None:
    assert engine.tokenizer is not None
    prompt = engine.tokenizer.encode(CAPTURE["prompt"])
    assert len(prompt) == 20
    answer = submit(engine, "a", prompt, greedy(TOKENS)).wait()
    assert answer.ids == CAPTURE["output_ids"][:TOKENS]


def test_the_captured_text_and_ids_are_one_for_this_tokenizer(engine: EmbeddedEngine) -> None:
    assert engine.tokenizer is not None
    assert list(engine.tokenizer.encode(CAPTURE["text"])) == CAPTURE["output_ids"]
    assert engine.tokenizer.decode(CAPTURE["output_ids"]) == CAPTURE["text"]


def test_a_stop_string_ends_the_answer(engine: EmbeddedEngine) -> None:
    assert engine.tokenizer is not None
    prompt = engine.tokenizer.encode(CAPTURE["prompt"])
    answer = submit(engine, "a", prompt, greedy(TOKENS, stop=("merges two",))).wait()
    assert answer.last.finish is not None
    assert (answer.last.finish.type, answer.last.finish.matched) == ("stop", "merges two")
    assert engine.tokenizer.decode(answer.ids).endswith("merges two")


def test_the_models_own_chat_template_opens_the_assistants_turn(engine: EmbeddedEngine) -> None:
    assert engine.tokenizer is not None
    text = engine.tokenizer.apply_chat_template([ChatMessage("user", "Hi")])
    assert text.startswith("<|im_start|>system\n")
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    done = threading.Event()
    answer = Answer(done=done)
    engine.submit(GenerateRequest("chat", engine.tokenizer.encode(text), greedy(60)), answer)
    assert answer.wait().last.finish is not None


def test_logits_equal_transformers_on_the_same_dequantised_weights() -> None:
    from transformers import LlamaForCausalLM

    path = get_default_model()
    prepared = prepare(path, "float32")
    theirs = LlamaForCausalLM(transformers_config(prepared.config))
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_output": "self_attn.o_proj"}
    names |= {f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"} | {
        f"ffn_{p}": f"mlp.{p}_proj" for p in ("gate", "up", "down")
    }
    state = {}
    for name, values in GgufModel(path).tensors():
        tensor = torch.from_numpy(values)
        if name == "token_embd.weight":
            state["model.embed_tokens.weight"] = state["lm_head.weight"] = tensor
        elif name == "output_norm.weight":
            state["model.norm.weight"] = tensor
        else:
            _, layer, part, _ = name.split(".")
            state[f"model.layers.{layer}.{names[part]}.weight"] = tensor
    theirs.load_state_dict(state)
    ids = torch.tensor(CAPTURE["output_ids"][:64])
    ours = load_target(prepared, lambda done, total: None)
    with torch.inference_mode():
        out = ours.forward(ids, torch.arange(64), [Segment(ours.new_kv(64), 64)])
        difference = (ours.logits(out.hidden) - theirs(ids[None]).logits[0]).abs().max()
    # Logits reach about 25; fp32 differences between two orders of summation stay four orders of magnitude below.
    assert difference < 5e-3
