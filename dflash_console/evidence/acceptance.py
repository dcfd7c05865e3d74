"""Alarms about acceptance from decode lines: a drafter that is silently useless, and one that is too good to be true.

The alarm stands on commit length alone. Accept rate has two definitions in the field and is never compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from .start_log import DecodePoint

COLLAPSED_BELOW = 1.2
"""Commit length at which drafting hardly commits more than plain decoding does."""
COLLAPSED_WINDOWS = 5
PERFECT_WINDOWS = 20


class AcceptanceAlarm(Enum):
    """What the newest decode lines say together."""

    COLLAPSED = "acceptance collapsed"
    PERFECT = "every draft is accepted"
    """Of a benchmark's random tokens or a repeated prompt, or of a broken verify; seldom of a good drafter."""


@dataclass(frozen=True)
class AcceptanceFinding:
    alarm: AcceptanceAlarm
    commit_length: float
    """Mean over the windows."""
    windows: int
    first_line: int
    """Log line of the first of these windows."""
    at: float | None = None
    """When that line was printed, by the host's clock."""
    rank: int | None = None
    """The data-parallel rank that printed these lines, where there are several."""

    @property
    def words(self) -> str:
        """One sentence: what is seen, where, and what it may mean."""
        of = f" of DP{self.rank}" if self.rank is not None else ""
        lines = f"the newest {self.windows} decode lines{of} (from log line {self.first_line})"
        seen = f"commit length {self.commit_length:.2f} over {lines}"
        if self.alarm is AcceptanceAlarm.COLLAPSED:
            return f"{self.alarm.value}: {seen}: drafting costs time and commits next to nothing"
        return f"{self.alarm.value}: {seen}: a repeated or random prompt, or a verify that checks nothing"


def acceptance_finding(
    points: Sequence[DecodePoint], block_size: int | None, *, perfect_windows: int = PERFECT_WINDOWS
) -> AcceptanceFinding | None:
    """The alarm that the newest windows give; windows in which nothing ran, or without a commit length, do not count."""
    counted = [point for point in points if point.batch.running and point.batch.accept_len is not None]
    ranks = sorted({point.rank.dp for point in counted if point.rank.dp is not None})
    # Each data-parallel rank drafts for itself: of several, one alone may have collapsed.
    for rank in ranks if len(ranks) > 1 else (None,):
        own = [point for point in counted if rank in (None, point.rank.dp)]
        if (found := _finding(own, block_size, perfect_windows)) is not None:
            return replace(found, rank=rank)
    return None


def _finding(counted: Sequence[DecodePoint], block_size: int | None, perfect_windows: int) -> AcceptanceFinding | None:
    lengths = [point.batch.accept_len or 0.0 for point in counted]
    newest = lengths[-COLLAPSED_WINDOWS:]
    if len(newest) == COLLAPSED_WINDOWS and max(newest) < COLLAPSED_BELOW:
        return AcceptanceFinding(
            AcceptanceAlarm.COLLAPSED, sum(newest) / len(newest), len(newest), *_place(counted[-COLLAPSED_WINDOWS])
        )
    newest = lengths[-perfect_windows:]
    if block_size is not None and len(newest) == perfect_windows and min(newest) >= block_size:
        return AcceptanceFinding(
            AcceptanceAlarm.PERFECT, sum(newest) / len(newest), len(newest), *_place(counted[-perfect_windows])
        )
    return None


def _place(point: DecodePoint) -> tuple[int, float | None]:
    return point.number, point.at
