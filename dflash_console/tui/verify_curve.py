"""What a verify costs by its rows, as an engine measured it, in a few lines that fit a panel. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .sparkline import block

NAME_CELLS = 5
VALUE_CELLS = 6


def curve_lines(curve: Sequence[tuple[float, float]], width: int) -> list[str]:
    """Rows, milliseconds and their heights, one above the other; empty without a curve or room for two points.

    Args:
        curve: (rows of a verify, milliseconds), ascending.
        width: cells; where not all points fit, the first and the last stay and the others are spread evenly.
    """
    shown = _thinned(curve, (width - NAME_CELLS) // VALUE_CELLS)
    if not shown:
        return []
    top = max(milliseconds for _, milliseconds in shown)
    lines = (
        ("rows", [f"{rows:.0f}" for rows, _ in shown]),
        ("ms", [f"{milliseconds:.1f}" for _, milliseconds in shown]),
        ("", [block(milliseconds, top) * 3 for _, milliseconds in shown]),
    )
    return [name.ljust(NAME_CELLS) + "".join(value.rjust(VALUE_CELLS) for value in values) for name, values in lines]


def _thinned(curve: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    if len(curve) < 2 or most < 2:
        return []
    if len(curve) <= most:
        return list(curve)
    return [curve[round(index * (len(curve) - 1) / (most - 1))] for index in range(most)]
