"""Tiny targets and drafters with random weights, and a helper that runs requests through a real engine."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine_launch.embedded.admission import EngineLimits
from engine_launch.embedded.api import Algorithm, GenerateRequest, RequestOverrides, SamplingParams, Settings, TokenEvent
from engine_launch.embedded.draft_kv import DraftKV
from engine_launch.embedded.drafter import ContextRows, DFlashDrafter, Drafter, DraftQuery
from engine_launch.embedded.engine import EmbeddedEngine
from engine_launch.embedded.events import EngineLog, SilentLog
from engine_launch.embedded.prefix_cache import MAX_BYTES
from engine_launch.embedded.target import TargetModel
from engine_launch.embedded.target_config import TargetConfig
from engine_launch.spec.drafter_check import expected_shapes
from engine_launch.spec.drafter_config import DrafterConfig, LayerType

if TYPE_CHECKING:
    from transformers import LlamaConfig

# Models this small gain nothing from a second thread, and waiting for it is slow on a busy machine.
torch.set_num_threads(1)

BLOCK = 4
MASK_TOKEN = 1


def target_config(vocab: int = 24, context: int = 256) -> TargetConfig:
    return TargetConfig(
        vocab_size=vocab,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=4,
        rope_theta=10000.0,
        rms_norm_eps=1e-5,
        max_position_embeddings=context,
    )


def target_weights(config: TargetConfig, dtype: torch.dtype, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return (torch.randn(shape, generator=generator, dtype=torch.float64) * 0.4).to(dtype)

    hidden, inner = config.hidden_size, config.intermediate_size
    weights = {"embed": random(config.vocab_size, hidden), "norm": 1 + random(hidden)}
    for layer in range(config.num_hidden_layers):
        prefix = f"layers.{layer}."
        weights |= {
            prefix + "attn_norm": 1 + random(hidden),
            prefix + "qkv": random(config.q_size + 2 * config.kv_size, hidden),
            prefix + "o": random(hidden, config.q_size),
            prefix + "mlp_norm": 1 + random(hidden),
            prefix + "gate_up": random(2 * inner, hidden),
            prefix + "down": random(hidden, inner),
        }
    return weights


def tiny_target(dtype: torch.dtype = torch.float64, vocab: int = 24, seed: int = 0, context: int = 256) -> TargetModel:
    config = target_config(vocab, context)
    return TargetModel(config, target_weights(config, dtype, seed))


def transformers_config(config: TargetConfig, *, tie: bool = True) -> LlamaConfig:
    """The same model as transformers describes it. ``tie``: its output layer is its embedding."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        rms_norm_eps=config.rms_norm_eps,
        max_position_embeddings=config.max_position_embeddings,
        tie_word_embeddings=tie,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
    )


def drafter_config(
    kinds: str = "ssf", window: int = 16, vocab: int = 24, taps: tuple[int, ...] = (0, 2), block: int = BLOCK
) -> DrafterConfig:
    """``kinds`` holds one letter a layer: ``s`` sliding, ``f`` full."""
    return DrafterConfig(
        architecture="DFlashDraftModel",
        hidden_size=24,
        intermediate_size=32,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=6,
        vocab_size=vocab,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        rope_scaling_type=None,
        max_position_embeddings=512,
        block_size=block,
        mask_token_id=MASK_TOKEN,
        mask_token="<|MASK|>",
        target_layer_ids=taps,
        num_target_layers=3,
        layer_types=tuple(LayerType.SLIDING if kind == "s" else LayerType.FULL for kind in kinds),
        sliding_window=window if "s" in kinds else None,
        is_causal=None,
    )


def drafter_weights(config: DrafterConfig, dtype: torch.dtype, seed: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = expected_shapes(config, len(config.target_layer_ids or ()), 24)
    weights = {}
    for name, shape in shapes.items():
        values = torch.randn(shape, generator=generator, dtype=torch.float64) * 0.3
        weights[name] = (1 + values if "norm" in name else values).to(dtype)
    return weights


def tiny_drafter(target: TargetModel, config: DrafterConfig | None = None, layers_window: int | None = None) -> DFlashDrafter:
    config = config or drafter_config(vocab=target.config.vocab_size)
    return DFlashDrafter(
        config,
        drafter_weights(config, target.dtype),
        target,
        mask_token_id=MASK_TOKEN,
        taps=config.target_layer_ids or (),
        block_size=config.block_size,
        layers_window=(config.sliding_window or 0) if layers_window is None else layers_window,
        positions=target.config.max_position_embeddings + config.block_size,
    )


class OracleDrafter:
    """A real drafter's caches around foreknowledge: proposes the true continuation, right with probability ``accuracy``.

    ``texts[i]`` is prompt and answer of the ``i``-th request to be admitted. With probability ``decoys`` a wrong token stands
    before the true one, so that accepted paths run through siblings and not only along the first children.
    """

    def __init__(
        self, inner: DFlashDrafter, texts: Sequence[Sequence[int]], accuracy: float = 0.8, seed: int = 0, decoys: float = 0.0
    ) -> None:
        self.taps, self.block_size, self.weight_bytes = inner.taps, inner.block_size, inner.weight_bytes
        self._inner = inner
        self._texts = list(texts)
        self._accuracy = accuracy
        self._decoys = decoys
        self._generator = torch.Generator().manual_seed(seed)
        self._vocab = inner.config.vocab_size
        self._text_of: dict[int, Sequence[int]] = {}
        self._kept: list[DraftKV] = []

    def new_kv(self, draft_window: int) -> DraftKV:
        kv = self._inner.new_kv(draft_window)
        self._text_of[id(kv)] = self._texts[len(self._kept)]
        self._kept.append(kv)
        return kv

    def append(self, rows: Sequence[ContextRows]) -> None:
        self._inner.append(rows)

    def draft(self, queries: Sequence[DraftQuery]) -> Tensor:
        logits = torch.randn(len(queries), self.block_size - 1, self._vocab, generator=self._generator, dtype=torch.float64)
        for row, query in zip(logits, queries, strict=True):
            text = self._text_of[id(query.kv)]
            for slot in range(self.block_size - 1):
                position = query.kv.length + 1 + slot
                if position < len(text) and self._chance(self._accuracy):
                    row[slot, text[position]] += 6.0
                    if self._chance(self._decoys):
                        row[slot, (text[position] + 1) % self._vocab] += 7.0
        return logits

    def _chance(self, probability: float) -> bool:
        return float(torch.rand((), generator=self._generator)) < probability


@dataclass
class Answer:
    """Everything one request was told."""

    events: list[TokenEvent] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def __call__(self, event: TokenEvent) -> None:
        self.events.append(event)
        if event.finish is not None:
            self.done.set()

    @property
    def ids(self) -> list[int]:
        return [token for event in self.events for token in event.token_ids]

    @property
    def last(self) -> TokenEvent:
        return self.events[-1]

    def wait(self) -> Answer:
        assert self.done.wait(150), "the request did not finish"
        return self


def tiny_settings(algorithm: Algorithm, budget: int = 8, topk: int = 4, draft_window: int = 0, block: int = BLOCK) -> Settings:
    if algorithm is Algorithm.PLAIN:
        return Settings(algorithm, False, 0, 0, 0, 0, 0)
    return Settings(algorithm, True, block, budget, topk, draft_window, 16)


def tiny_engine(
    target: TargetModel,
    drafter: Drafter | None = None,
    settings: Settings | None = None,
    *,
    log: EngineLog | None = None,
    max_running: int = 4,
    chunk: int = 16,
    interval: int = 4,
    prefix_cache_bytes: int = MAX_BYTES,
) -> EmbeddedEngine:
    context = target.config.max_position_embeddings
    limits = EngineLimits(context, max_running, context * max_running, chunk, interval, prefix_cache_bytes=prefix_cache_bytes)
    settings = settings or tiny_settings(Algorithm.PLAIN)
    return EmbeddedEngine(target, drafter, None, settings, limits, log or SilentLog())


def greedy(max_new_tokens: int, **more: object) -> SamplingParams:
    return SamplingParams(max_new_tokens=max_new_tokens, temperature=0.0, **more)  # type: ignore[arg-type]


def submit(
    engine: EmbeddedEngine,
    rid: str,
    prompt: Sequence[int],
    sampling: SamplingParams,
    overrides: RequestOverrides = RequestOverrides(),  # noqa: B008 - frozen
    record_rounds: bool = False,
) -> Answer:
    answer = Answer()
    engine.submit(GenerateRequest(rid, tuple(prompt), sampling, overrides, record_rounds), answer)
    return answer


def prompts(count: int, length: int, vocab: int = 24, seed: int = 7) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, vocab, (length + index,), generator=generator).tolist() for index in range(count)]


def plain_answers(target: TargetModel, texts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Greedy answers by plain decoding, one request at a time."""
    engine = tiny_engine(target, max_running=1)
    try:
        return [submit(engine, str(index), text, greedy(tokens)).wait().ids for index, text in enumerate(texts)]
    finally:
        engine.close()
