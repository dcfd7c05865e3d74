"""Reading a GGUF file of the Llama architecture: configuration, tokenizer data, and tensors in Hugging Face's layout.

The container and the quantisation formats are the ``gguf`` package's business; this file knows what a Llama model means by
its keys. Key and tensor names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, ReaderField
from gguf.quants import dequantize

from engine_launch.embedded.api import EngineError
from engine_launch.embedded.gguf_shapes import misfit
from engine_launch.embedded.model_files import check_magic
from engine_launch.embedded.target_config import TargetConfig
from engine_launch.embedded.tokenizer import TokenizerData

FloatArray = npt.NDArray[np.float32]

CONTROL_TOKEN_TYPE = 3
MAX_SIZE = 1 << 24
"""Larger than any layer or vocabulary."""
MAX_CONTEXT = 1 << 22
"""Tokens; the rotary embedding has a table of all positions."""


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What a damaged file makes of the reader of its format, as a sentence.

    Raises:
        EngineError: instead of whatever was raised for the file's content.
    """
    try:
        yield
    except (ValueError, LookupError, TypeError, ArithmeticError, AttributeError) as error:
        raise EngineError(f"{path} cannot be read as GGUF: it is cut short or damaged ({error})") from error


class GgufModel:
    """An opened GGUF file.

    Raises:
        EngineError: the file is missing, is not GGUF, or holds another architecture.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        check_magic(path)
        try:
            with _reading(path):
                self._reader = GGUFReader(path)
                architecture = self._text("general.architecture")
                # The file names the sides of a tensor the other way round.
                self._shapes = {tensor.name: tuple(map(int, reversed(tensor.shape))) for tensor in self._reader.tensors}
        except OSError as error:
            raise EngineError(f"{path} cannot be read: {error.strerror or error}") from error
        if architecture != "llama":
            raise EngineError(f"{path} holds a model of architecture {architecture!r}; the embedded engine runs 'llama'")
        with _reading(path):
            self.config = self._read_config()
        problem = misfit(self.config, self._shapes)
        if problem:
            raise EngineError(f"{path} does not hold a whole Llama model and nothing else: {problem}")

    def _field(self, key: str) -> ReaderField | None:
        return self._reader.fields.get(key)

    def _scalar(self, key: str, default: float | None = None) -> float:
        field = self._field(key)
        if field is None:
            if default is None:
                raise EngineError(f"{self.path} lacks the key {key}")
            return default
        return float(field.parts[field.data[0]][0])

    def _text(self, key: str) -> str | None:
        field = self._field(key)
        return None if field is None else bytes(field.parts[field.data[0]]).decode("utf-8")

    def _texts(self, key: str) -> tuple[str, ...]:
        field = self._field(key)
        if field is None:
            raise EngineError(f"{self.path} lacks the key {key}")
        return tuple(bytes(field.parts[index]).decode("utf-8") for index in field.data)

    def _size(self, key: str, default: int | None = None, most: int = MAX_SIZE) -> int:
        """A whole number from 1 to ``most``."""
        value = self._scalar(key, default)
        if not 1 <= value <= most or value != int(value):
            raise EngineError(f"{self.path}: {key} is {value:g}, and a whole number from 1 to {most} is needed")
        return int(value)

    def _positive(self, key: str, default: float | None = None) -> float:
        value = self._scalar(key, default)
        if not 0 < value < math.inf:
            raise EngineError(f"{self.path}: {key} is {value:g}, and a number above 0 is needed")
        return value

    def _read_config(self) -> TargetConfig:
        scaling = self._text("llama.rope.scaling.type") or "none"
        if scaling != "none":
            raise EngineError(f"{self.path} uses {scaling} RoPE scaling, which the embedded engine does not run")
        hidden = self._size("llama.embedding_length")
        heads = self._size("llama.attention.head_count")
        kv_heads = self._size("llama.attention.head_count_kv", heads)
        head_dim = self._size("llama.rope.dimension_count", max(1, hidden // heads))
        if heads % kv_heads or head_dim % 2:
            raise EngineError(
                f"{self.path}: {heads} attention heads of {head_dim} values and {kv_heads} KV heads are no attention of Llama's"
            )
        return TargetConfig(
            vocab_size=self._shapes.get("token_embd.weight", (0,))[0],
            hidden_size=hidden,
            intermediate_size=self._size("llama.feed_forward_length"),
            num_hidden_layers=self._size("llama.block_count"),
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            rope_theta=self._positive("llama.rope.freq_base", 10000.0),
            # The file keeps it as a 32-bit float; the decimal that was meant is the shortest one near it.
            rms_norm_eps=float(f"{self._positive('llama.attention.layer_norm_rms_epsilon'):.6g}"),
            max_position_embeddings=self._size("llama.context_length", most=MAX_CONTEXT),
            tie_word_embeddings="output.weight" not in self._shapes,
        )

    def tokenizer_data(self) -> TokenizerData:
        """The vocabulary, merges, special ids and chat template.

        Raises:
            EngineError: a key that is needed is missing, or an id is none of the model's.
        """
        with _reading(self.path):
            data = self._read_tokenizer()
        count = len(data.tokens)
        if count > self.config.vocab_size:
            raise EngineError(f"{self.path} lists {count} tokens, but the model knows {self.config.vocab_size}")
        named = (data.eos_token_id, *((data.bos_token_id,) if data.bos_token_id is not None else ()), *data.control_ids)
        beyond = next((index for index in named if not 0 <= index < count), None)
        if beyond is not None:
            raise EngineError(f"{self.path} gives token {beyond} a meaning, but lists {count} tokens")
        return data

    def _read_tokenizer(self) -> TokenizerData:
        types = self._field("tokenizer.ggml.token_type")
        type_of = [] if types is None else [int(types.parts[index][0]) for index in types.data]
        bos = self._field("tokenizer.ggml.bos_token_id")
        return TokenizerData(
            model=self._text("tokenizer.ggml.model") or "",
            pre=self._text("tokenizer.ggml.pre") or "default",
            tokens=self._texts("tokenizer.ggml.tokens"),
            control_ids=tuple(index for index, kind in enumerate(type_of) if kind == CONTROL_TOKEN_TYPE),
            merges=self._texts("tokenizer.ggml.merges"),
            bos_token_id=None if bos is None else int(bos.parts[bos.data[0]][0]),
            eos_token_id=int(self._scalar("tokenizer.ggml.eos_token_id")),
            add_bos_token=bool(self._scalar("tokenizer.ggml.add_bos_token", 0.0)),
            chat_template=self._text("tokenizer.chat_template"),
        )

    @property
    def tensor_count(self) -> int:
        return len(self._reader.tensors)

    def tensors(self) -> Iterator[tuple[str, FloatArray]]:
        """Every tensor, dequantised to fp32, under its GGUF name; query and key rows in Hugging Face's order."""
        for tensor in self._reader.tensors:
            try:
                # A copy, because the reader's arrays are read-only views of the file and torch wants to own its memory.
                values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
            except NotImplementedError:
                kind = tensor.tensor_type.name
                raise EngineError(f"{self.path}: the tensor {tensor.name} is of type {kind}, which is not read here") from None
            if not np.isfinite(values).all():
                raise EngineError(f"{self.path}: the tensor {tensor.name} holds values that are no numbers")
            if tensor.name.endswith("attn_q.weight"):
                values = unpermute_rotary(values, self.config.num_attention_heads)
            elif tensor.name.endswith("attn_k.weight"):
                values = unpermute_rotary(values, self.config.num_key_value_heads)
            yield tensor.name, np.ascontiguousarray(values)


def unpermute_rotary(weight: FloatArray, heads: int) -> FloatArray:
    """Rows of a query or key projection from llama.cpp's order to Hugging Face's.

    llama.cpp's converter stores the two halves of each head interleaved (it rotates neighbouring pairs); the rotate-half form
    of RoPE wants them one after the other. ``weight`` is ``[heads * head_dim, hidden]``.
    """
    rows, columns = weight.shape
    half = rows // heads // 2
    return weight.reshape(heads, half, 2, columns).swapaxes(1, 2).reshape(rows, columns)
