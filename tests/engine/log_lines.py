"""The engine's log as lines."""

from __future__ import annotations

import io
import re

from engine_launch.embedded.api import Algorithm
from engine_launch.embedded.events import DraftRunnerReady
from engine_launch.embedded.logs import SglangLog, configure_logging

RUNNER = DraftRunnerReady(
    algorithm=Algorithm.DDTREE,
    attention_backend="torch_native",
    model_class="DFlashDraftModel",
    block_size=8,
    tree_budget="8",
    tree_topk=4,
    layers_window=2048,
    draft_window=2048,
    mask_token="<|MASK|>",
    mask_token_id=16,
)


class Lines:
    """A log and what it wrote."""

    def __init__(self, level: str) -> None:
        self.out, self.bars = io.StringIO(), io.StringIO()
        self.log = SglangLog(configure_logging(level, self.out), self.bars)

    def texts(self) -> list[str]:
        """Lines without their date, which is checked."""
        lines = self.out.getvalue().splitlines()
        assert all(re.match(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ", line) for line in lines)
        return [line.split("] ", 1)[1] for line in lines]
