"""What the server says of itself: ``/server_info``, ``/v1/loads``, ``/get_model_info``, ``/v1/models``.

Three sorts of value in ``/server_info`` are kept apart: flags as started (top level, SGLang's names), what the engine
computed at start (``startup_settings``), and what is in effect now (``internal_states[0]``).
"""

from __future__ import annotations

import datetime
import importlib.metadata
import time
from collections.abc import Mapping

from engine_launch.embedded.api import Algorithm, Engine, Settings
from engine_launch.embedded.logs import GIB
from engine_launch.embedded.server_options import ServerOptions, server_args

ENGINE_NAME = "embedded"
DISTRIBUTION = "ddtree-console"


def engine_version() -> str:
    """``ddtree-embedded 0.1.0``: not a version of SGLang, and it says so."""
    try:
        return f"ddtree-embedded {importlib.metadata.version(DISTRIBUTION)}"
    except importlib.metadata.PackageNotFoundError:  # run from a source tree that is not installed
        return "ddtree-embedded (source)"


class ServerReport:
    """The reports of one running server."""

    def __init__(self, engine: Engine, options: ServerOptions, startup_seconds: Mapping[str, float]) -> None:
        self._engine = engine
        self._options = options
        self._startup_seconds = dict(startup_seconds)
        self._created = int(time.time())

    def server_info(self) -> dict[str, object]:
        engine, stats = self._engine, self._engine.stats()
        settings = engine.startup_settings
        drafts = settings.algorithm is not Algorithm.PLAIN
        return {
            **server_args(self._options),
            "context_length": engine.context_length,
            "speculative_num_draft_tokens": settings.block_size if drafts else None,
            "speculative_dflash_block_size": settings.block_size if drafts else None,
            "status": "ready",
            "max_total_num_tokens": stats.max_total_num_tokens,
            "max_req_input_len": engine.context_length - 1,
            "startup_time": self._startup_seconds,
            "startup_settings": settings_json(settings),
            "internal_states": [self.internal_state()],
            "engine": ENGINE_NAME,
            "version": engine_version(),
        }

    def internal_state(self) -> dict[str, object]:
        """What is in effect now, and the figures that change."""
        engine, stats = self._engine, self._engine.stats()
        return {
            **settings_json(engine.settings),
            "last_gen_throughput": stats.gen_throughput,
            "avg_spec_accept_length": stats.avg_accept_length,
            "memory_usage": {
                "weight": round((stats.weight_bytes + stats.draft_weight_bytes) / GIB, 3),
                "kvcache": round(stats.target_kv_bytes / GIB, 3),
                "draft_weight": round(stats.draft_weight_bytes / GIB, 3),
                "draft_kv": round(stats.draft_kv_bytes / GIB, 6),
                "token_capacity": stats.max_total_num_tokens,
            },
            "effective_max_running_requests_per_dp": self._options.engine.max_running_requests,
            "draft_kv_bytes": stats.draft_kv_bytes,
            "target_kv_bytes": stats.target_kv_bytes,
            "round_seconds": dict(stats.round_seconds),
            "rounds": stats.rounds,
            "prefix_cache": {"entries": stats.prefix_entries, "bytes": stats.prefix_bytes},
            "spec_accept_histogram": list(stats.accept_histogram),
            "avg_tree_nodes": round(stats.avg_tree_nodes, 3),
            **_curves_json(stats.verify_curves),
        }

    def loads(self) -> dict[str, object]:
        """``/v1/loads`` with the fields that mean something here."""
        stats = self._engine.stats()
        usage = stats.used_tokens / stats.max_total_num_tokens if stats.max_total_num_tokens else 0.0
        hits = stats.realtime_prefill_tokens_total + stats.cached_tokens_total
        now = time.time()
        return {
            "timestamp": datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat(),
            "version": engine_version(),
            "accelerator": "CPU",
            "num_accelerators": 0,
            "loads": [
                {
                    "timestamp": now,
                    "dp_rank": 0,
                    "num_running_reqs": stats.running,
                    "num_waiting_reqs": stats.queued,
                    "num_used_tokens": stats.used_tokens,
                    "num_total_tokens": stats.used_tokens,
                    "max_total_num_tokens": stats.max_total_num_tokens,
                    "max_running_requests": self._options.engine.max_running_requests,
                    "token_usage": usage,
                    "gen_throughput": stats.gen_throughput,
                    "cache_hit_rate": stats.cached_tokens_total / hits if hits else 0.0,
                    "utilization": stats.running / self._options.engine.max_running_requests,
                    "total_prefill_uncached_tokens": stats.realtime_prefill_tokens_total,
                    "memory": {
                        "weight_gb": round((stats.weight_bytes + stats.draft_weight_bytes) / GIB, 3),
                        "kv_cache_gb": round((stats.target_kv_bytes + stats.draft_kv_bytes) / GIB, 3),
                        "graph_gb": 0.0,
                        "token_capacity": stats.max_total_num_tokens,
                    },
                    "speculative": {"accept_length": stats.accept_length, "accept_rate": stats.accept_rate},
                    "disaggregation": {"mode": "null"},
                    "queues": {"waiting": stats.queued, "grammar": 0, "paused": 0, "retracted": 0},
                }
            ],
        }

    def load_counts(self) -> list[dict[str, object]]:
        """``/get_load`` as older SGLang has it: one entry per data-parallel rank."""
        stats = self._engine.stats()
        return [
            {
                "dp_rank": 0,
                "num_reqs": stats.running + stats.queued,
                "num_waiting_reqs": stats.queued,
                "num_tokens": stats.used_tokens,
                "ts_tic": time.perf_counter(),
            }
        ]

    def model_info(self) -> dict[str, object]:
        return {
            "model_path": self._options.model_path,
            "tokenizer_path": self._options.model_path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
        }

    def models(self) -> dict[str, object]:
        return {"object": "list", "data": [self.model_card()]}

    def model_card(self) -> dict[str, object]:
        """The one model that is served, as OpenAI's API describes models."""
        name = self._options.served_model_name
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": DISTRIBUTION,
            "root": name,
            "parent": None,
            "max_model_len": self._engine.context_length,
        }


def settings_json(settings: Settings) -> dict[str, object]:
    """Settings under the names by which ``/set_internal_state`` takes them, and those that only a start sets.

    A window that is off is null, as SGLang reports it.
    """
    drafts = settings.algorithm is not Algorithm.PLAIN
    tree = settings.algorithm is Algorithm.DDTREE
    budget: object = settings.budget_text if settings.automatic else settings.tree_budget
    return {
        "algorithm": settings.algorithm.value,
        "speculation": settings.speculation,
        "block_size": settings.block_size if drafts else None,
        "speculative_ddtree_budget": budget if tree else None,
        "speculative_ddtree_topk": settings.tree_topk if tree else None,
        "speculative_draft_window_size": settings.draft_window or None,
        "layers_window": settings.layers_window or None,
        "compact_cache": settings.draft_window > 0,
    }


def _curves_json(curves: Mapping[int, tuple[tuple[int, float], ...]]) -> dict[str, object]:
    """``verify_curve`` (``[[rows, ms], …]`` at the shortest context) and ``verify_curves`` by context length."""
    written = {str(context): [[rows, round(ms, 3)] for rows, ms in curve] for context, curve in curves.items()}
    return {"verify_curve": next(iter(written.values()), []), "verify_curves": written}
