"""The screen of a running console as a PNG file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import cairosvg

if TYPE_CHECKING:
    from dflash_console.tui.app import ConsoleApp

PICTURES = Path(__file__).parent / "pictures"
SCALE = 15 / 12.2
"""Whole pixels a cell: the renderer rounds each glyph's advance, and borders would end short or long otherwise."""


def save(app: ConsoleApp, name: str) -> None:
    """Write the screen as PNG (an SVG would need its reader to have the font)."""
    svg = app.export_screenshot(title=f"ddtree-console · {name}")
    svg = re.sub(r"@font-face\s*\{[^}]*\}", "", svg)
    PICTURES.mkdir(exist_ok=True)
    plain = re.sub(r"font-family: Fira Code[^;]*;", "font-family: DejaVu Sans Mono;", svg)
    # The export lays out cells of 12.2 px; DejaVu Sans Mono is 0.602 em wide, and at 20 px borders would end short.
    plain = plain.replace("font-size: 20px", "font-size: 20.265px")
    cairosvg.svg2png(bytestring=_curves_apart(plain).encode(), write_to=str(PICTURES / f"{name}.png"), scale=SCALE)
    print(PICTURES / f"{name}.png", flush=True)


_TEXT = re.compile(r'<text class="([^"]*)" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"([^>]*)>([^<]*)</text>')


def _curves_apart(svg: str) -> str:
    """Braille a cell at a time, in a font that has it: the PNG renderer takes one font for a whole text."""

    def split(match: re.Match[str]) -> str:
        kind, x, y, length, rest, text = match.groups()
        if not re.search("[\u2800-\u28ff]", text):
            return match.group(0)
        cells = re.findall(r"&#?\w+;|.", text)
        width = float(length) / len(cells)
        return "".join(
            f'<text class="{kind}" x="{float(x) + index * width:.1f}" y="{y}" textLength="{width:.1f}"{rest} '
            f'style="font-family: DejaVu Sans">{cell}</text>'
            for index, cell in enumerate(cells)
            if cell not in ("&#160;", " ")
        )

    return _TEXT.sub(split, svg)
