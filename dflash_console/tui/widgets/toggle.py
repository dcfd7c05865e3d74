"""A choice between two words in a line of fields."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import Static


class Toggle(Static, can_focus=True):
    """``as chat turn`` or ``as raw text``: ``space`` and a click take the other one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "switch", "switch", show=True, id="prompt.switch", tooltip="in a choice: the other one")
    ]

    def __init__(self, name: str, off: str, on: str, *, id: str) -> None:  # noqa: A002
        super().__init__("", markup=False, id=id, classes="field toggle")
        self._label = name
        self._words = (off, on)
        self.value = False

    def on_mount(self) -> None:
        self.redraw()

    def on_click(self) -> None:
        self.action_switch()

    def action_switch(self) -> None:
        self.value = not self.value
        self.redraw()

    def redraw(self) -> None:
        """Write the text anew, for another theme."""
        variables = self.app.theme_variables
        line = Text(f"{self._label} ", style=variables.get("quiet", ""))
        line.append(f" {self._words[self.value]} ", style=f"{variables.get('foreground', '')} on {variables.get('panel', '')}")
        self.update(line)
