"""Reading a GGUF file of the Llama architecture: configuration, tokenizer data, and tensors in Hugging Face's layout.

The container and the quantisation formats are the ``gguf`` package's business; this file knows what a Llama model means by
its keys. Key and tensor names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, ReaderField
from gguf.quants import dequantize

from engine_launch.embedded.api import EngineError
from engine_launch.embedded.target_config import TargetConfig
from engine_launch.embedded.tokenizer import TokenizerData

FloatArray = npt.NDArray[np.float32]


CONTROL_TOKEN_TYPE = 3


class GgufModel:
    """An opened GGUF file.

    Raises:
        EngineError: the file is missing, is not GGUF, or holds another architecture.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise EngineError(f"the model file {path} does not exist")
        with path.open("rb") as stream:
            magic = stream.read(4)
        if magic != b"GGUF":
            raise EngineError(f"{path} is not a GGUF file (it begins with {magic!r})")
        try:
            self._reader = GGUFReader(path)
        except (ValueError, KeyError, IndexError, OSError) as error:
            raise EngineError(f"{path} cannot be read as GGUF: {error}") from error
        architecture = self._text("general.architecture")
        if architecture != "llama":
            raise EngineError(f"{path} holds a model of architecture {architecture!r}; the embedded engine runs 'llama'")
        self.config = self._read_config()

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

    def _read_config(self) -> TargetConfig:
        hidden = int(self._scalar("llama.embedding_length"))
        heads = int(self._scalar("llama.attention.head_count"))
        names = {tensor.name for tensor in self._reader.tensors}
        vocab_size = next(int(t.shape[1]) for t in self._reader.tensors if t.name == "token_embd.weight")
        return TargetConfig(
            vocab_size=vocab_size,
            hidden_size=hidden,
            intermediate_size=int(self._scalar("llama.feed_forward_length")),
            num_hidden_layers=int(self._scalar("llama.block_count")),
            num_attention_heads=heads,
            num_key_value_heads=int(self._scalar("llama.attention.head_count_kv", heads)),
            head_dim=int(self._scalar("llama.rope.dimension_count", hidden // heads)),
            rope_theta=self._scalar("llama.rope.freq_base", 10000.0),
            # The file keeps it as a 32-bit float; the decimal that was meant is the shortest one near it.
            rms_norm_eps=float(f"{self._scalar('llama.attention.layer_norm_rms_epsilon'):.6g}"),
            max_position_embeddings=int(self._scalar("llama.context_length")),
            tie_word_embeddings="output.weight" not in names,
        )

    def tokenizer_data(self) -> TokenizerData:
        """The vocabulary, merges, special ids and chat template.

        Raises:
            EngineError: a key that is needed is missing.
        """
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
            # A copy, because the reader's arrays are read-only views of the file and torch wants to own its memory.
            values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
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
