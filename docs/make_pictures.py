"""Make the documentation's pictures from the running program, with the real engine behind it.

``python docs/make_pictures.py`` writes PNG files to ``docs/pictures``. It starts the embedded engine in a folder of its
own, sends prompts, changes settings, and stops the engine again; a minute or two on a quiet machine.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import cairosvg

from dflash_console.config import Config
from dflash_console.paths import default_paths
from dflash_console.tui.app import ConsoleApp
from dflash_console.tui.run import open_link

if TYPE_CHECKING:
    from textual.pilot import Pilot

PICTURES = Path(__file__).parent / "pictures"
SIZE = (120, 36)
PATIENCE = 180.0
SCALE = 15 / 12.2
"""Whole pixels a cell: the renderer rounds each glyph's advance, and borders would end short or long otherwise."""


async def wait(condition: Callable[[], bool], what: str) -> None:
    """Wait for something to show; ends the program with what was expected when it does not."""
    for _ in range(int(PATIENCE / 0.1)):
        if condition():
            return
        await asyncio.sleep(0.1)
    raise SystemExit(f"this did not happen within {PATIENCE:.0f} s: {what}")


def save(app: ConsoleApp, name: str) -> None:
    """Write the screen as PNG (an SVG would need its reader to have the font)."""
    svg = app.export_screenshot(title=f"ddtree-console · {name}")
    svg = re.sub(r"@font-face\s*\{[^}]*\}", "", svg)
    PICTURES.mkdir(exist_ok=True)
    plain = re.sub(r"font-family: Fira Code[^;]*;", "font-family: DejaVu Sans Mono;", svg)
    # The export lays out cells of 12.2 px; DejaVu Sans Mono is 0.602 em wide, and at 20 px borders would end short.
    plain = plain.replace("font-size: 20px", "font-size: 20.265px")
    cairosvg.svg2png(bytestring=_braille_apart(plain).encode(), write_to=str(PICTURES / f"{name}.png"), scale=SCALE)
    print(PICTURES / f"{name}.png")


_TEXT = re.compile(r'<text class="([^"]*)" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"([^>]*)>([^<]*)</text>')


def _braille_apart(svg: str) -> str:
    """Curves a cell at a time in a font that has Braille: the PNG renderer takes one font for a whole text."""

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


async def take(app: ConsoleApp, pilot: Pilot[None]) -> None:
    """Confirmed engine, prompts, a hot change, the playground, a tree. Screens that show this machine's paths are left out."""

    def subtitle() -> str:
        return str(app.query_one("#answer").border_subtitle)

    await wait(lambda: app.model.drift.words == "✓ confirmed" and not app.model.busy, "a confirmed engine")
    await pilot.press("p")
    for budget in (None, "b", "b"):
        if budget is not None:
            await pilot.press("escape", budget, "a")
            await wait(lambda: len(app.screen_stack) == 2, "the plan")
            await pilot.press("enter")
            await wait(lambda: not app.model.busy, "the change")
            await pilot.pause(0.3)
            save(app, "apply")
            await pilot.press("escape", "p")
        await pilot.press("enter")
        await wait(lambda: app.pane.query_one("#dock").running, "a prompt")  # type: ignore[attr-defined]
        await wait(lambda: not app.pane.query_one("#dock").running, "its answer")  # type: ignore[attr-defined]
    await pilot.pause(1.2)
    save(app, "dashboard")
    await pilot.press("escape", "5", "enter")
    await wait(lambda: "verifies" in str(app.query_one("#answer").border_title), "an answer")
    await pilot.pause(0.5)
    save(app, "playground")
    await pilot.press("c")
    await wait(lambda: "plain: same" in subtitle() or "plain: another" in subtitle(), "the comparison with plain decoding")
    await pilot.press("C")
    await wait(lambda: len(app.screen_stack) == 2, "the comparison")
    await pilot.pause(0.5)
    save(app, "compare")
    await pilot.press("escape", "T")
    await wait(lambda: len(app.screen_stack) == 2, "the tree")
    await pilot.pause(0.5)
    save(app, "tree")
    await pilot.press("escape")


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="ddtree-pictures-") as folder:
        os.environ["DDTREE_HOME"] = folder
        paths = default_paths()
        app = ConsoleApp(lambda: open_link(Config(), paths, None, None))
        try:
            async with app.run_test(size=SIZE) as pilot:
                await take(app, pilot)
        finally:
            stop = await asyncio.create_subprocess_exec(sys.executable, "-m", "dflash_console", "stop", "--yes")
            await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
