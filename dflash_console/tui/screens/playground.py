"""Prompts and their answers, with what each verify brought."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.timer import Timer
from textual.widgets import Input, Static

from ...formats import shorten
from .. import messages
from ..answers import Answer
from ..comparison import comparison_words
from ..prompt_runner import PromptError, PromptRunner, make_requests
from ..widgets.answer_view import AnswerView
from ..widgets.field import Field, LeavingInput
from ..widgets.histogram import HistogramPanel
from ..widgets.prompt_dock import EXAMPLE, REPAINT
from ..widgets.prompt_editor import PromptEditor
from .pane import Pane, app_of

if TYPE_CHECKING:
    from ...load.records import RequestRecord
    from ..link import HostLink
    from ..model import ConsoleModel


class PlaygroundPane(Pane):
    """Editor and answers; the answer in view has its figures in its frame."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,f5", "send", "send", show=True, id="playground.send"),
        Binding("e", "edit", "edit", show=True, id="playground.edit", tooltip="type a prompt"),
        Binding("o", "suite", "suites", show=True, id="playground.suites", tooltip="prompts of a suite"),
        Binding("x", "stop", "stop", show=True, id="playground.stop"),
        Binding("left", "answer(-1)", "answer", show=True, id="playground.previous", tooltip="previous answer"),
        Binding("right", "answer(1)", "answer", show=True, id="playground.next", tooltip="next answer"),
        Binding("c", "compare_plain", "compare with plain", show=True, id="playground.compare_plain"),
        Binding(
            "C",
            "compare_earlier",
            "with earlier",
            id="playground.compare_earlier",
            tooltip="compare with the answer before",
            show=False,
        ),
        Binding("T", "tree", "tree", show=True, id="playground.tree", tooltip="draw one verify"),
        Binding("m", "markdown", "markdown", id="playground.markdown", tooltip="a finished answer as Markdown", show=False),
        Binding("y", "copy", "copy", id="playground.copy", show=False),
        Binding("S", "save", "save", id="playground.save", show=False),
    ]
    default_focus = "#answer"

    def __init__(self) -> None:
        super().__init__(id="playground")
        self._model: ConsoleModel | None = None
        self._runner = PromptRunner(self)
        self._comparer = PromptRunner(self)
        self._answers: list[Answer] = []
        self._earlier: RequestRecord | None = None
        self._index = 0
        self._greedy = True
        self._remark = ""
        self._dirty = False
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        with Horizontal(id="playground-columns"):
            with Vertical(id="playground-left"):
                yield PromptEditor(EXAMPLE, id="prompt")
                with Horizontal(id="playground-fields"):
                    yield Field("n", "1", id="play-copies", width=4)
                    yield Field("T", "0", id="play-temperature", width=5)
                    yield Field("max", "256", id="play-max", width=7)
                yield Static("", markup=False, id="answer-list")
            with Vertical(id="playground-right"):
                yield AnswerView(id="answer")
                yield HistogramPanel(id="answer-histogram")

    def on_mount(self) -> None:
        self._timer = self.set_interval(REPAINT, self._repaint_when_dirty, pause=True)
        self._repaint()

    def show(self, model: ConsoleModel) -> None:
        self._model = model

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "stop":
            return self._runner.running
        if action in ("compare_plain", "compare_earlier"):
            return self._shown() is not None
        return True

    # Sending

    def on_prompt_editor_sent(self, message: PromptEditor.Sent) -> None:
        message.stop()
        self.action_send()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_send()

    def _link(self) -> HostLink | None:
        return app_of(self).link

    def _fields(self) -> tuple[str, str, str]:
        copies, heat, limit = (self.query_one(f"#play-{name}", Input).value for name in ("copies", "temperature", "max"))
        return copies, heat, limit

    def action_send(self) -> None:
        link = self._link()
        if link is None:
            self._say("✗ not connected to a host yet")
            return
        custom = {"record_rounds": True} if self._records_rounds() else {}
        try:
            requests = make_requests(self.query_one(PromptEditor).text, *self._fields(), custom)
        except PromptError as error:
            self._say(f"✗ {error}")
            return
        shown = self._shown()
        if shown is not None:
            self._earlier = shown
        self._greedy = requests[0].temperature == 0
        self._answers = [Answer(number) for number in range(len(requests))]
        self._index = 0
        self._remark = ""
        self.call_later(self.query_one(AnswerView).plain)
        self._runner.start(link, requests)
        self._dirty = True
        if self._timer is not None:
            self._timer.resume()
        self.refresh_bindings()

    def _records_rounds(self) -> bool:
        """Only our engines keep rounds; a stock server is not sent parameters that it does not know."""
        state = None if self._model is None else self._model.state
        return state is not None and state.server is not None and state.server.value.dialect.hot

    def action_stop(self) -> None:
        self._runner.cancel()
        self._say("stopped")
        self.refresh_bindings()

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
        elif message.run == self._comparer.run:
            shown = self._shown()
            if shown is not None:
                self._say(comparison_words("plain", message.record, shown, greedy=self._greedy))

    def on_prompts_ended(self, message: messages.PromptsEnded) -> None:
        message.stop()
        if message.sentence:
            self._remark = f"✗ {message.sentence}"
        if message.run == self._runner.run and self._timer is not None:
            self._timer.pause()
        self._repaint()
        self.refresh_bindings()

    # Comparing

    def _shown(self) -> RequestRecord | None:
        """The finished answer in view."""
        return self._answers[self._index].record if self._answers else None

    def action_compare_plain(self) -> None:
        """Send the same prompt with speculation off for this request, on the same server."""
        link, shown = self._link(), self._shown()
        if link is None or shown is None:
            return
        if not self._records_rounds():
            self._say("this server takes no speculation switch per request: restart it plain and compare with C")
            return
        try:
            requests = make_requests(self.query_one(PromptEditor).text, "1", *self._fields()[1:], {"speculative": False})
        except PromptError as error:
            self._say(f"✗ {error}")
            return
        self._comparer.start(link, requests)
        self._say("plain: waiting …")

    def action_compare_earlier(self) -> None:
        shown = self._shown()
        if shown is None or self._earlier is None:
            self._say("there is no earlier answer to compare with")
        else:
            self._say(comparison_words("earlier", self._earlier, shown, greedy=self._greedy))

    # Showing

    def action_answer(self, by: int) -> None:
        if self._answers:
            self._index = (self._index + by) % len(self._answers)
            self._repaint()

    def _say(self, remark: str) -> None:
        self._remark = remark
        self._repaint()

    def _repaint_when_dirty(self) -> None:
        if self._dirty:
            self._dirty = False
            self._repaint()

    def _repaint(self) -> None:
        answer = self._answers[self._index] if self._answers else None
        remark = self._remark or ("shades: one verify each" if answer is not None else "")
        self.query_one(AnswerView).show_answer(answer, len(self._answers), remark)
        record = None if answer is None else answer.record
        self.query_one("#answer-histogram", HistogramPanel).show_counts(() if record is None else record.accept_histogram)
        self.query_one("#answer-list", Static).update(self._list())

    def _list(self) -> Text:
        width = max(20, self.query_one("#playground-left").size.width - 4)
        lines = []
        for index, answer in enumerate(self._answers[:12]):
            chosen = index == self._index
            words = f"{'▸' if chosen else ' '} {index + 1}  {answer.figures(brief=not chosen)}"
            # The answer in view has all its figures, on as many lines as they take.
            lines.append(Text(words) if chosen else Text(shorten(words, width), no_wrap=True))
        if len(self._answers) > 12:
            lines.append(Text(f"  … {len(self._answers) - 12} more: ← → walk through them", style="dim"))
        return Text("\n").join(lines)

    def on_resize(self) -> None:
        self._repaint()

    # Keys

    def action_edit(self) -> None:
        self.query_one(PromptEditor).focus()

    def on_prompt_editor_left(self, message: PromptEditor.Left) -> None:
        message.stop()
        self.focus_default()

    def on_leaving_input_left(self, message: LeavingInput.Left) -> None:
        message.stop()
        self.focus_default()

    async def action_markdown(self) -> None:
        if self._answers and self._answers[self._index].record is not None:
            await self.query_one(AnswerView).toggle_markdown(self._answers[self._index])
        else:
            self.notify("Markdown is for finished answers.", severity="information")

    def action_copy(self) -> None:
        if self._answers:
            text = self._answers[self._index].text
            self.app.copy_to_clipboard(text)
            self._save(text, "Copied; also in")

    def action_save(self) -> None:
        if self._answers:
            self._save("\n\n".join(f"# {answer.figures()}\n{answer.text}" for answer in self._answers), "Saved")

    def _save(self, text: str, verb: str) -> None:
        try:
            path = app_of(self).save_text(text, "answer")
        except OSError as error:
            self.notify(f"The file could not be written: {error.strerror}", severity="error", markup=False)
        else:
            self.notify(f"{verb} {path}", markup=False)

    def action_tree(self) -> None:
        from .tree import open_tree

        open_tree(app_of(self))

    def action_suite(self) -> None:
        from .suites import SuiteScreen

        self.app.push_screen(SuiteScreen(), self._take_prompt)

    def _take_prompt(self, text: str | None) -> None:
        if text:
            self.query_one(PromptEditor).load_text(text)
            self.focus_default()
