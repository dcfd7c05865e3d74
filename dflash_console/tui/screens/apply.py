"""An operation as it happens: each stage with its time and what shows that it is done, and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.timer import Timer
from textual.widgets import Static

from ... import formats
from ...evidence.terminal_text import clean_line
from ..keymap import key_binding
from ..wrapping import wrapped
from .dialog import ScrollText
from .pane import app_of
from .unasked import UnaskedDialog

if TYPE_CHECKING:
    from ...apply.records import ApplyResult, Stage
    from ..course import Course

LONG_EVIDENCE = 200
"""Characters of a log line that are shown beside a stage; the log itself has the rest."""

NAME_WIDTH, TIME_WIDTH = 14, 7
"""Cells of a stage's name and time: what shows that it is done stands in a column of its own."""
LEAST_COLUMN = 36
"""Cells; where that column would be narrower, long words go on under the name instead."""

_SYMBOLS = {"running": "▸", "done": "✓", "skipped": "·", "failed": "✗"}
_TONES = {"running": "accent", "done": "success", "skipped": "quiet", "failed": "error"}


class ApplyScreen(UnaskedDialog[None]):
    """Stages as they happen. Leaving it stops nothing: the operation goes on, and the header says so."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key_binding(
            "apply.stop_waiting", "x", "stop_waiting", "stop waiting", "stop waiting; what was asked of the host goes on there"
        ),
        key_binding("apply.rollback", "u", "rollback", "roll back", "plan a roll-back to the last confirmed configuration"),
        key_binding("apply.close", "enter", "close_stages", "", "close the stages; the operation goes on"),
    ]
    topic = "plan"

    def __init__(self, course: Course, *, unasked: bool = False) -> None:
        """A screen shows a course once: to show it again, make another. ``unasked``: it opens by itself."""
        super().__init__(f"{course.word.capitalize()}{f' on {course.host}' if course.host else ''}", unasked=unasked)
        self.course = course
        self._timer: Timer | None = None

    def compose_body(self) -> ComposeResult:
        yield Static("", markup=False, id="apply-head")
        stages = ScrollText(Text(), id="stages")
        # What is newest stays in sight until somebody scrolls.
        stages.anchor()
        yield stages

    def on_mount(self) -> None:
        if not self.course.over:
            self._timer = self.set_interval(0.5, self._repaint_head)
        self._repaint()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        taken = super().check_action(action, parameters)
        if not taken:
            return taken
        if action == "stop_waiting":
            return not self.course.over
        if action == "rollback":
            return self.course.over and not self.course.good
        return True

    def course_moved(self) -> None:
        """Show what has arrived since."""
        self._repaint()
        if self.course.over and self.is_attached:
            if self._timer is not None:
                self._timer.stop()
            self.refresh_bindings()

    # Showing

    @property
    def text(self) -> str:
        """Everything that is shown, as plain text."""
        return f"{self._head().plain}\n{self._body().plain}"

    def _repaint(self) -> None:
        self._repaint_head()
        # A stage can arrive before the parts are there and after they are gone; then there is nothing to show it on.
        for stages in self.query("#stages").results(ScrollText):
            stages.show_text(self._body())

    def _repaint_head(self) -> None:
        for head in self.query("#apply-head").results(Static):
            head.update(self._head())

    def _head(self) -> Text:
        course = self.course
        line = Text(f" since {formats.clock(course.begun)}", style="dim")
        if course.over:
            taken = course.result.seconds if course.result is not None else course.seconds
            line.append(f" · took {formats.short_seconds(taken)}")
            if course.result is not None:
                # The end of a long report may be out of sight; its verdict never is.
                line.append("   ").append_text(self._verdict(course.result))
                line.append(" · rolled back" if course.result.rolled_back and not course.result.good else "")
            return line
        line.append(f" · {formats.duration(course.seconds)}")
        if course.left_s is not None:
            line.append(f" · about {formats.duration(course.left_s)} left, from this host's earlier starts")
        return line

    def _body(self) -> Text:
        course = self.course
        text = Text()
        for name, stage in course.stages.items():
            text.append_text(self._stage_line(name, stage))
        waiting = [name for name in course.planned if name not in course.stages]
        if waiting and not course.over:
            text.append(f"  then: {' · '.join(waiting)}\n", style="dim")
        if course.over:
            text.append("\n")
            text.append_text(self._end())
        return text

    def _stage_line(self, name: str, stage: Stage) -> Text:
        status = stage.status.value
        colour = self.app.theme_variables.get(_TONES[status], "")
        # Each piece has its style of its own: a style given to the whole would colour all that follows.
        line = Text()
        line.append(f"{_SYMBOLS[status]} ", style=f"bold {colour}")
        line.append(name.ljust(NAME_WIDTH), style="bold" if status in ("running", "failed") else "")
        took = formats.short_seconds(stage.seconds) if status in ("done", "failed") and stage.seconds >= 0.05 else ""
        line.append(f" {took:>{TIME_WIDTH}}  ", style="dim")
        event = self.course.event
        if status == "running" and event is not None and event.stage is stage:
            if event.progress is not None:
                done, total = event.progress
                line.append(f"{done}/{total} {formats.bar(done / total if total else None, 20)}  ")
            elif stage.expected_s:
                line.append(f"usually {formats.short_seconds(stage.expected_s)}  ", style="dim")
        evidence = clean_line(stage.evidence) if stage.evidence else ""
        said = evidence if status == "failed" else formats.shorten(evidence, LONG_EVIDENCE)
        if stage.line is not None:
            said += f"  ← log line {stage.line}"
        line.append(self._folded(said, line.cell_len), style="" if status == "failed" else "dim")
        line.append("\n")
        return line

    def _folded(self, said: str, begun: int) -> str:
        """Words for a line of which ``begun`` cells are taken; they go on beneath themselves where there is room for that."""
        width = next((stages.scrollable_content_region.width for stages in self.query("#stages").results(ScrollText)), 0) or 80
        indent = begun if width - begun >= LEAST_COLUMN else 4
        lines = wrapped(said, width, first=" " * begun, rest=" " * indent)
        return "\n".join(lines)[begun:]

    def _verdict(self, result: ApplyResult) -> Text:
        """How it ended, in a few words."""
        tone = "success" if result.good else "warning" if result.verdict.name == "UNKNOWN" else "error"
        colour = self.app.theme_variables.get(tone, "")
        # A piece with a style of its own: what is put behind it keeps its own.
        return Text().append(f"{'✓' if result.good else '✗'} {result.verdict.value}", style=f"bold {colour}")

    def _end(self) -> Text:
        variables = self.app.theme_variables
        result = self.course.result
        if result is None:
            return Text().append(f"✗ {self.course.sentence}", style=f"bold {variables.get('error', '')}")
        text = self._verdict(result)
        if result.reason:
            text.append(f"\n{result.reason}\n", style="")
        for line in result.lines[-12:]:
            number = f"{line.number:>6} " if line.number is not None else "       "
            text.append(f"{number}{clean_line(line.text)}\n", style=variables.get("quiet", ""))
        if result.rolled_back and "rolled back" not in result.reason:
            text.append(
                "✓ rolled back: the previous configuration runs again and is confirmed\n", style=variables.get("success", "")
            )
        elif result.rollback is not None:
            text.append(
                f"✗ roll-back: {result.rollback.verdict.value}. {result.rollback.reason}\n", style=variables.get("error", "")
            )
        return text

    # Keys

    def action_close_stages(self) -> None:
        self.dismiss(None)

    def action_stop_waiting(self) -> None:
        app_of(self).operations.stop_waiting()

    def action_rollback(self) -> None:
        app = app_of(self)
        self.dismiss(None)
        app.call_later(app.operations.roll_back)
