"""A prompt under the plots: fire it and watch the plots move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, Label, Static

from .. import messages
from ..focus import take_focus
from ..prompt_runner import EXAMPLE, PromptError, PromptRunner, make_requests
from .field import Field, LeavingInput

if TYPE_CHECKING:
    from ..answers import Answer
    from ..link import HostLink

SHOWN = 4
"""Answers shown, one line each."""
OPEN_ROWS = 9
"""Rows of the dock at its highest, with its frame."""
FOLDED_ROWS = 3
"""Its frame and a line."""
LEAST_TAIL = 8
"""Cells beside the figures under which an answer's text is left out: what fits there says nothing."""


class PromptDock(Vertical):
    """Prompt, copies, temperature, length; answers in one line each with their figures."""

    topic = "playground"

    def __init__(self) -> None:
        super().__init__(id="dock", classes="framed")
        self.border_title = "Prompt"
        self._runner = PromptRunner(self, self._repaint)
        self._folded = False
        self._sentence = "enter sends · empty sends the example · tab to n, T, max · esc back to the plots"

    def compose(self) -> ComposeResult:
        with Horizontal(id="dock-fields"):
            yield Label("❯ ", markup=False)
            yield LeavingInput(placeholder=EXAMPLE, id="dock-prompt")
            yield Field("n", "1", id="dock-copies", width=4)
            yield Field("T", "0", id="dock-temperature", width=5)
            yield Field("max", "256", id="dock-max", width=7)
        yield Static("", markup=False, id="dock-answers")

    def on_mount(self) -> None:
        self._repaint()

    @property
    def text(self) -> str:
        """The answers as they are shown."""
        return self._lines().plain

    @property
    def running(self) -> bool:
        return self._runner.running

    @property
    def answered(self) -> bool:
        """Whether prompts were sent from here: then there is something to show without the fields."""
        return bool(self._runner.answers)

    def open(self) -> None:
        """Show the dock and type into it."""
        self.display = True
        self.fold(False)
        take_focus(self.query_one("#dock-prompt", LeavingInput))

    def fold(self, folded: bool) -> None:
        """Leave one line of answers, without the fields, or show all again."""
        if folded != self._folded:
            self._folded = folded
            self.set_class(folded, "-folded")
            self.border_subtitle = "p opens it · P closes it" if folded else ""
            self._repaint()

    def stop(self) -> None:
        """Cancel the running prompts."""
        if self._runner.running:
            self._runner.cancel()
            self._say("stopped")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.send(self._link())

    def _link(self) -> HostLink | None:
        from ..screens.pane import app_of

        return app_of(self).link

    def send(self, link: HostLink | None) -> None:
        """Send what stands in the fields."""
        field = self.query_one("#dock-prompt", LeavingInput)
        text = field.value.strip() or EXAMPLE
        copies, heat, limit = (self.query_one(f"#dock-{name}", Input).value for name in ("copies", "temperature", "max"))
        try:
            requests = make_requests(text, copies, heat, limit)
        except PromptError as error:
            self._say(f"✗ {error}")
            return
        if link is None:
            self._say("✗ not connected to a host yet")
            return
        field.remember(text)
        self._sentence = ""
        self._runner.start(link, requests)

    def on_chunk_arrived(self, message: messages.ChunkArrived) -> None:
        message.stop()
        self._runner.take_chunk(message)

    def on_answer_ended(self, message: messages.AnswerEnded) -> None:
        message.stop()
        self._runner.take_end(message)

    def on_prompts_ended(self, message: messages.PromptsEnded) -> None:
        message.stop()
        if self._runner.take_run_end(message):
            if message.sentence:
                self._sentence = f"✗ {message.sentence}"
            self._repaint()

    def _say(self, sentence: str) -> None:
        self._sentence = sentence
        self._repaint()

    def _repaint(self) -> None:
        self.query_one("#dock-answers", Static).update(self._lines())

    def _lines(self) -> Text:
        width = max(20, self.size.width - 4)
        answers = self._runner.answers
        shown = SHOWN if not self._folded else 1 if len(answers) == 1 else 0
        lines = [self._line(answer, width) for answer in answers[:shown]]
        if len(answers) > shown:
            ended = sum(answer.record is not None for answer in answers)
            lines.append(Text(f"… {len(answers)} answers, {ended} ended: 5 shows all", style="dim"))
        if self._sentence:
            lines.append(Text(self._sentence, style="dim" if not self._sentence.startswith("✗") else "bold"))
        return Text("\n").join(lines[-1:] if self._folded else lines)

    @staticmethod
    def _line(answer: Answer, width: int) -> Text:
        line = Text(no_wrap=True)
        figures = answer.figures(brief=True)
        line.append(f"{answer.number + 1} ", style="bold")
        line.append(figures, style="bold" if answer.record is None else "")
        room = width - len(figures) - 6
        if room >= LEAST_TAIL:
            line.append("  ")
            line.append(answer.tail(room), style="dim")
        line.truncate(width - 1, overflow="ellipsis")
        return line

    def on_resize(self) -> None:
        self._repaint()
