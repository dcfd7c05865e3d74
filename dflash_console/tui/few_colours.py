"""Themes for terminals of 256 colours, which is what most logins over SSH get: ``COLORTERM`` does not travel.

Such a terminal shows each colour as one of 240: a cube of 6 x 6 x 6 and 24 greys. Left to itself the renderer rounds red, green
and blue one by one, and the dark bluish grey of a frame comes out as navy or teal. Here every colour of a theme is replaced by
the entry that looks most like it (near in CIE L*a*b*) before anything is mixed from it; the renderer keeps such a colour.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

from rich.console import Console
from textual import constants
from textual.color import Color
from textual.theme import Theme

Rgb = tuple[int, int, int]

NEARLY_GREY = 20.0
"""Chroma in CIE L*a*b* below which a colour is a grey with a tint: the themes' grounds and frames have 3 to 16."""

_STEPS = (0, 95, 135, 175, 215, 255)
_APART = "shade-"
"""Variables of this prefix must stay different from each other: the shades of neighbouring verifies."""


def terminal_has_few_colours() -> bool:
    """Whether this terminal shows 256 colours or fewer, by the rules of the renderer (``COLORTERM``, ``TERM``)."""
    system = constants.COLOR_SYSTEM
    if system == "auto":
        system = Console(force_terminal=True).color_system
    return system is not None and system in ("256", "standard")


def with_few_colours(theme: Theme) -> Theme:
    """The theme in the terminal's own 240 colours, under the same name."""

    def fit(value: str | None) -> str | None:
        return None if value is None else _hex(nearest(value))

    variables: dict[str, str] = {}
    taken: set[Rgb] = set()
    if theme.background is not None:
        taken.add(nearest(theme.background))
    for name, value in theme.variables.items():
        found = nearest(value, frozenset(taken)) if name.startswith(_APART) else nearest(value)
        if name.startswith(_APART):
            taken.add(found)
        variables[name] = _hex(found)
    return replace(
        theme,
        primary=_hex(nearest(theme.primary)),
        secondary=fit(theme.secondary),
        accent=fit(theme.accent),
        success=fit(theme.success),
        warning=fit(theme.warning),
        error=fit(theme.error),
        foreground=fit(theme.foreground),
        background=fit(theme.background),
        surface=fit(theme.surface),
        panel=fit(theme.panel),
        variables=variables,
    )


def nearest(colour: str, without: frozenset[Rgb] = frozenset()) -> Rgb:
    """The entry of the 240 that looks most like ``colour`` and is not one of ``without``. What is nearly grey gets no tint."""
    wanted = _lab(Color.parse(colour).rgb)

    colourful = math.hypot(*wanted[1:])

    def unlike(entry: Rgb) -> float:
        lab = _lab(entry)
        tint = max(0.0, math.hypot(*lab[1:]) - colourful) if colourful < NEARLY_GREY else 0.0
        return math.dist(wanted, lab) + tint

    return min((entry for entry in _entries() if entry not in without), key=unlike)


@cache
def _entries() -> tuple[Rgb, ...]:
    greys = [(level, level, level) for level in range(8, 239, 10)]
    cube = [(red, green, blue) for red in _STEPS for green in _STEPS for blue in _STEPS]
    return (*cube, *greys)


@cache
def _lab(rgb: Rgb) -> tuple[float, float, float]:
    """CIE L*a*b* of an sRGB colour, white point D65."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (value / 255 for value in rgb)
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def _hex(rgb: Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)
