"""How well colours are told apart."""

from __future__ import annotations

from textual.color import Color


def contrast(one: str, other: str) -> float:
    """WCAG contrast ratio of two colours."""

    def light(name: str) -> float:
        parts = [value / 255 for value in Color.parse(name).rgb]
        linear = [value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
