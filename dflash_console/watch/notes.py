"""What of a watched service is kept in history: samples, the plain baseline, restarts and hot changes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..evidence.start_log import ChangePoint
    from ..history import History
    from ..hosts.service import ServiceState
    from ..state import Rates
    from .baseline import BaselineMeter


class Notes:
    """Writes under one service's key; without a history it does nothing."""

    def __init__(self, history: History | None, key: str) -> None:
        self._history = history
        self._key = key

    def note_rates(self, rates: Rates, meter: BaselineMeter, *, plain: bool) -> None:
        """Keep the figures of this moment; ``plain``: the engine was started without speculation."""
        if self._history is None:
            return
        from ..history import Sample

        at = time.time()
        sample = Sample(
            at,
            decode_tok_s=rates.decode_tok_s,
            commit_length=None if rates.commit_stale else rates.commit_length,
            running=rates.running,
            queued=rates.queued,
            kv_usage=rates.kv_usage,
        )
        self._history.add_sample(self._key, sample)
        baseline = meter.add(rates, plain=plain, at=at)
        if baseline is not None:
            self._history.set_baseline(self._key, baseline)

    def note_start(self, service: ServiceState) -> None:
        """Mark a start, at the time that its host tells."""
        if self._history is not None and service.invocation_id is not None and service.started_at is not None:
            from ..history import Mark, MarkKind

            self._history.add_mark(self._key, Mark(service.started_at, MarkKind.RESTART, f"start {service.invocation_id[:8]}"))

    def note_changes(self, points: Iterable[ChangePoint]) -> None:
        """Mark the hot changes that the engine took."""
        for point in points:
            if self._history is not None and point.change.differs and point.at is not None:
                from ..history import Mark, MarkKind

                self._history.add_mark(self._key, Mark(point.at, MarkKind.HOT, f"{point.change.name} {point.change.new}"))
