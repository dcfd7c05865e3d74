"""Draw commit length and speed against the budget from measured figures.

``python -m docs.make_speed_picture`` reads ``docs/speed.json`` (written by ``python -m tests.benchmarks.budgets --json
docs/speed.json``) and writes ``docs/pictures/speed.png``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import cairosvg

HERE = Path(__file__).parent
PANEL_WIDTH, HEIGHT, MARGIN = 470, 360, 56
COMMIT, SPEED, INK, FAINT = "#1f77b4", "#d1495b", "#22272e", "#d8dde3"
FONT = 'font-family="DejaVu Sans, sans-serif"'


def text(x: float, y: float, words: str, *, size: int = 12, colour: str = INK, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" {FONT}>{words}</text>'


def line(points: list[tuple[float, float]], colour: str, *, dashes: str = "") -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    width = 1 if colour == FAINT else 2
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}"/>'


class Panel:
    """One suite: two curves over the budget on one scale, and the automatic budget as dashed lines."""

    def __init__(self, left: float, top_value: float) -> None:
        self._left = left + MARGIN
        self._width = PANEL_WIDTH - MARGIN - 20
        self._bottom, self._top = HEIGHT - 62, 44
        self._top_value = top_value

    def x(self, budget: float) -> float:
        """Budgets from 1 to 64, doubling by equal steps."""
        return self._left + self._width * math.log2(budget) / 6

    def y(self, value: float) -> float:
        return self._bottom - (self._bottom - self._top) * value / self._top_value

    def draw(self, title: str, modes: list[dict[str, float]], auto: dict[str, float]) -> list[str]:
        right = self._left + self._width
        parts = [text(self._left + self._width / 2, 26, title, size=14)]
        for value in range(int(self._top_value) + 1):
            parts.append(line([(self._left, self.y(value)), (right, self.y(value))], FAINT))
            parts.append(text(self._left - 8, self.y(value) + 4, str(value), anchor="end"))
        for mode in modes:
            parts.append(text(self.x(mode["budget"]), self._bottom + 18, f"{mode['budget']:g}"))
        parts.append(text(self._left + self._width / 2, self._bottom + 36, "budget (nodes of the tree)"))
        for key, colour in (("commit", COMMIT), ("x_plain", SPEED)):
            points = [(self.x(mode["budget"]), self.y(mode[key])) for mode in modes]
            parts.append(line(points, colour))
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
            parts.append(line([(self._left, self.y(auto[key])), (right, self.y(auto[key]))], colour, dashes="5 4"))
        return parts


def main() -> None:
    runs = [run for run in json.loads((HERE / "speed.json").read_text(encoding="utf-8"))["runs"] if run["streams"] == 1]
    highest = max(max(mode["commit"], mode["x_plain"]) for run in runs for mode in run["modes"])
    width = PANEL_WIDTH * len(runs)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}">']
    parts.append(f'<rect width="{width}" height="{HEIGHT}" fill="white"/>')
    for number, run in enumerate(runs):
        fixed = [mode for mode in run["modes"] if mode["name"].startswith("tree") and mode["budget"]]
        auto = next(mode for mode in run["modes"] if mode["name"] == "tree auto")
        parts += Panel(number * PANEL_WIDTH, math.ceil(highest + 0.2)).draw(run["suite"], fixed, auto)
    legend = HEIGHT - 8
    parts.append(text(MARGIN, legend, "commit length (tokens a verify)", colour=COMMIT, anchor="start"))
    parts.append(text(MARGIN + 225, legend, "speed (times plain decoding)", colour=SPEED, anchor="start"))
    parts.append(text(MARGIN + 440, legend, "dashed: auto", anchor="start"))
    parts.append("</svg>")
    cairosvg.svg2png("\n".join(parts).encode(), write_to=str(HERE / "pictures" / "speed.png"), scale=2)


if __name__ == "__main__":
    main()
