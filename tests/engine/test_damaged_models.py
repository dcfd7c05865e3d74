"""Model files that are damaged, or hold other things than their keys say: each is refused with what is wrong in it."""

from __future__ import annotations

import contextlib
import math
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_launch.embedded import model_files
from engine_launch.embedded.api import EngineError
from engine_launch.embedded.gguf_reader import GgufModel
from engine_launch.embedded.model_files import prepare
from tests.engine.test_model_files import vocabulary, write_gguf


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(model_files.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def rewritten(
    path: Path, *, key: str = "", value: Any = None, tensor: str = "", change: Callable[[Any], Any] | None = None
) -> Path:
    """The tiny model with one key's value changed (left out with ``None``), or one tensor (left out without ``change``)."""

    class Writer(gguf.GGUFWriter):
        def add_key_value(self, name: str, given: Any, *more: Any, **others: Any) -> None:  # type: ignore[override]
            if name != key or value is not None:
                super().add_key_value(name, value if name == key else given, *more, **others)

        def add_tensor(self, name: str, given: Any, *more: Any, **others: Any) -> None:  # type: ignore[override]
            if name != tensor or change is not None:
                super().add_tensor(name, change(given) if change and name == tensor else given, *more, **others)

    write_gguf(path, writer=Writer)
    return path


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("llama.block_count", None, "lacks the key llama.block_count"),
        ("llama.block_count", 0, "llama.block_count is 0"),
        ("llama.block_count", 9, "the tensor blk.3.attn_norm.weight is missing"),
        ("llama.block_count", 2, "the tensor blk.2.attn_norm.weight has no part in a model of its configuration"),
        ("llama.context_length", 1 << 31, "llama.context_length is"),
        ("llama.attention.head_count", 0, "head_count is 0"),
        ("llama.attention.head_count", 5, "no attention of Llama's"),
        ("llama.attention.head_count_kv", None, r"attn_k.weight has shape \[8, 24\], but its configuration says \[24, 24\]"),
        ("llama.rope.dimension_count", 3, "no attention of Llama's"),
        ("llama.rope.freq_base", math.nan, "freq_base is nan"),
        ("llama.attention.layer_norm_rms_epsilon", 0.0, "a number above 0 is needed"),
        ("llama.feed_forward_length", 3, "ffn_gate.weight has shape"),
        ("tokenizer.ggml.merges", None, "lacks the key tokenizer.ggml.merges"),
        ("tokenizer.ggml.merges", ["zz qq"], "tokenizer contradicts itself"),
        ("tokenizer.ggml.token_type", [3] * 1000, "gives token 261 a meaning, but lists 261 tokens"),
        ("tokenizer.ggml.eos_token_id", 100000, "gives token 100000 a meaning"),
        ("tokenizer.ggml.tokens", [*vocabulary(), "more"], "lists 262 tokens, but the model knows 261"),
    ],
)
def test_a_file_whose_keys_cannot_be_is_refused_with_the_key(
    tmp_path: Path, cache: Path, key: str, value: Any, said: str
) -> None:
    with pytest.raises(EngineError, match=said):
        prepare(rewritten(tmp_path / "tiny.gguf", key=key, value=value), "float32")
    assert list((cache / "prepared").iterdir()) == []


@pytest.mark.parametrize(
    ("tensor", "change", "said"),
    [
        ("token_embd.weight", None, "token_embd.weight is missing"),
        ("token_embd.weight", np.ravel, "token_embd.weight has shape"),
        ("output_norm.weight", None, "output_norm.weight is missing"),
        ("blk.1.attn_q.weight", lambda values: np.ascontiguousarray(values[:-4]), "attn_q.weight has shape"),
        ("blk.2.ffn_down.weight", None, "ffn_down.weight is missing"),
        ("blk.1.attn_v.weight", lambda values: values * np.float32("nan"), "attn_v.weight holds values that are no numbers"),
        ("blk.2.ffn_down.weight", lambda values: values.astype(np.int32), "is of type I32, which is not read here"),
    ],
)
def test_a_file_whose_tensors_are_not_those_of_its_keys_is_refused_with_the_tensor(
    tmp_path: Path, cache: Path, tensor: str, change: Callable[[Any], Any] | None, said: str
) -> None:
    with pytest.raises(EngineError, match=said):
        prepare(rewritten(tmp_path / "tiny.gguf", tensor=tensor, change=change), "float32")
    assert list((cache / "prepared").iterdir()) == []


@pytest.mark.parametrize(
    ("add", "said"),
    [
        (lambda out: out.add_tensor("rope_freqs.weight", np.ones(4, np.float32)), "rope_freqs.weight has no part"),
        (lambda out: out.add_tensor("blk.1.attn_q.bias", np.zeros(24, np.float32)), "blk.1.attn_q.bias has no part"),
        (lambda out: out.add_rope_scaling_type(gguf.RopeScalingType.YARN), "uses yarn RoPE scaling"),
        (lambda out: out.add_rope_scaling_type(gguf.RopeScalingType.NONE), ""),
    ],
)
def test_what_would_make_it_another_model_than_the_one_that_is_run_is_refused(
    tmp_path: Path, cache: Path, add: Callable[[gguf.GGUFWriter], None], said: str
) -> None:
    class Writer(gguf.GGUFWriter):
        def write_header_to_file(self, path: Path | None = None) -> None:
            add(self)
            super().write_header_to_file(path)

    write_gguf(tmp_path / "tiny.gguf", writer=Writer)
    with pytest.raises(EngineError, match=said) if said else contextlib.nullcontext():
        prepare(tmp_path / "tiny.gguf", "float32")


@given(place=st.integers(4, 4000), junk=st.binary(min_size=1, max_size=8))
@settings(max_examples=25, deadline=None)
def test_a_damaged_file_is_read_or_refused(place: int, junk: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        write_gguf(path)
        whole = path.read_bytes()
        path.write_bytes(whole[:place] + junk + whole[place + len(junk) :])
        with contextlib.suppress(EngineError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's, of numbers that overflow
            GgufModel(path).tokenizer_data()
