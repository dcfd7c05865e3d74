"""One of a few names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from .dialog import Dialog, ScrollText


class ChooseScreen(Dialog[str]):
    """Up and down walk the names, ``enter`` takes one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", "", show=False, id="choose.up", priority=True),
        Binding("down,j", "step(1)", "", show=False, id="choose.down", priority=True),
        Binding("enter", "take", "take", show=True, id="choose.take"),
    ]

    def __init__(self, title: str, words: str, names: Sequence[str]) -> None:
        super().__init__(title)
        self._words = words
        self._names = tuple(names)
        self._index = 0

    def compose_body(self) -> ComposeResult:
        yield ScrollText(Text(), id="choices")

    def on_mount(self) -> None:
        self._repaint()

    def action_step(self, by: int) -> None:
        self._index = (self._index + by) % len(self._names)
        self._repaint()

    def action_take(self) -> None:
        self.dismiss(self._names[self._index])

    def _repaint(self) -> None:
        text = Text(f"{self._words}\n\n", style="dim")
        for index, name in enumerate(self._names):
            chosen = index == self._index
            text.append(f"{'▸' if chosen else ' '} {name}\n", style="bold" if chosen else "")
        self.query_one(ScrollText).show_text(text)
