"""What the engine tells while it loads and runs, as records; whoever formats log lines implements :class:`EngineLog`.

The engine never prints. Each record carries the figures of one of SGLang's log lines, under SGLang's words where it has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from engine_launch.embedded.api import Algorithm


class ModelPart(Enum):
    """Which of the two models a loading event speaks of."""

    TARGET = "target"
    DRAFT = "draft"


@dataclass(frozen=True)
class LoadProgress:
    """``done`` of ``total`` tensors are in memory; ``done == 0`` begins a load and ``done == total`` precedes its end."""

    part: ModelPart
    done: int
    total: int


@dataclass(frozen=True)
class LoadEnd:
    """A model's weights are in memory."""

    part: ModelPart
    seconds: float
    model_class: str
    """``LlamaForCausalLM`` or ``DFlashDraftModel``."""
    dtype: str
    """``float32`` or ``bfloat16``."""
    weight_bytes: int


@dataclass(frozen=True)
class DraftRunnerReady:
    """The values in effect, for the line that confirms them. 0 means off for both windows."""

    algorithm: Algorithm
    attention_backend: str
    model_class: str
    block_size: int
    tree_budget: str
    """A number, or ``auto(max 64)``."""
    tree_topk: int
    layers_window: int
    draft_window: int
    mask_token: str
    mask_token_id: int


@dataclass(frozen=True)
class KvPoolReady:
    """The room for keys and values: ``tokens`` is a bound; memory is taken per request as it runs."""

    part: ModelPart
    dtype: str
    tokens: int
    k_bytes: int
    v_bytes: int


@dataclass(frozen=True)
class SchedulerReady:
    """The engine's bounds, in tokens but for the number of requests."""

    max_total_num_tokens: int
    chunked_prefill_size: int
    max_prefill_tokens: int
    max_running_requests: int
    context_length: int


@dataclass(frozen=True)
class PrefillBatch:
    """One prefill step. ``new_sequences`` are requests whose prompt begins in it; ``used_tokens`` are held by all that run."""

    new_sequences: int
    new_tokens: int
    cached_tokens: int
    used_tokens: int
    max_total_num_tokens: int
    running: int
    queued: int
    pending_tokens: int
    """Prompt tokens of admitted requests that are still to be prefilled."""
    input_throughput: float
    """Prompt tok/s of this batch."""


@dataclass(frozen=True)
class DecodeBatch:
    """Figures over the rounds since the line before."""

    running: int
    queued: int
    used_tokens: int
    max_total_num_tokens: int
    accept_length: float | None
    """Tokens per request and verify, bonus included; ``None`` when nothing was verified in the interval."""
    accept_rate: float | None
    """Accepted ÷ proposed drafts."""
    gen_throughput: float
    """tok/s, all requests together."""
    draft_kv_bytes: int


@dataclass(frozen=True)
class FirstVerify:
    """The first round that verified drafts: speculation is not only configured, it works."""

    algorithm: Algorithm
    correct_drafts: tuple[int, ...]
    """Accepted drafts per request of the batch (bonus not counted)."""


@dataclass(frozen=True)
class SettingChange:
    """A hot change: taken, or refused with a reason."""

    name: str
    old: int
    new: float
    accepted: bool
    reason: str = ""


@dataclass(frozen=True)
class CostsMeasured:
    """What rounds cost here was measured, for an automatic budget."""

    seconds: float
    """How long that took."""
    curves: Mapping[int, tuple[tuple[int, float], ...]]
    """Verify milliseconds by rows, for each context length."""
    draft_ms: float


class EngineLog(Protocol):
    """Receives the events, from the thread that builds the engine and then from the engine's own."""

    def loading(self, event: LoadProgress) -> None: ...

    def loaded(self, event: LoadEnd) -> None: ...

    def draft_runner(self, event: DraftRunnerReady) -> None: ...

    def kv_pool(self, event: KvPoolReady) -> None: ...

    def scheduler(self, event: SchedulerReady) -> None: ...

    def prefill_batch(self, event: PrefillBatch) -> None: ...

    def decode_batch(self, event: DecodeBatch) -> None: ...

    def first_verify(self, event: FirstVerify) -> None: ...

    def setting_changed(self, event: SettingChange) -> None: ...

    def costs_measured(self, event: CostsMeasured) -> None: ...

    def warning(self, message: str) -> None:
        """Something the user should know that does not stop the engine, as one sentence."""

    def failed(self, error: BaseException) -> None:
        """The decode loop ended by ``error``: nothing is answered any more. The place where it happened belongs into the log."""


class SilentLog:
    """An :class:`EngineLog` that drops everything, for tests and benchmarks."""

    def loading(self, event: LoadProgress) -> None: ...

    def loaded(self, event: LoadEnd) -> None: ...

    def draft_runner(self, event: DraftRunnerReady) -> None: ...

    def kv_pool(self, event: KvPoolReady) -> None: ...

    def scheduler(self, event: SchedulerReady) -> None: ...

    def prefill_batch(self, event: PrefillBatch) -> None: ...

    def decode_batch(self, event: DecodeBatch) -> None: ...

    def first_verify(self, event: FirstVerify) -> None: ...

    def setting_changed(self, event: SettingChange) -> None: ...

    def costs_measured(self, event: CostsMeasured) -> None: ...

    def warning(self, message: str) -> None: ...

    def failed(self, error: BaseException) -> None: ...
