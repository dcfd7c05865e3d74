"""Choosing a prompt from a suite."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from ...formats import shorten
from ...load.suite import SUITES, Suite, SuiteError, load_suite
from ..focus import take_focus
from ..widgets.field import LeavingInput
from .dialog import Dialog, ScrollText

DEPTHS = (0, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768)
"""Tokens (about) put in front of each prompt."""


class SuiteScreen(Dialog[str]):
    """``tab`` walks the suites, up and down the prompts, left and right the depth; ``f`` opens a file."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "suite(1)", "suite", show=True, id="suites.next", tooltip="the next suite", priority=True),
        Binding("up", "step(-1)", "prompt", show=True, id="suites.up", tooltip="the prompt above", priority=True),
        Binding("down,j", "step(1)", "prompt", show=True, id="suites.down", tooltip="the prompt below", priority=True),
        Binding(
            "left",
            "depth(-1)",
            "depth",
            show=True,
            id="suites.shallower",
            tooltip="less text in front of the prompt",
            priority=True,
        ),
        Binding(
            "right", "depth(1)", "depth", show=True, id="suites.deeper", tooltip="more text in front of the prompt", priority=True
        ),
        Binding("f", "file", "file", show=True, id="suites.file", tooltip="a suite from a file"),
        Binding("enter", "take", "take", show=True, id="suites.take", tooltip="take the prompt"),
    ]

    def __init__(self) -> None:
        super().__init__("Suites")
        self._names: list[str] = list(SUITES)
        self._suite = 0
        self._prompt = 0
        self._depth = 0

    def compose_body(self) -> ComposeResult:
        yield Static("", markup=False, id="suite-names")
        yield ScrollText(Text(), id="suite")
        field = LeavingInput(placeholder="path of a file: .toml suite, .jsonl, or text", id="suite-file")
        field.display = False
        yield field

    def on_mount(self) -> None:
        if not self.has_parts:
            return
        self._repaint()
        take_focus(self.query_one(ScrollText))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In the path's field the arrows belong to the text."""
        return not (action in ("step", "depth", "suite") and self.query_one("#suite-file", LeavingInput).has_focus)

    def _load(self) -> Suite:
        return load_suite(self._names[self._suite])

    def action_suite(self, by: int) -> None:
        self._suite = (self._suite + by) % len(self._names)
        self._prompt = 0
        self._repaint()

    def action_step(self, by: int) -> None:
        self._prompt = (self._prompt + by) % len(self._load().prompts)
        self._repaint()

    def action_depth(self, by: int) -> None:
        self._depth = max(0, min(len(DEPTHS) - 1, self._depth + by))
        self._repaint()

    def action_file(self) -> None:
        field = self.query_one("#suite-file", LeavingInput)
        field.display = True
        take_focus(field)

    def on_leaving_input_left(self, message: LeavingInput.Left) -> None:
        message.stop()
        self.query_one("#suite-file").display = False
        take_focus(self.query_one(ScrollText))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        try:
            load_suite(event.value.strip())
        except SuiteError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self._names.append(event.value.strip())
        self._suite, self._prompt = len(self._names) - 1, 0
        event.input.display = False
        take_focus(self.query_one(ScrollText))
        self._repaint()

    def action_take(self) -> None:
        suite = load_suite(self._names[self._suite], depth=DEPTHS[self._depth])
        self.dismiss(suite.prompts[self._prompt].text)

    def _repaint(self) -> None:
        suite = self._load()
        names = Text()
        for index, name in enumerate(self._names):
            names.append(f" {shorten(name, 30, keep_end=True)} ", style="bold reverse" if index == self._suite else "")
        depth = DEPTHS[self._depth]
        names.append(f"   depth: {f'about {depth:,} tokens in front' if depth else 'as it is'}", style="dim")
        self.query_one("#suite-names", Static).update(names)
        text = Text(f"{suite.title}: {suite.about}\n\n", style="dim")
        for index, prompt in enumerate(suite.prompts):
            chosen = index == self._prompt
            text.append(f"{'▸' if chosen else ' '} {prompt.name}\n", style="bold" if chosen else "")
            if chosen:
                text.append(f"    {shorten(' '.join(prompt.text.split()), 240)}\n", style="dim")
        self.query_one(ScrollText).show_text(text)
