"""DDTREE's own Prometheus series, beside SGLang's and under the embedded engine's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client import REGISTRY, CollectorRegistry, Gauge, Histogram

from engine_launch.sglang_plugin.settings import Settings

_BUCKETS = (*range(1, 17), 24, 32)
"""Tokens committed by one verify: 1 is nothing accepted."""


class TreeMetrics:
    """Written by the scheduler process, served by SGLang's front end through the shared files of ``prometheus_client``."""

    def __init__(self, labels: Mapping[str, str], registry: CollectorRegistry = REGISTRY) -> None:
        """``labels`` are those of SGLang's own scheduler series."""

        def gauge(name: str, text: str) -> Gauge:
            made = Gauge(f"sglang:{name}", text, tuple(labels), registry=registry, multiprocess_mode="mostrecent")
            return made.labels(**labels)

        self._budget = gauge("ddtree_budget", "Nodes of the tree, root not counted, in effect.")
        self._topk = gauge("ddtree_topk", "Candidates per position in effect.")
        self._speculation = gauge("ddtree_speculation", "1 while the engine drafts, 0 while it was told not to.")
        self._window = gauge("ddtree_draft_window", "Tokens of the compact draft cache; 0 = off.")
        self._nodes = gauge("ddtree_nodes", "Rows without the root of the last verify pass, per request.")
        self._commits = Histogram(
            "sglang:ddtree_commit_length",
            "Tokens committed by one verify of one request.",
            tuple(labels),
            registry=registry,
            buckets=_BUCKETS,
        ).labels(**labels)

    def settings(self, current: Settings) -> None:
        """What is in effect from now on."""
        self._budget.set(current.budget)
        self._topk.set(current.topk)
        self._speculation.set(int(current.speculation))
        self._window.set(current.window)

    def round(self, correct_drafts: Sequence[int], nodes: int) -> None:
        """One round of the batch: accepted drafts of each request."""
        self._nodes.set(nodes)
        for correct in correct_drafts:
            self._commits.observe(correct + 1)
