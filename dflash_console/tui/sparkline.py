"""A series in a few cells: the shape of the last minutes, not its values."""

from __future__ import annotations

from collections.abc import Iterable

from .series import Point

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(points: Iterable[Point], start: float, end: float, cells: int) -> str:
    """One character a cell, the mean of its samples; a cell without a known sample is a blank.

    The scale goes from zero to the largest mean, so that heights can be compared within one line and not between two.
    """
    if cells < 1 or end <= start:
        return ""
    sums, numbers = [0.0] * cells, [0] * cells
    for point in points:
        if point.value is not None and start <= point.at <= end:
            cell = min(cells - 1, int((point.at - start) / (end - start) * cells))
            sums[cell] += max(0.0, point.value)
            numbers[cell] += 1
    means = [total / number if number else None for total, number in zip(sums, numbers, strict=True)]
    top = max((mean for mean in means if mean is not None), default=0.0)
    return "".join(" " if mean is None else block(mean, top) for mean in means)


def block(mean: float, top: float) -> str:
    """The character whose height is ``mean`` (at most ``top``) on a scale from zero to ``top``."""
    return BLOCKS[0] if top <= 0 else BLOCKS[round(max(0.0, mean) / top * (len(BLOCKS) - 1))]
