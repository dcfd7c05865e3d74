"""Prompts and their answers, with what each verify brought."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from .. import messages
from ..answer_list import answer_list, earlier_name
from ..comparison import KeptAnswer, comparison_words, without
from ..focus import take_focus
from ..keymap import key_binding
from ..prompt_runner import EXAMPLE, PromptError, PromptRunner, make_requests
from ..widgets.answer_view import AnswerView
from ..widgets.field import Field, LeavingInput
from ..widgets.histogram import HistogramPanel
from ..widgets.prompt_editor import PromptEditor
from ..widgets.toggle import Toggle
from .dialog import ScrollText
from .pane import Pane, app_of

if TYPE_CHECKING:
    from ...load.request import PromptRequest
    from ..link import HostLink
    from ..model import ConsoleModel

KEPT = 12
"""Earlier answers that stay at hand to be compared with."""


def _key(identity: str, key: str, action: str, footer: str, tooltip: str) -> Binding:
    return key_binding(f"playground.{identity}", key, action, footer, tooltip)


class PlaygroundPane(Pane):
    """Editor and answers; the answer in view has its figures in its frame."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("send", "enter,f5", "send", "send", "send the prompt"),
        _key("edit", "e", "edit", "edit", "edit the prompt"),
        _key("suites", "o", "suite", "suites", "choose a prompt from a suite"),
        _key("stop", "x", "stop", "stop", "stop the answers that stream"),
        _key("previous", "left", "answer(-1)", "answer", "the answer before"),
        _key("next", "right", "answer(1)", "answer", "the answer after"),
        _key("compare_plain", "c", "compare_plain", "compare with plain", "the same prompt with plain decoding: same output?"),
        _key("compare_earlier", "C", "compare_earlier", "with others", "compare with parallel and earlier answers, in full"),
        _key("tree", "T", "tree", "tree", "draw one verify"),
        _key("raw", "R", "raw", "raw text", "the text as it stands, or in the chat template"),
        _key("markdown", "m", "markdown", "", "show a finished answer as Markdown"),
        _key("copy", "y", "copy", "", "copy the answer, also to a file"),
        _key("save", "S", "save", "", "save the answers of this run"),
    ]
    default_focus = "#answer"

    def __init__(self) -> None:
        super().__init__(id="playground")
        self._model: ConsoleModel | None = None
        self._runner = PromptRunner(self, self._repaint)
        self._comparer = PromptRunner(self, self._repaint)
        self._asked: PromptRequest | None = None
        self._sent_at = 0.0
        """Seconds since the epoch: names the answers."""
        self._precision = ""
        """The format in which the server computed this run's answers."""
        self._plain_precision = ""
        self._kept: list[KeptAnswer] = []
        self._compared: KeptAnswer | None = None
        """The answer that plain decoding is compared with."""
        self._compared_index = 0
        self._remarks: dict[int, str] = {}
        """How an answer of this run compared with plain decoding."""
        self._index = 0
        self._remark = ""

    def compose(self) -> ComposeResult:
        with Horizontal(id="playground-columns"):
            with Vertical(id="playground-left"):
                yield PromptEditor(EXAMPLE, id="prompt")
                with Horizontal(id="playground-fields"):
                    yield Field("n", "1", id="play-copies", width=4)
                    yield Field("T", "0", id="play-temperature", width=5)
                    yield Field("max", "256", id="play-max", width=6)
                    yield Toggle("as", "chat", "raw text", id="play-raw")
                answers = ScrollText(Text(), id="answer-list")
                answers.border_title = "Answers"
                answers.add_class("framed")
                yield answers
            with Vertical(id="playground-right"):
                yield AnswerView(id="answer")
                yield HistogramPanel("when an answer has ended", id="answer-histogram")

    def on_mount(self) -> None:
        self._repaint()

    def show(self, model: ConsoleModel) -> None:
        self._model = model

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "stop":
            return self._runner.running or self._comparer.running
        if action == "answer":
            return len(self._runner.answers) > 1
        if action == "compare_plain":
            return self._shown() is not None
        if action == "compare_earlier":
            return bool(self._others())
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

    def action_send(self) -> None:
        link = self._link()
        if link is None:
            self._say("✗ not connected to a host yet")
            return
        copies, heat, limit = (self.query_one(f"#play-{name}", Input).value for name in ("copies", "temperature", "max"))
        custom = {"record_rounds": True} if self._takes_settings() else {}
        try:
            requests = make_requests(
                self.query_one(PromptEditor).text, copies, heat, limit, custom, raw=self.query_one(Toggle).value
            )
        except PromptError as error:
            self._say(f"✗ {error}")
            return
        self._keep()
        self._comparer.cancel()
        self._asked, self._sent_at = requests[0], app_of(self).clock.wall()
        self._precision = self._serving_precision()
        self._index, self._remark, self._remarks = 0, "", {}
        self.call_later(self.query_one(AnswerView).plain)
        self._runner.start(link, requests)
        self._repaint()
        self.refresh_bindings()

    def _takes_settings(self) -> bool:
        """Only our engines take settings per request; a stock server is not sent parameters that it does not know."""
        state = None if self._model is None else self._model.state
        return state is not None and state.server is not None and state.server.value.dialect.hot

    def _serving_precision(self) -> str:
        """The format in which the server computes now; asked for each run, because a restart may change it."""
        from ...evidence.precision import model_precision

        state = None if self._model is None else self._model.state
        if state is None:
            return ""
        return model_precision(
            None if state.server is None else state.server.value, None if state.log is None else state.log.value
        )

    def action_stop(self) -> None:
        self._runner.cancel()
        self._comparer.cancel()
        self._say("stopped")
        self.refresh_bindings()

    def action_raw(self) -> None:
        self.query_one(Toggle).action_switch()

    def on_chunk_arrived(self, message: messages.ChunkArrived) -> None:
        message.stop()
        if self._comparer.take_chunk(message):
            self._remark = f"plain: {self._comparer.answers[0].figures(brief=True)}"
        else:
            self._runner.take_chunk(message)

    def on_answer_ended(self, message: messages.AnswerEnded) -> None:
        message.stop()
        if self._comparer.take_end(message) and self._compared is not None:
            plain = KeptAnswer("plain", self._compared.asked, message.record, self._plain_precision)
            self._remark = ""
            self._remarks[self._compared_index] = comparison_words(plain, self._compared)
            if plain.record.ok:
                self._kept = [plain, *(kept for kept in self._kept if kept.name != "plain")][:KEPT]
        else:
            self._runner.take_end(message)

    def on_prompts_ended(self, message: messages.PromptsEnded) -> None:
        message.stop()
        if self._comparer.take_run_end(message) or self._runner.take_run_end(message):
            if message.sentence:
                self._remark = f"✗ {message.sentence}"
            self._repaint()
            self.refresh_bindings()

    # Comparing

    def _finished(self) -> list[KeptAnswer]:
        """The answers of this run that have ended, under the names that they will be kept by."""
        asked, answers = self._asked, self._runner.answers
        if asked is None:
            return []
        return [
            KeptAnswer(earlier_name(self._sent_at, index, len(answers)), asked, answer.record, self._precision)
            for index, answer in enumerate(answers)
            if answer.record is not None
        ]

    def _keep(self) -> None:
        """Keep what this run answered; another run begins."""
        self._kept = [*(kept for kept in self._finished() if kept.record.ok), *self._kept][:KEPT]

    def _shown(self) -> KeptAnswer | None:
        """The answer in view, when it has ended."""
        record = self._runner.answers[self._index].record if self._runner.answers else None
        return next((kept for kept in self._finished() if kept.record is record), None)

    def _others(self) -> tuple[KeptAnswer, ...]:
        shown = self._shown()
        return () if shown is None else without([*self._kept, *self._finished()], shown)

    def action_compare_plain(self) -> None:
        """Send the same question with speculation off for this request, on the same server."""
        link, shown = self._link(), self._shown()
        if link is None or shown is None:
            return
        if not self._takes_settings():
            self._say("this server takes no speculation switch per request: restart it plain, send again, and compare with C")
            return
        self._compared, self._compared_index = shown, self._index
        self._plain_precision = self._serving_precision()
        self._comparer.start(link, (replace(shown.asked, custom_params={"speculative": False}),))
        self._say("plain: waiting …")
        self.refresh_bindings()

    def action_compare_earlier(self) -> None:
        """Both answers in full."""
        from .compare import CompareScreen

        shown, others = self._shown(), self._others()
        if shown is not None and others:
            self.app.push_screen(CompareScreen(replace(shown, name="this"), others))

    # Showing

    def action_answer(self, by: int) -> None:
        self._index = (self._index + by) % len(self._runner.answers)
        self._remark = ""
        self._repaint()
        self.refresh_bindings()

    def _say(self, remark: str) -> None:
        self._remark = remark
        self._repaint()

    def _repaint(self) -> None:
        answers = self._runner.answers
        answer = answers[self._index] if answers else None
        remark = self._remark or self._remarks.get(self._index, "")
        self.query_one(AnswerView).show_answer(answer, len(answers), remark)
        record = None if answer is None else answer.record
        self.query_one("#answer-histogram", HistogramPanel).show_counts(() if record is None else record.accept_histogram)
        listed = self.query_one("#answer-list", ScrollText)
        listed.show_text(answer_list(answers, self._index, self._kept, self._remarks, max(20, listed.content_size.width - 1)))

    def on_resize(self) -> None:
        self._repaint()

    # Keys

    def action_edit(self) -> None:
        editor = self.query_one(PromptEditor)
        take_focus(editor)
        if editor.text == EXAMPLE:
            # What is typed first takes the example's place, an arrow key keeps it.
            editor.select_all()

    def on_prompt_editor_left(self, message: PromptEditor.Left) -> None:
        message.stop()
        self.focus_default()

    def on_leaving_input_left(self, message: LeavingInput.Left) -> None:
        message.stop()
        self.focus_default()

    async def action_markdown(self) -> None:
        if self._runner.answers and self._runner.answers[self._index].record is not None:
            await self.query_one(AnswerView).toggle_markdown(self._runner.answers[self._index])
        else:
            self.notify("Markdown is for finished answers.", severity="information")

    def action_copy(self) -> None:
        if self._runner.answers:
            text = self._runner.answers[self._index].text
            self.app.copy_to_clipboard(text)
            self.save_text(text, "answer", "Copied; also in")

    def action_save(self) -> None:
        if self._runner.answers:
            self.save_text(
                "\n\n".join(f"# {answer.figures()}\n{answer.text}" for answer in self._runner.answers), "answer", "Saved"
            )

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
