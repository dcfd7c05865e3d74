"""Prometheus metrics under SGLang's names and labels, and a few of our own for the tree.

Two kinds: figures that the engine keeps are read from ``engine.stats()`` at scrape time; what only the server sees (times
as a client has them, streaming or not) is observed as requests pass. Token, request and verify counters grow when a
request *finishes*, as SGLang's do; ``realtime_tokens_total`` grows with every round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from engine_launch.embedded.api import Algorithm, Engine, EngineStats, FinishReason, RequestStats, Settings
from engine_launch.embedded.logs import GIB

_ENGINE_LABELS = {"moe_ep_rank": "0", "pp_rank": "0", "tp_rank": "0"}

_TTFT_BUCKETS = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
_INTER_TOKEN_BUCKETS = (
    *(0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040, 0.060, 0.080),
    *(0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8),
)
_E2E_BUCKETS = (*_TTFT_BUCKETS, 600, 1200, 1800, 2400)
_QUEUE_BUCKETS = (
    *(0.0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80, 90, 100),
    *(200, 300, 400, 500, 600, 700, 800, 900, 1000, 1200, 1400, 1600, 1800, 2000, 2500, 3000),
)
_LENGTH_BUCKETS = (
    *(100, 300, 500, 700, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10000, 12500, 15000, 17500),
    *(20000, 22500, 25000, 27500, 30000, 35000, 40000, 60000, 80000, 100000),
)


class ServerMetrics:
    """All metrics of one server. Cheap to keep; rendered only when ``/metrics`` is asked for."""

    def __init__(self, engine: Engine, model_name: str, startup_seconds: Mapping[str, float] | None = None) -> None:
        # `_created` series would double the text and SGLang's has none.
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._labels = {"engine_type": "unified", "model_name": model_name}
        self._queue_labels = {**self._labels, **_ENGINE_LABELS}
        self.registry.register(_EngineCollector(engine, self._labels, startup_seconds or {}))
        by_stream = ("engine_type", "is_streaming", "model_name")
        plain = ("engine_type", "model_name")
        self._ttft = self._histogram(
            "time_to_first_token_seconds", "Histogram of time to first token in seconds.", by_stream, _TTFT_BUCKETS
        )
        self._inter_token = self._histogram(
            "inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", plain, _INTER_TOKEN_BUCKETS
        )
        self._e2e = self._histogram(
            "e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds", by_stream, _E2E_BUCKETS
        )
        self._queue = self._histogram(
            "queue_time_seconds",
            "Histogram of queueing time in seconds.",
            tuple(self._queue_labels),
            _QUEUE_BUCKETS,
        )
        self._prompt_length = self._histogram(
            "prompt_tokens_histogram", "Histogram of prompt token length.", plain, _LENGTH_BUCKETS
        )
        self._answer_length = self._histogram(
            "generation_tokens_histogram", "Histogram of generation token length.", plain, _LENGTH_BUCKETS
        )
        self._prompt_tokens = self._counter("prompt_tokens", "Number of prefill tokens processed.", by_stream)
        self._generation_tokens = self._counter("generation_tokens", "Number of generation tokens processed.", by_stream)
        self._requests = self._counter("num_requests", "Number of requests processed.", by_stream)
        self._aborted = self._counter("num_aborted_requests", "Number of requests aborted.", plain)
        self._verify_calls = self._counter("spec_verify_calls", "Number of speculative decoding verification calls.", plain)
        self._cached = self._counter(
            "cached_tokens",
            "Number of cached prompt tokens by source (device/host/storage).",
            ("cache_source", *plain),
        )
        http = ("endpoint", "method")
        self._http_requests = self._counter("http_requests", "Total number of HTTP requests by endpoint and method", http)
        self._http_responses = self._counter(
            "http_responses", "Total number of HTTP responses by endpoint and status code", (*http, "status_code")
        )
        self._http_active = prometheus_client.Gauge(
            "sglang:http_requests_active", "Number of currently active HTTP requests", http, registry=self.registry
        )

    def _histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Histogram:
        return Histogram(f"sglang:{name}", text, labels, buckets=buckets, registry=self.registry)

    def _counter(self, name: str, text: str, labels: Sequence[str]) -> Counter:
        return Counter(f"sglang:{name}", text, labels, registry=self.registry)

    def _by_stream(self, streaming: bool) -> dict[str, str]:
        return {**self._labels, "is_streaming": "true" if streaming else "false"}

    def render(self) -> bytes:
        """The text of ``/metrics``."""
        return prometheus_client.generate_latest(self.registry)

    def first_token(self, seconds: float, *, streaming: bool) -> None:
        """A request's first token came ``seconds`` after the request."""
        self._ttft.labels(**self._by_stream(streaming)).observe(seconds)

    def tokens(self, count: int, seconds: float) -> None:
        """``count`` tokens came together, ``seconds`` after those before them: each counts with its share of the time."""
        series = self._inter_token.labels(**self._labels)
        for _ in range(count):
            series.observe(seconds / count)

    def finished(self, stats: RequestStats, finish: FinishReason, seconds: float, *, streaming: bool) -> None:
        """A request is over. One that was aborted before its first token leaves no trace but its abort."""
        if finish.type == "abort":
            self.aborted()
        if finish.type == "abort" and not stats.completion_tokens:
            return
        labels = self._by_stream(streaming)
        self._e2e.labels(**labels).observe(seconds)
        self._queue.labels(**self._queue_labels).observe(stats.queue_time)
        self._prompt_length.labels(**self._labels).observe(stats.prompt_tokens)
        self._answer_length.labels(**self._labels).observe(stats.completion_tokens)
        self._prompt_tokens.labels(**labels).inc(stats.prompt_tokens)
        self._generation_tokens.labels(**labels).inc(stats.completion_tokens)
        self._requests.labels(**labels).inc()
        if stats.spec_verify_ct:
            self._verify_calls.labels(**self._labels).inc(stats.spec_verify_ct)
        if stats.cached_tokens:
            self._cached.labels(**self._labels, cache_source="device").inc(stats.cached_tokens)

    def aborted(self) -> None:
        self._aborted.labels(**self._labels).inc()

    def http_begins(self, endpoint: str, method: str) -> None:
        self._http_requests.labels(endpoint, method).inc()
        self._http_active.labels(endpoint, method).inc()

    def http_ends(self, endpoint: str, method: str, status: int) -> None:
        self._http_responses.labels(endpoint, method, str(status)).inc()
        self._http_active.labels(endpoint, method).dec()


class _EngineCollector(Collector):
    """The engine's own figures, taken when they are asked for."""

    def __init__(self, engine: Engine, labels: Mapping[str, str], startup_seconds: Mapping[str, float]) -> None:
        self._engine = engine
        self._plain = dict(labels)
        self._labels = {**labels, **_ENGINE_LABELS}
        self._startup_seconds = startup_seconds

    def collect(self) -> Iterator[Metric]:
        stats, settings = self._engine.stats(), self._engine.settings
        yield from self._gauges(stats, settings)
        yield self._split(
            "realtime_tokens",
            "Total number of tokens processed (grows with every round). mode: prefill_compute, prefill_cache, decode.",
            "mode",
            {
                "prefill_compute": stats.realtime_prefill_tokens_total,
                "decode": stats.realtime_decode_tokens_total,
                "prefill_cache": stats.cached_tokens_total,
            },
        )
        yield self._split(
            "spec_accepted_drafts",
            "Verify passes by how many drafts they accepted.",
            "accepted",
            {str(accepted): count for accepted, count in enumerate(stats.accept_histogram)},
        )
        yield self._split(
            "ddtree_round_seconds",
            "Seconds spent in the parts of draft-and-verify rounds.",
            "part",
            stats.round_seconds,
        )
        yield self._count("ddtree_rounds", "Draft-and-verify rounds that ddtree_round_seconds sums up.", stats.rounds)
        if settings.algorithm is not Algorithm.PLAIN:
            yield from self._settings_in_effect(settings, stats.draft_kv_bytes)
        startup = GaugeMetricFamily(
            "sglang:startup_time_seconds", "Engine startup duration by phase in seconds.", labels=[*self._plain, "phase"]
        )
        for phase, seconds in self._startup_seconds.items():
            startup.add_metric([*self._plain.values(), phase], seconds)
        yield startup

    def _gauges(self, stats: EngineStats, settings: Settings) -> Iterable[Metric]:
        """What SGLang's scheduler exports as gauges."""
        drafts = settings.algorithm is not Algorithm.PLAIN
        free = stats.max_total_num_tokens - stats.used_tokens
        usage = stats.used_tokens / stats.max_total_num_tokens if stats.max_total_num_tokens else 0.0
        hits = stats.realtime_prefill_tokens_total + stats.cached_tokens_total
        width = settings.block_size if settings.algorithm is Algorithm.DFLASH else settings.largest_tree + 1
        return (
            self._gauge(
                "max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", stats.max_total_num_tokens
            ),
            self._gauge("weight_memory_usage_gb", "Memory used by model weights in GB.", stats.weight_bytes / GIB),
            self._gauge(
                "kv_cache_memory_usage_gb",
                "Memory used by the KV cache pools in GB.",
                (stats.target_kv_bytes + stats.draft_kv_bytes) / GIB,
            ),
            self._gauge("page_size", "KV cache page size in tokens.", 1),
            self._gauge("context_len", "Maximum context length.", self._engine.context_length),
            self._gauge("num_running_reqs", "The number of running requests.", stats.running),
            self._gauge("num_queue_reqs", "The number of requests in the waiting queue.", stats.queued),
            self._gauge("num_grammar_queue_reqs", "The number of requests in the grammar waiting queue.", 0),
            self._gauge("num_retracted_reqs", "The number of retracted requests.", 0),
            self._gauge("gen_throughput", "The generation throughput (token/s).", stats.gen_throughput),
            self._gauge("cache_hit_rate", "The prefix cache hit rate.", stats.cached_tokens_total / hits if hits else 0.0),
            self._gauge("token_usage", "The token usage.", usage),
            self._gauge("full_token_usage", "The token usage for full attention layers.", usage),
            self._gauge("num_used_tokens", "The number of used tokens.", stats.used_tokens),
            self._gauge("kv_available_tokens", "Number of free token slots in the KV cache pool.", free),
            self._gauge("kv_used_tokens", "Number of actively used token slots in the KV cache pool.", stats.used_tokens),
            self._gauge(
                "spec_accept_length",
                "Mean acceptance length of speculative decoding (accepted drafts + bonus token per forward).",
                stats.accept_length,
            ),
            self._gauge(
                "spec_accept_rate",
                "Speculative acceptance rate (`accepted drafts / proposed drafts` in batch).",
                stats.accept_rate,
            ),
            self._gauge("spec_num_steps", "Currently active speculative_num_steps.", 1 if drafts else 0),
            self._gauge(
                "spec_num_draft_tokens",
                "Currently active speculative_num_draft_tokens (decouples from steps under topk>1).",
                width if drafts else 0,
            ),
            self._gauge("is_cuda_graph", "Whether the batch is using CUDA graph.", 0),
        )

    def _settings_in_effect(self, settings: Settings, draft_kv_bytes: int) -> Iterable[Metric]:
        return (
            self._gauge("ddtree_budget", "Nodes of the tree at most, root not counted, in effect.", settings.largest_tree),
            self._gauge("ddtree_budget_auto", "1 while trees are sized automatically.", settings.automatic),
            self._gauge("ddtree_topk", "Candidates per position in effect.", settings.tree_topk),
            self._gauge("ddtree_speculation", "1 while the engine drafts, 0 while it was told not to.", settings.speculation),
            self._gauge("ddtree_draft_window", "Tokens of the compact draft cache; 0 = off.", settings.draft_window),
            self._gauge("ddtree_layers_window", "The drafter layers' own window in tokens; 0 = off.", settings.layers_window),
            self._gauge("ddtree_draft_kv_bytes", "Bytes of draft KV allocated for running requests.", draft_kv_bytes),
        )

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"sglang:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), float(value))
        return family

    def _count(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"sglang:{name}", text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), float(value))
        return family

    def _split(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        family = CounterMetricFamily(f"sglang:{name}", text, labels=[*self._labels, label])
        for key, value in values.items():
            family.add_metric([*self._labels.values(), key], float(value))
        return family
