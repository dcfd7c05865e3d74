"""The change that is being put together, in one line, while there is one."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from ...formats import shorten


class ChangeBar(Static):
    """``tree budget 8 → 16 now · block size 8 → 4 restart``; hidden when nothing is edited."""

    def __init__(self) -> None:
        super().__init__("", markup=False, id="change-bar")
        self._text = ""

    @property
    def text(self) -> str:
        return self._text

    def show_change(self, words: str, how: str) -> None:
        """``how``: what applying takes (``now`` or ``restart``). Empty ``words`` hide the bar."""
        self._text = words
        self.set_class(bool(words), "-shown")
        variables = self.app.theme_variables
        line = Text(no_wrap=True)
        line.append(" change ", style=f"bold reverse {variables.get('accent', '')}")
        line.append(f" {how} ", style=variables.get("accent", ""))
        tail = "  a apply · esc discard"
        room = max(10, self.app.size.width - line.cell_len - len(tail) - 1)
        line.append(shorten(words, room), style="bold")
        line.append(tail, style="dim")
        self.update(line)
