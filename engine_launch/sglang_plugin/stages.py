"""Where a round's time goes (``DDTREE_TIMING=1``): the mean of each stage, with the GPU waited for at each stage's end.

Waiting takes away what overlaps otherwise, so a server that measures is slower than one that does not: for looking, not for
serving.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class StageClock:
    """Times of the stages between :meth:`begin` and the last :meth:`end` of a round."""

    def __init__(self, wait: Callable[[], None] | None, now: Callable[[], float] = time.perf_counter) -> None:
        """``wait`` returns when the device has done all that it was given; without it nothing is measured."""
        self._wait = wait
        self._now = now
        self._last = 0.0
        self._rounds = 0
        self._seconds: dict[str, float] = {}

    @property
    def measures(self) -> bool:
        return self._wait is not None

    def begin(self) -> None:
        """A round begins."""
        if self._wait is not None:
            self._wait()
            self._rounds += 1
            self._last = self._now()

    def end(self, stage: str) -> None:
        """What was done since the last call was ``stage``."""
        if self._wait is not None:
            self._wait()
            now = self._now()
            self._seconds[stage] = self._seconds.get(stage, 0.0) + now - self._last
            self._last = now

    def reset(self) -> None:
        """Forget the rounds so far: other settings are in effect."""
        self._rounds, self._seconds = 0, {}

    def means(self) -> dict[str, float]:
        """Milliseconds of each stage per round."""
        return {stage: 1000 * seconds / max(1, self._rounds) for stage, seconds in self._seconds.items()}
