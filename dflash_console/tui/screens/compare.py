"""Two answers in full, side by side, with the place where they part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Static

from ... import formats
from ..comparison import NEAR_TIES, NO_NEAR_TIES, Agreement, KeptAnswer, comparison_words, judgement, parts_at
from ..focus import take_focus
from .dialog import Dialog

_TONES = {Agreement.SAME: "success", Agreement.NEAR_TIE: "warning", Agreement.OTHER: "error", Agreement.UNJUDGED: "quiet"}
_MEANING = {Agreement.NEAR_TIE: NEAR_TIES, Agreement.OTHER: NO_NEAR_TIES}


class CompareScreen(Dialog[None]):
    """Left and right choose what the answer is compared with; both texts scroll together."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "other answer", show=True, id="compare.previous", tooltip="the answer before", priority=True),
        Binding("right", "step(1)", "other answer", show=True, id="compare.next", tooltip="the next answer", priority=True),
    ]
    topic = "playground"

    def __init__(self, answer: KeptAnswer, others: Sequence[KeptAnswer], chosen: int = 0) -> None:
        """``others`` must not be empty."""
        super().__init__("Compare")
        self._answer = answer
        self._others = tuple(others)
        self._index = chosen

    def compose_body(self) -> ComposeResult:
        yield Static("", markup=False, id="compare-head")
        with Horizontal(id="compare-figures"):
            yield Static("", markup=False, classes="compared")
            yield Static("", markup=False, classes="compared")
        with VerticalScroll(id="compare-texts"), Horizontal():
            yield Static("", markup=False, classes="compared")
            yield Static("", markup=False, classes="compared")

    def on_mount(self) -> None:
        if not self.has_parts:
            return
        take_focus(self.query_one("#compare-texts"))
        self._repaint()

    @property
    def text(self) -> str:
        """The verdict and both columns as plain text."""
        other = self._others[self._index]
        return "\n".join((self._head(other).plain, *(f"{self._figures(kept)}\n{kept.record.text}" for kept in self._pair(other))))

    def action_step(self, by: int) -> None:
        self._index = (self._index + by) % len(self._others)
        self._repaint()

    def _pair(self, other: KeptAnswer) -> tuple[KeptAnswer, KeptAnswer]:
        return self._answer, other

    def _repaint(self) -> None:
        other = self._others[self._index]
        self.query_one("#compare-head", Static).update(self._head(other))
        at = parts_at(other, self._answer)
        figures = self.query("#compare-figures Static").results(Static)
        texts = self.query("#compare-texts Static").results(Static)
        for kept, figure, text in zip(self._pair(other), figures, texts, strict=True):
            figure.update(Text(self._figures(kept), style="bold"))
            text.update(self._marked(kept.record.text, at))

    def _head(self, other: KeptAnswer) -> Text:
        variables = self.app.theme_variables
        judged = judgement(other, self._answer).agreement
        head = Text(comparison_words(other, self._answer), style=f"bold {variables.get(_TONES[judged], '')}")
        if len(self._others) > 1:
            head.append(f"   {self._index + 1} of {len(self._others)}", style="not bold dim")
        if judged in _MEANING:
            head.append(f"\n{_MEANING[judged]}", style=f"not bold {variables.get('quiet', '')}")
        return head

    @staticmethod
    def _figures(kept: KeptAnswer) -> str:
        record = kept.record
        speed = f"{formats.tokens_per_second(record.decode_tok_s)} tok/s"
        return f"{kept.name}: {speed} · commit {formats.commit_length(record.commit_length)} · {record.counted}"

    def _marked(self, text: str, at: int | None) -> Text:
        """The text; from where the two part on a ground of its own."""
        marked = Text(text, overflow="fold")
        if at is not None:
            marked.stylize(f"on {self.app.theme_variables.get('shade-3', '#3a3124')}", at)
        return marked
