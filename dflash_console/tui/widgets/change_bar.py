"""The change that is being put together, or the plan that is being made, in one line, while there is one."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from ...formats import duration, shorten


class ChangeBar(Static):
    """``tree budget 8 → 16 now · block size 8 → 4 restart``; hidden when nothing is edited and no plan is being made."""

    def __init__(self) -> None:
        super().__init__("", markup=False, id="change-bar")
        self._text = ""
        self._how = ""
        self._plan: tuple[str, float, str] = ("", 0.0, "")

    @property
    def text(self) -> str:
        """The change in words; empty when nothing is edited."""
        return self._text

    @property
    def plan_text(self) -> str:
        """The plan that is being made in words; empty when that is not told."""
        return self._plan[0]

    def show_change(self, words: str, how: str) -> None:
        """``how``: what applying takes (``now`` or ``restart``). Empty ``words``: nothing is edited."""
        self._text, self._how = words, how
        self.redraw()

    def show_plan(self, words: str, seconds: float, way_out: str) -> None:
        """Tell of a plan that is being made, in the change's place. Empty ``words``: there is none.

        Args:
            words: what it is a plan of.
            seconds: for how long it has been made.
            way_out: the key that gives it up.
        """
        plan = (words, float(int(seconds)), way_out)
        if plan != self._plan:
            self._plan = plan
            self.redraw()

    def on_resize(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        """Write the line anew, for another width or another theme."""
        words, seconds, way_out = self._plan
        self.set_class(bool(words or self._text), "-shown")
        if words:
            took = f" · {duration(seconds)}" if seconds else ""
            self.update(self._line("plan", "being made: ", words, f"{took}  {way_out} gives it up"))
        else:
            self.update(self._line("change", f"{self._how} ", self._text, "  a apply · esc discard"))

    def _line(self, name: str, how: str, words: str, tail: str) -> Text:
        variables = self.app.theme_variables
        line = Text(no_wrap=True)
        line.append(f" {name} ", style=f"bold reverse {variables.get('accent', '')}")
        line.append(f" {how}", style=variables.get("accent", ""))
        room = max(10, self.app.size.width - line.cell_len - len(tail) - 1)
        line.append(shorten(words, room), style="bold")
        line.append(tail, style="dim")
        return line
