"""What turns an engine's samples into figures, imported when the first sample comes."""

from __future__ import annotations

from ..evidence.metrics import RateMeter
from .baseline import BaselineMeter


class Meters:
    """The figures of one service's engine: rates over their spans, and the plain baseline."""

    def __init__(self) -> None:
        self.rates = RateMeter()
        self.baseline = BaselineMeter()
