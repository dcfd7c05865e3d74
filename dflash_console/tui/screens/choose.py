"""One of a few names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from .dialog import PickDialog


class ChooseScreen(PickDialog[str]):
    """Up and down walk the names, ``enter`` takes one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", "", show=False, id="choose.up", tooltip="the name above", priority=True),
        Binding("down,j", "step(1)", "", show=False, id="choose.down", tooltip="the name below", priority=True),
        Binding("enter", "take", "take", show=True, id="choose.take", tooltip="take it"),
    ]

    def __init__(self, title: str, words: str, names: Sequence[str]) -> None:
        super().__init__(title, names)
        self._words = words

    def action_take(self) -> None:
        self.dismiss(self.picked)

    def heading(self) -> Text:
        return Text(f"{self._words}\n\n", style="dim")
