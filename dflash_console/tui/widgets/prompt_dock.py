"""A prompt under the plots: fire it and watch the plots move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.timer import Timer
from textual.widgets import Input, Label, Static

from .. import messages
from ..answers import Answer
from ..prompt_runner import PromptError, PromptRunner, make_requests
from .field import Field, LeavingInput

if TYPE_CHECKING:
    from ..link import HostLink

EXAMPLE = "Write a Python function that merges two sorted lists, with a docstring and two examples."
REPAINT = 0.1
"""Seconds between two repaints of streaming answers: an event a verify would repaint far more often than one can read."""
SHOWN = 4
"""Answers shown, one line each."""


class PromptDock(Vertical):
    """Prompt, copies, temperature, length; answers in one line each with their figures."""

    topic = "playground"

    def __init__(self) -> None:
        super().__init__(id="dock", classes="framed")
        self.border_title = "Prompt"
        self._runner = PromptRunner(self)
        self._answers: list[Answer] = []
        self._dirty = False
        self._timer: Timer | None = None
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
        self._timer = self.set_interval(REPAINT, self._repaint_when_dirty, pause=True)
        self._repaint()

    @property
    def text(self) -> str:
        """The answers as they are shown."""
        return self._lines().plain

    @property
    def running(self) -> bool:
        return self._runner.running

    def open(self) -> None:
        """Show the dock and type into it."""
        self.display = True
        self.query_one("#dock-prompt", LeavingInput).focus()

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
        self._answers = [Answer(number) for number in range(len(requests))]
        self._sentence = ""
        self._runner.start(link, requests)
        self._dirty = True
        if self._timer is not None:
            self._timer.resume()

    def on_chunk_arrived(self, message: messages.ChunkArrived) -> None:
        message.stop()
        if message.run == self._runner.run:
            self._answers[message.chunk.request].add(message.chunk)
            self._dirty = True

    def on_answer_ended(self, message: messages.AnswerEnded) -> None:
        message.stop()
        if message.run == self._runner.run:
            self._answers[message.record.request].record = message.record
            self._dirty = True

    def on_prompts_ended(self, message: messages.PromptsEnded) -> None:
        message.stop()
        if message.run != self._runner.run:
            return
        if self._timer is not None:
            self._timer.pause()
        if message.sentence:
            self._sentence = f"✗ {message.sentence}"
        self._repaint()

    def _say(self, sentence: str) -> None:
        self._sentence = sentence
        self._repaint()

    def _repaint_when_dirty(self) -> None:
        if self._dirty:
            self._dirty = False
            self._repaint()

    def _repaint(self) -> None:
        self.query_one("#dock-answers", Static).update(self._lines())

    def _lines(self) -> Text:
        width = max(20, self.size.width - 4)
        lines: list[Text] = []
        for answer in self._answers[:SHOWN]:
            line = Text(no_wrap=True)
            figures = answer.figures(brief=True)
            line.append(f"{answer.number + 1} ", style="bold")
            line.append(figures, style="bold" if answer.record is None else "")
            line.append("  ")
            line.append(answer.tail(max(0, width - len(figures) - 6)), style="dim")
            line.truncate(width - 1, overflow="ellipsis")
            lines.append(line)
        if len(self._answers) > SHOWN:
            ended = sum(answer.record is not None for answer in self._answers)
            lines.append(Text(f"… {len(self._answers)} answers, {ended} ended: 5 shows all", style="dim"))
        if self._sentence:
            lines.append(Text(self._sentence, style="dim" if not self._sentence.startswith("✗") else "bold"))
        return Text("\n").join(lines)

    def on_resize(self) -> None:
        self._repaint()
