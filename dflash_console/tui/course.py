"""What is known of an operation: it is there whether a screen shows it or not, and as long as somebody may ask for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..apply.records import ApplyResult, Stage, StageEvent

_BACK = "roll back: "
"""Before the names of a roll-back's stages."""


class Course:
    """An operation from its begin to its end, as it was told so far."""

    def __init__(self, word: str, host: str) -> None:
        """
        Args:
            word: what is done, such as ``restarting``.
            host: where; empty when that is not known.
        """
        self.word = word
        self.host = host
        self.begun = time.time()
        """Seconds since the epoch."""
        self._begun_clock = time.monotonic()
        self._over_clock = 0.0
        self.stages: dict[str, Stage] = {}
        """By name, in the order in which they began; those of a roll-back have a prefix."""
        self.planned: tuple[str, ...] = ()
        """All stages of the part that runs, also those that have not begun."""
        self.event: StageEvent | None = None
        """The newest."""
        self._event_clock = 0.0
        self.result: ApplyResult | None = None
        self.sentence = ""
        """How it ended where there is no result."""
        self.over = False

    def take_stage(self, event: StageEvent) -> None:
        """A stage began, moved or ended."""
        prefix = _BACK if event.rolling_back else ""
        self.stages[self._name(event)] = event.stage
        self.planned = tuple(prefix + name for name in event.planned)
        self.event = event
        self._event_clock = time.monotonic()

    def begins(self, event: StageEvent) -> bool:
        """Whether a stage begins with this event, and is not only going on or over."""
        known = self.stages.get(self._name(event))
        return event.stage.status.value == "running" and (known is None or known.status.value != "running")

    @staticmethod
    def _name(event: StageEvent) -> str:
        return f"{_BACK if event.rolling_back else ''}{event.stage.name}"

    def take_result(self, result: ApplyResult | None, sentence: str) -> None:
        """It is over."""
        self._over_clock = time.monotonic()
        self.result, self.sentence, self.over = result, sentence, True

    @property
    def good(self) -> bool:
        """Whether it is over and did what it should."""
        return self.result is not None and self.result.good

    @property
    def seconds(self) -> float:
        """From its begin to now, or to its end."""
        return (self._over_clock if self.over else time.monotonic()) - self._begun_clock

    @property
    def left_s(self) -> float | None:
        """Seconds that it is still expected to take; ``None`` when nothing is known of that."""
        if self.event is None or self.event.left_s is None:
            return None
        return max(0.0, self.event.left_s - (time.monotonic() - self._event_clock))
