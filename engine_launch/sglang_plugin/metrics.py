"""DDTREE's own Prometheus series, beside SGLang's and under the embedded engine's names."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence

from prometheus_client import REGISTRY, CollectorRegistry, Gauge, Histogram

from engine_launch.sglang_plugin.settings import Settings

_BUCKETS = (*range(1, 17), 24, 32)
"""Tokens committed by one verify: 1 is nothing accepted."""


class CountedHistogram(Histogram):
    """A histogram that takes many observations of one value at the price of one.

    In the files that processes share, one observation takes 10 µs (prometheus_client 0.26, AMD EPYC): 0.3 ms of a round for
    32 requests, between two launches. A round commits a block at most, so that there are few values.
    """

    def observe_many(self, amount: float, times: int) -> None:
        """``times`` observations of ``amount``. Buckets hold their own counts; they are added up when they are read."""
        self._sum.inc(amount * times)
        self._buckets[bisect_left(self._upper_bounds, amount)].inc(times)


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
        self._commits = CountedHistogram(
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
        for correct, requests in Counter(correct_drafts).items():
            self._commits.observe_many(correct + 1, requests)
