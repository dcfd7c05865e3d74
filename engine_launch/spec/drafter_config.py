"""Reading a DFlash drafter's ``config.json``, whichever tool wrote it.

Keys are the union of those of z-lab's checkpoints, SpecForge and SGLang's parser: ``block_size`` may stand at the top or in
``dflash_config``, RoPE settings under the old or the new key, taps may be left to the default formula.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

DFLASH_ARCHITECTURES = ("DFlashDraftModel", "DFlash2DraftModel")
DEFAULT_BLOCK_SIZE = 16
"""SGLang's fallback when a config names no block size."""

MAX_SIZE = 1 << 31
MAX_LAYERS = 1 << 10
"""Far beyond every drafter: memory is reckoned from sizes, and layers are counted out one by one."""


class DrafterConfigError(Exception):
    """The configuration cannot be used; the message is one sentence that names the key."""


class LayerType(Enum):
    """How a drafter's layer looks back."""

    FULL = "full_attention"
    SLIDING = "sliding_attention"


@dataclass(frozen=True)
class DrafterConfig:
    """A drafter's shape and training. Sizes are in tokens or elements."""

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling_type: str | None
    """``None`` for plain RoPE, else the scaling's name (``yarn`` …)."""
    max_position_embeddings: int
    block_size: int
    """Anchor and masks together: ``block_size - 1`` drafts a round."""
    mask_token_id: int | None
    """``None`` leaves it to the mask token's text."""
    mask_token: str
    target_layer_ids: tuple[int, ...] | None
    """Tapped target layers; ``None`` when neither they nor ``num_target_layers`` are given."""
    num_target_layers: int | None
    layer_types: tuple[LayerType, ...]
    sliding_window: int | None
    """The sliding layers' window; ``None`` when there is none, or when ``use_sliding_window`` is false."""
    is_causal: bool | None
    """In-block causality of all layers, when the config says it; else sliding layers are causal and full ones are not."""

    @property
    def num_layers(self) -> int:
        return len(self.layer_types)

    @property
    def sliding_layers(self) -> int:
        return sum(kind is LayerType.SLIDING for kind in self.layer_types)

    def causal_in_block(self, layer: int) -> bool:
        """Whether block slot ``i`` of this layer sees only slots ``j <= i``."""
        return self.layer_types[layer] is LayerType.SLIDING if self.is_causal is None else self.is_causal

    @property
    def window_text(self) -> str:
        """For people: ``5 of 6 layers sliding, 2048`` or ``6 layers, all full attention``."""
        if self.sliding_layers == 0 or self.sliding_window is None:
            return f"{self.num_layers} layers, all full attention"
        return f"{self.sliding_layers} of {self.num_layers} layers sliding, {self.sliding_window}"

    def kv_bytes_per_token_and_layer(self, dtype_bytes: int) -> int:
        """Bytes of key and value of one context token in one layer."""
        return 2 * self.num_key_value_heads * self.head_dim * dtype_bytes


def default_target_layers(draft_layers: int, target_layers: int) -> tuple[int, ...]:
    """The taps that DFlash's reference code picks when a config lists none: spread evenly from layer 1 to the third from last."""
    if draft_layers == 1:
        return (target_layers // 2,)
    return tuple(round(1 + index * (target_layers - 4) / (draft_layers - 1)) for index in range(draft_layers))


def load_drafter_config(folder: Path) -> DrafterConfig:
    """Read ``config.json`` of a checkpoint folder.

    Raises:
        DrafterConfigError: it is missing, is not JSON, or does not describe a DFlash drafter.
    """
    path = folder / "config.json"
    try:
        return parse_drafter_config(path.read_bytes())
    except OSError as error:
        raise DrafterConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except DrafterConfigError as error:
        raise DrafterConfigError(f"{path}: {error}") from error


def parse_drafter_config(content: bytes | str) -> DrafterConfig:
    """Read the content of a ``config.json``.

    Raises:
        DrafterConfigError: it is not JSON, or does not describe a DFlash drafter; nothing else is ever raised.
    """
    try:
        text = content.decode("utf-8-sig") if isinstance(content, bytes) else content
        data = json.loads(text)
    except UnicodeDecodeError as error:
        raise DrafterConfigError(f"not UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise DrafterConfigError(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise DrafterConfigError("not a JSON object")
    return _Reader(data).config()


class _Reader:
    """Looks keys up at the top level and in ``dflash_config`` and checks their types."""

    def __init__(self, data: Mapping[str, object]) -> None:
        self._data = data
        nested = data.get("dflash_config")
        if nested is not None and not isinstance(nested, dict):
            raise DrafterConfigError("dflash_config is not an object")
        self._nested: Mapping[str, object] = nested or {}

    def config(self) -> DrafterConfig:
        architecture = self._architecture()
        heads = self._positive("num_attention_heads")
        hidden = self._positive("hidden_size")
        kv_heads = self._positive("num_key_value_heads", heads)
        if heads % kv_heads:
            raise DrafterConfigError(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
        head_dim = self._positive("head_dim", max(1, hidden // heads))
        if head_dim % 2:
            raise DrafterConfigError(f"head_dim {head_dim} is odd; rotary embedding needs pairs")
        layer_types = self._layer_types(self._positive("num_hidden_layers", most=MAX_LAYERS))
        target_layers = self._optional_positive("num_target_layers")
        vocab = self._positive("vocab_size")
        theta, scaling = self._rope()
        return DrafterConfig(
            architecture=architecture,
            hidden_size=hidden,
            intermediate_size=self._positive("intermediate_size"),
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            vocab_size=vocab,
            rms_norm_eps=self._number("rms_norm_eps", 1e-6),
            rope_theta=theta,
            rope_scaling_type=scaling,
            max_position_embeddings=self._positive("max_position_embeddings", 32768, most=None),
            block_size=self._block_size(),
            mask_token_id=self._mask_token_id(vocab),
            mask_token=self._mask_token(),
            target_layer_ids=self._target_layers(len(layer_types), target_layers),
            num_target_layers=target_layers,
            layer_types=layer_types,
            sliding_window=self._sliding_window(layer_types),
            is_causal=self._is_causal(),
        )

    def _get(self, key: str) -> object:
        value = self._data.get(key)
        return self._nested.get(key) if value is None else value

    def _architecture(self) -> str:
        names = self._data.get("architectures")
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise DrafterConfigError("architectures does not name a model class, so this is not a drafter's config")
        if names[0] not in DFLASH_ARCHITECTURES:
            raise DrafterConfigError(f"architectures is {names[0]!r}, not a DFlash drafter ({DFLASH_ARCHITECTURES[0]})")
        return names[0]

    def _optional_positive(self, key: str) -> int | None:
        value = self._get(key)
        if value is None:
            return None
        # JSON has one kind of number: 8.0 is as good as 8; true is not a number.
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_whole(value) or value < 1:
            raise DrafterConfigError(f"{key} is {_shown(value)}; a positive whole number is needed")
        return int(value)

    def _positive(self, key: str, default: int | None = None, most: int | None = MAX_SIZE) -> int:
        value = self._optional_positive(key)
        if value is not None:
            if most is not None and value > most:
                raise DrafterConfigError(f"{key} is {_shown(value)}; at most {most} can be")
            return value
        if default is None:
            raise DrafterConfigError(f"{key} is missing")
        return default

    def _number(self, key: str, default: float) -> float:
        value = self._get(key)
        if value is None:
            return default
        return _positive_number(key, value)

    def _block_size(self) -> int:
        block = self._positive("block_size", DEFAULT_BLOCK_SIZE)
        if block < 2:
            raise DrafterConfigError(f"block_size is {block}; at least 2 are needed (anchor and one draft)")
        return block

    def _rope(self) -> tuple[float, str | None]:
        parameters = self._data.get("rope_parameters")
        scaling = self._data.get("rope_scaling")
        for key, value in (("rope_parameters", parameters), ("rope_scaling", scaling)):
            if value is not None and not isinstance(value, dict):
                raise DrafterConfigError(f"{key} is not an object")
        source: dict[str, object] = {}
        for value in (scaling, parameters):
            if isinstance(value, dict):
                source.update(value)
        theta = self._data.get("rope_theta", source.get("rope_theta"))
        kind = source.get("rope_type", source.get("type"))
        name = None if kind in (None, "default") else str(kind)
        return (10000.0 if theta is None else _positive_number("rope_theta", theta)), name

    def _mask_token_id(self, vocab: int) -> int | None:
        value = self._get("mask_token_id")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise DrafterConfigError(f"mask_token_id is {_shown(value)}; a token id is needed")
        if value >= vocab:
            raise DrafterConfigError(f"mask_token_id {value} is not below vocab_size {vocab}")
        return value

    def _mask_token(self) -> str:
        value = self._get("mask_token")
        return value if isinstance(value, str) and value else "<|MASK|>"

    def _target_layers(self, draft_layers: int, target_layers: int | None) -> tuple[int, ...] | None:
        value = self._get("target_layer_ids")
        if value is None:
            return None if target_layers is None else default_target_layers(draft_layers, target_layers)
        if not isinstance(value, list) or not value:
            raise DrafterConfigError("target_layer_ids is not a list of layer numbers")
        ids: list[int] = []
        for item in value:
            if isinstance(item, bool) or not isinstance(item, int) or item < 0:
                raise DrafterConfigError(f"target_layer_ids holds {_shown(item)}, which is not a layer number")
            ids.append(item)
        if target_layers is not None and max(ids) >= target_layers:
            raise DrafterConfigError(f"target_layer_ids names layer {max(ids)}, but num_target_layers is {target_layers}")
        return tuple(ids)

    def _layer_types(self, layers: int) -> tuple[LayerType, ...]:
        value = self._data.get("layer_types")
        if value is None:
            return (LayerType.FULL,) * layers
        if not isinstance(value, list) or len(value) != layers:
            count = len(value) if isinstance(value, list) else "no"
            raise DrafterConfigError(f"layer_types lists {count} layers, num_hidden_layers says {layers}")
        kinds = {kind.value: kind for kind in LayerType}
        unknown = next((item for item in value if not isinstance(item, str) or item not in kinds), None)
        if unknown is not None:
            raise DrafterConfigError(f"layer_types holds {_shown(unknown)}; known are {', '.join(kinds)}")
        return tuple(kinds[item] for item in value)

    def _sliding_window(self, layer_types: tuple[LayerType, ...]) -> int | None:
        window = self._optional_positive("sliding_window")
        # Qwen3's own configuration class drops the window unless this flag is set.
        if self._get("use_sliding_window") is False:
            return None
        if window is None and LayerType.SLIDING in layer_types:
            raise DrafterConfigError("layer_types has sliding layers, but sliding_window is missing")
        return window if LayerType.SLIDING in layer_types else None

    def _is_causal(self) -> bool | None:
        value = self._data.get("is_causal", self._nested.get("causal"))
        if value is not None and not isinstance(value, bool):
            raise DrafterConfigError(f"is_causal is {_shown(value)}; true or false is needed")
        return value


def _is_whole(value: float) -> bool:
    return math.isfinite(value) and value == int(value)


def _positive_number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0 or value > 1e300:
        raise DrafterConfigError(f"{key} is {_shown(value)}; a positive number is needed")
    return float(value)


def _shown(value: object) -> str:
    """A value inside a sentence, short."""
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"
