"""The seam between the embedded engine's decode loop and whatever serves it.

The HTTP server, the tests and the benchmarks know the engine through these records and the :class:`Engine` protocol only;
none of them needs torch. The words are SGLang's (``meta_info``, ``spec_verify_ct`` …) wherever it has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, Protocol

AUTO = "auto"
"""The word for a budget that the engine sizes for every tree; as a number it is 0."""
AUTO_BUDGET_MAX = 64
"""Drafts of a tree at most when the budget is automatic."""


class Algorithm(Enum):
    """How tokens are made: one at a time, or by drafting and verifying."""

    PLAIN = "PLAIN"
    """No drafter: one target forward per token (SGLang: no ``--speculative-algorithm``)."""
    DFLASH = "DFLASH"
    """A chain of ``block_size - 1`` drafts, verified in one target forward."""
    DDTREE = "DDTREE"
    """A tree of at most ``tree_budget`` drafts (root not counted), verified in one target forward."""


@dataclass(frozen=True)
class SamplingParams:
    """What a request asks of the sampler. Anything else a client sends is refused by the server, never ignored."""

    max_new_tokens: int = 128
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None


@dataclass(frozen=True)
class RequestOverrides:
    """Per-request settings from ``sampling_params.custom_params``; ``None`` means the engine's own value."""

    ddtree_budget: int | None = None
    ddtree_topk: int | None = None
    speculative: bool | None = None


@dataclass(frozen=True)
class GenerateRequest:
    """One prompt to answer, with everything that decides the answer."""

    rid: str
    input_ids: tuple[int, ...]
    sampling: SamplingParams
    overrides: RequestOverrides = RequestOverrides()
    record_rounds: bool = False
    """Keep one :class:`RoundRecord` per verify in the events (the console's tree view asks for it)."""


@dataclass(frozen=True)
class RoundRecord:
    """One draft-and-verify round of one request: what was proposed, with which probability, and what was kept."""

    round: int
    start: int
    """Committed target tokens when the round began; the root sits at this position."""
    root: int
    tokens: tuple[int, ...]
    """Node tokens in node order, root not included: node ``i`` of the tree is ``tokens[i - 1]``."""
    parents: tuple[int, ...]
    """Parent node of each entry of ``tokens``; 0 is the root."""
    logprobs: tuple[float, ...]
    """Cumulative log-probability of the path to each node, under the drafter."""
    path: tuple[int, ...]
    """Accepted nodes from the root on, root (0) included: ``len(path)`` is the commit length."""
    bonus: int
    seconds: Mapping[str, float] = field(default_factory=dict)
    """append, draft, topk, build, verify, commit."""


@dataclass(frozen=True)
class FinishReason:
    """Why an answer ended, as SGLang's ``meta_info.finish_reason`` has it."""

    type: Literal["stop", "length", "abort"]
    matched: int | str | None = None
    """The stop token id or stop string that ended the answer (``stop``)."""
    message: str = ""
    """One sentence (``abort``)."""


@dataclass(frozen=True)
class RequestStats:
    """Figures of one request so far; the names are those of SGLang's ``meta_info``."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    spec_verify_ct: int
    """Verify passes that this request took part in."""
    spec_num_correct_drafts: int
    spec_num_proposed_drafts: int
    spec_correct_drafts_histogram: tuple[int, ...]
    """Index = accepted drafts of a verify, value = how many verifies accepted so many."""
    queue_time: float
    """Seconds between arrival and admission."""
    prefill_seconds: float
    decode_seconds: float


@dataclass(frozen=True)
class TokenEvent:
    """New tokens of one request: the first comes from prefill, later ones from one verify each."""

    rid: str
    token_ids: tuple[int, ...]
    """Tokens emitted by this step, cut at the first stop token and at ``max_new_tokens``. May be empty on ``finish``."""
    finish: FinishReason | None
    stats: RequestStats
    round: RoundRecord | None = None


@dataclass(frozen=True)
class Settings:
    """What is in effect. ``draft_window`` 0 means that the compact draft cache is off; ``tree_budget`` 0 means ``auto``."""

    algorithm: Algorithm
    speculation: bool
    block_size: int
    tree_budget: int
    tree_topk: int
    draft_window: int
    layers_window: int
    """The drafter's sliding layers' own window in tokens; 0 = off (they attend to everything)."""

    @property
    def automatic(self) -> bool:
        """Whether trees grow as long as that pays."""
        return self.algorithm is Algorithm.DDTREE and self.tree_budget == 0

    @property
    def largest_tree(self) -> int:
        """Drafts of a tree at most."""
        return AUTO_BUDGET_MAX if self.automatic else self.tree_budget

    @property
    def budget_text(self) -> str:
        """The budget as log lines and reports have it: ``8`` or ``auto(max 64)``."""
        return f"{AUTO}(max {AUTO_BUDGET_MAX})" if self.automatic else str(self.tree_budget)


@dataclass(frozen=True)
class EngineStats:
    """A snapshot of the whole engine, cheap enough to take on every scrape."""

    running: int
    queued: int
    used_tokens: int
    """Target KV tokens held by running requests."""
    max_total_num_tokens: int
    prompt_tokens_total: int
    generation_tokens_total: int
    """Tokens of *finished* requests (SGLang counts when a request ends)."""
    requests_total: int
    """Finished requests."""
    aborted_total: int
    verify_calls_total: int
    """Verify passes of finished requests, per request."""
    realtime_decode_tokens_total: int
    """Grows with every round, by the tokens emitted in it."""
    realtime_prefill_tokens_total: int
    cached_tokens_total: int
    accept_histogram: tuple[int, ...]
    """Commit statistics of all verifies since the start: index = accepted drafts."""
    gen_throughput: float
    """tok/s over the last decode-log interval; keeps its last value when idle (as SGLang's gauge does)."""
    accept_length: float
    """Tokens per verify over the last decode-log interval; keeps its last value when idle."""
    accept_rate: float
    avg_accept_length: float
    """Mean since the start (SGLang's ``avg_spec_accept_length``)."""
    draft_kv_bytes: int
    """Bytes of draft KV actually allocated for running requests (all layers, K and V)."""
    target_kv_bytes: int
    weight_bytes: int
    draft_weight_bytes: int
    round_seconds: Mapping[str, float] = field(default_factory=dict)
    """Total seconds per part of the rounds that verified since the start: append, draft, topk, build, verify, commit."""
    rounds: int = 0
    """How many rounds ``round_seconds`` sums up (a round is one pass over all running requests)."""
    prefix_entries: int = 0
    """Answered requests whose keys and values are kept for others with the same beginning."""
    prefix_bytes: int = 0
    avg_tree_nodes: float = 0.0
    """Drafts per verify, mean since the start: what an automatic budget came to."""
    verify_curves: Mapping[int, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    """Measured verify milliseconds by rows, for some context lengths, once an automatic budget has measured them."""


OnEvent = Callable[[TokenEvent], None]


class EngineError(Exception):
    """The engine cannot do what was asked; the message is one sentence for the user."""


class EngineUnavailable(EngineError):
    """Nothing is wrong with the request: the queue is full, or the engine is stopping or has stopped."""


class Engine(Protocol):
    """The decode loop behind the server. All methods are safe to call from any thread."""

    @property
    def settings(self) -> Settings:
        """What is in effect for new rounds."""

    @property
    def startup_settings(self) -> Settings:
        """What the engine was started with."""

    @property
    def context_length(self) -> int: ...

    @property
    def alive(self) -> bool:
        """Whether the decode loop runs; once False, it stays so and every request is refused."""

    def submit(self, request: GenerateRequest, on_event: OnEvent) -> None:
        """Queue a request. ``on_event`` is called from the engine's thread, in order, the last time with a ``finish``.

        Raises:
            EngineUnavailable: the queue is full, or the engine has stopped.
            EngineError: the prompt with its answer cannot fit the context, or the request is wrong in another way.
        """

    def abort(self, rid: str) -> bool:
        """End a queued or running request; its last event has finish type ``abort``. False when it is not there."""

    def change(self, name: str, value: float) -> bool:
        """Change one hot setting between two rounds: ``speculative_ddtree_budget`` (0 = auto), ``speculative_ddtree_topk``,
        ``speculative_draft_window_size`` (0 = off) or ``speculation`` (1/0). False = refused, nothing changed. Logs a line."""

    def flush_cache(self) -> bool:
        """Forget reusable prefixes. False while requests run."""

    def stats(self) -> EngineStats: ...

    def recent_rounds(self, limit: int) -> tuple[RoundRecord, ...]:
        """The newest round records of requests that asked for them, oldest first."""

    def close(self) -> None:
        """Stop after the current round; unfinished requests end with ``abort``."""
