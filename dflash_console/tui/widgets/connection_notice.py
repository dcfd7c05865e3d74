"""Why the host cannot be watched, in full and for as long as it is so."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from ..wrapping import wrapped

MOST_LINES = 9


class ConnectionNotice(Static):
    """Under the tabs; hidden while there is nothing to say. A notice that goes away by itself would be missed."""

    def __init__(self) -> None:
        super().__init__("", markup=False, id="connection")
        self._sentence = ""
        self._outlook = ""
        self._shown = Text()
        self.display = False

    @property
    def text(self) -> str:
        return self._shown.plain if self.display else ""

    def show_problem(self, sentence: str, outlook: str) -> None:
        """``sentence``: what is wrong, empty hides it; ``outlook``: what happens next and which key does what."""
        if (sentence, outlook) != (self._sentence, self._outlook):
            self._sentence, self._outlook = sentence, outlook
            self.redraw()

    def on_resize(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        """Write the text anew, for another size or another theme."""
        self.display = bool(self._sentence)
        if not self._sentence:
            return
        width = max(20, self.app.size.width - 4)
        lines = wrapped(self._sentence, width)
        if len(lines) > MOST_LINES:
            lines = [*lines[: MOST_LINES - 1], "…"]
        text = Text(style=self.app.theme_variables.get("error", ""))
        text.append("\n".join(f" {'✗' if index == 0 else ' '} {line}" for index, line in enumerate(lines)))
        if self._outlook:
            text.append(f"\n   {self._outlook}", style=self.app.theme_variables.get("quiet", ""))
        if text != self._shown:
            self._shown = text
            self.update(text)
