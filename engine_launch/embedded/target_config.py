"""Shape of a Llama-architecture target, and its JSON form in the cache (needs no torch)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class TargetConfig:
    """Sizes and constants of the target; the names are Hugging Face's ``LlamaConfig``'s."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope_theta: float
    rms_norm_eps: float
    max_position_embeddings: int
    tie_word_embeddings: bool = True

    @property
    def q_size(self) -> int:
        """Width of all query heads together."""
        return self.num_attention_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key (or value) heads together."""
        return self.num_key_value_heads * self.head_dim

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of keys and values that one token takes in all layers."""
        return 2 * self.num_hidden_layers * self.kv_size * dtype_bytes

    def to_json(self) -> dict[str, int | float | bool]:
        """The fields under their own names."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: object) -> TargetConfig:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError: a field is missing or is not a number.
        """
        if not isinstance(data, dict):
            raise ValueError("the model's configuration is not a JSON object")
        values: dict[str, Any] = {}
        for field in fields(cls):
            value = data.get(field.name)
            if not isinstance(value, (int, float)):
                raise ValueError(f"the model's configuration lacks {field.name}")
            values[field.name] = value
        return cls(**values)
