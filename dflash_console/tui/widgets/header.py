"""The two lines on top of every screen: which server, in which state, with which settings, how old the data."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from ..facts import HeaderFacts, Tone

_COLOURS = {Tone.GOOD: "success", Tone.BUSY: "accent", Tone.BAD: "error", Tone.WARN: "warning", Tone.QUIET: "quiet"}


class StatusHeader(Static):
    """Words and symbols first, colour second; parts that do not fit go from the right, the least needed first."""

    def __init__(self) -> None:
        super().__init__("", markup=False, id="header")
        self._shown: Text | None = None
        self._facts = HeaderFacts()

    @property
    def text(self) -> str:
        return "" if self._shown is None else self._shown.plain

    def show_facts(self, facts: HeaderFacts) -> None:
        """Repaint when something that is shown changed."""
        self._facts = facts
        self.redraw()

    def on_resize(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        """Write the text anew, for another size or another theme."""
        width = self.size.width
        if width < 20:
            return
        first = _spread(self._first_left(), self._first_right(), width)
        second = _spread(self._second(), self._badge(), width)
        text = Text("\n").join((first, second))
        if text != self._shown:
            self._shown = text
            self.update(text)

    def _style(self, tone: Tone) -> str:
        return self.app.theme_variables.get(_COLOURS[tone], "")

    def _first_left(self) -> list[Text]:
        facts = self._facts
        place = Text(" ")
        if facts.host:
            place.append(facts.host, style="bold").append(" ▸ ", style="dim")
        if facts.unit:
            place.append(facts.unit).append(" ▸ ", style="dim")
        return [
            place,
            Text.assemble((f"{facts.symbol} {facts.state}", f"bold {self._style(facts.tone)}"), (f" {facts.since}", "")),
            Text(f"   {facts.engine}" if facts.engine else "", style="dim"),
        ]

    def _first_right(self) -> Text:
        facts = self._facts
        stale = facts.age_tone is not Tone.GOOD
        return Text(facts.age, style=self._style(facts.age_tone) if stale else "dim")

    def _second(self) -> list[Text]:
        facts = self._facts
        parts = []
        for index, (name, value) in enumerate(facts.settings):
            part = Text(" · " if index else " ", style="dim")
            if name:
                part.append(f"{name} ", style="dim")
            part.append(value, style="bold")
            parts.append(part)
        room = self.size.width - sum(part.cell_len for part in parts) - len(facts.badge) - 6
        note = next((note for note in (facts.note, facts.short_note) if len(note) <= room), "")
        if note or not parts:
            parts.append(Text(f"   {note or facts.note}", style=self._style(Tone.QUIET)))
        return parts

    def _badge(self) -> Text:
        facts = self._facts
        return Text(facts.badge, style=f"bold {self._style(facts.badge_tone)}")


def _spread(left: list[Text], right: Text, width: int) -> Text:
    """Parts from the left as far as they fit, the right part at the right edge."""
    line = Text(no_wrap=True, end="")
    room = width - right.cell_len - 2
    for part in left:
        if line.cell_len + part.cell_len > room:
            rest = part.copy()
            rest.truncate(max(0, room - line.cell_len), overflow="ellipsis")
            line.append_text(rest)
            break
        line.append_text(part)
    line.append(" " * max(1, width - line.cell_len - right.cell_len - 1))
    line.append_text(right)
    line.append(" ")
    return line
