"""The plain baseline: decode throughput of one stream on an engine that was started without speculation. Pure."""

from __future__ import annotations

from statistics import median

from ..evidence.metrics import Rates
from ..history import Baseline

ENOUGH = 5
"""Samples before a figure is worth keeping."""
KEPT = 60


class BaselineMeter:
    """Collects throughput while exactly one request runs plainly; the median of the newest samples is the baseline."""

    def __init__(self) -> None:
        self._samples: list[float] = []

    def add(self, rates: Rates, *, plain: bool, at: float) -> Baseline | None:
        """The baseline after this sample; ``None`` when the sample says nothing about it or there are too few.

        Args:
            plain: the engine was started without speculation. Speculation switched off while running does not count: that
                engine goes on feeding the drafter.
            at: seconds since the epoch.
        """
        if not plain:
            self._samples.clear()
            return None
        if rates.running != 1 or not rates.decode_tok_s:
            return None
        self._samples = [*self._samples, rates.decode_tok_s][-KEPT:]
        if len(self._samples) < ENOUGH:
            return None
        return Baseline(at, median(self._samples), f"median of {len(self._samples)} samples, one request, plain start")
