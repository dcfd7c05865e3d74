"""What the console really paints, to be held against what its screens should show."""

from __future__ import annotations

import re
from typing import Any

from rich.cells import get_character_cell_size
from textual._compositor import Compositor, CompositorUpdate
from textual._context import visible_screen_stack
from textual.screen import Screen
from textual.widget import Widget

from dflash_console.tui.app import ConsoleApp

_PIECES = re.compile(r"\x1b\[(\d+);(\d+)H|\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x1b\x07]*(?:\x1b\\|\x07)|\n|([^\x1b\n]+)")
"""Cursor positions, other control sequences, line ends (a position follows each), text."""


class Painting:
    """A terminal's cells, written by nothing but what the application displays.

    A test's own driver has no terminal, so what is displayed is taken on its way there.
    """

    def __init__(self, app: ConsoleApp) -> None:
        self._app = app
        self._cells: list[list[str]] = []
        display = app._display

        def take(screen: Screen[object], renderable: Any) -> None:
            if isinstance(renderable, CompositorUpdate) and not app._batch_count:
                self._write(renderable.render_segments(app.console))
            display(screen, renderable)

        app._display = take  # type: ignore[method-assign]

    def _write(self, sequences: str) -> None:
        width, height = self._app.size
        if len(self._cells) != height or len(self._cells[0]) != width:
            self._cells = [[" "] * width for _ in range(height)]
        x = y = 0
        for piece in _PIECES.finditer(sequences):
            row, column, text = piece.groups()
            if row is not None:
                x, y = int(column) - 1, int(row) - 1
            for character in text or "":
                cells = get_character_cell_size(character)
                if y < height and x < width:
                    self._cells[y][x : x + cells] = [character, *[""] * (cells - 1)]
                x += cells

    @property
    def text(self) -> str:
        """What a terminal would show now."""
        return "\n".join("".join(line).rstrip() for line in self._cells)

    @property
    def wanted(self) -> str:
        """What it should show: the top of the stack, laid out and rendered from scratch. Changes nothing on the screen."""
        screen = self._app.screen
        # Screens below a translucent one are taken from here by Textual when it renders the background anew.
        visible_screen_stack.set(self._app._background_screens)
        compositor = Compositor()
        compositor.reflow(screen, self._app.size)
        return "\n".join(strip.text.rstrip() for strip in compositor.render_strips())

    def differences(self) -> str:
        """The lines that are not as they should be, each as it is and as it should be; without digits, which run on."""
        pairs = zip(_without_times(self.text).split("\n"), _without_times(self.wanted).split("\n"), strict=False)
        return "\n".join(f"  is     {is_!r}\n  should {should!r}" for is_, should in pairs if is_ != should)


def _without_times(text: str) -> str:
    return re.sub(r"\d+", "0", text)


def lower_edge(widget: Widget) -> str:
    """The row of the screen in which the widget's frame ends, as it is painted."""
    return widget.screen._compositor.render_strips()[widget.region.bottom - 1].text
