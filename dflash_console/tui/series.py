"""Values over time, bounded, and resampled to the width of a plot before anything is drawn.

Times are seconds since the epoch by this machine's clock: they place samples on an axis and order nothing on a host.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SPANS = (60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0)
"""Spans of the plots in seconds: 1 min … 24 h."""


@dataclass(frozen=True)
class Point:
    """One sample; ``value`` is ``None`` where the source said nothing."""

    at: float
    value: float | None


@dataclass(frozen=True)
class Mark:
    """Something that happened to the engine: a start, a restart, a hot change."""

    at: float
    label: str
    start: str = ""
    """Of a start or restart: the beginning of its invocation id, by which two accounts of it are known to be one."""


class Series:
    """Samples in the order of time. What is older than ``keep`` seconds is forgotten."""

    def __init__(self, keep: float = SPANS[-1], limit: int = 100_000) -> None:
        self._keep = keep
        self._points: deque[Point] = deque(maxlen=limit)

    def __len__(self) -> int:
        return len(self._points)

    def add(self, at: float, value: float | None) -> None:
        """Append a sample; one that is not newer than the last is dropped (a clock that was set back)."""
        if self._points and at <= self._points[-1].at:
            return
        self._points.append(Point(at, value))
        while self._points and self._points[0].at < at - self._keep:
            self._points.popleft()

    def prepend(self, points: Iterable[Point]) -> None:
        """Put older samples (from history) before those that are already here."""
        first = self._points[0].at if self._points else math.inf
        older = [point for point in points if point.at < first]
        self._points.extendleft(reversed(older))

    def since(self, start: float) -> list[Point]:
        """Samples from ``start`` on, and the last one before it, so that a line enters the plot from its edge."""
        points = list(self._points)
        first = bisect_left(points, start, key=lambda point: point.at)
        return points[max(0, first - 1) :]

    def last(self) -> float | None:
        """The newest value that is known."""
        return next((point.value for point in reversed(self._points) if point.value is not None), None)


def span_of_past(points: Sequence[Point], longest: float, now: float) -> float:
    """The shortest span of the plots that holds what is known of the last ``longest`` seconds before ``now``.

    A longer one would be an empty plot with a sliver at its edge.
    """
    oldest = next((point.at for point in points if point.at >= now - longest), now)
    return next((span for span in SPANS if span >= now - oldest), longest)


@dataclass(frozen=True)
class Curve:
    """A line ready to draw: runs of neighbouring points, broken where samples are missing."""

    runs: tuple[tuple[tuple[float, ...], tuple[float, ...]], ...]

    @property
    def top(self) -> float:
        return max((max(ys) for _, ys in self.runs), default=0.0)


def resample(points: Sequence[Point], start: float, end: float, columns: int, *, gap: float) -> Curve:
    """At most ``columns`` points between ``start`` and ``end``, each the mean of its column.

    A silence longer than ``gap`` seconds, or a column whose samples are all unknown, breaks the line: missing data is not
    zero and is not bridged.
    """
    if columns < 1 or end <= start:
        return Curve(())
    width = (end - start) / columns
    # A column narrower than the sampling interval is often empty; that is no gap.
    patience = max(gap, 2 * width)
    runs: list[tuple[list[float], list[float]]] = []
    last_at = -math.inf
    column = -1
    total, number = 0.0, 0
    for point in points:
        if point.at < start - patience or point.at > end:
            continue
        if point.value is None:
            last_at = -math.inf
            column = -1
            continue
        here = max(0, min(columns - 1, int((point.at - start) / width)))
        if point.at - last_at > patience:
            runs.append(([], []))
            column = -1
        if here != column:
            column, total, number = here, 0.0, 0
            runs[-1][0].append(max(start, point.at))
            runs[-1][1].append(point.value)
        total += point.value
        number += 1
        runs[-1][1][-1] = total / number
        runs[-1][0][-1] = max(start, point.at)
        last_at = point.at
    return Curve(tuple((tuple(xs), tuple(ys)) for xs, ys in runs if xs))


def nice_ticks(top: float, rows: int) -> tuple[float, ...]:
    """Round values from 0 to at least ``top``, about one for every three rows."""
    wanted = max(1, min(5, rows // 3))
    raw = max(top, 1e-9) / wanted
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * magnitude for factor in (1, 2, 3, 4, 5, 10) if factor * magnitude >= raw * 0.999)
    return tuple(step * index for index in range(math.ceil(top / step * 0.999) + 1))


def time_ticks(start: float, end: float, number: int) -> tuple[float, ...]:
    """Round moments inside a span, for the labels of the time axis."""
    span = end - start
    steps = (5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600)
    step = next((step for step in steps if span / step <= max(1, number)), steps[-1])
    first = math.ceil(start / step) * step
    if first < start:
        first += step
    return tuple(float(moment) for moment in range(first, int(end) + 1, step))
