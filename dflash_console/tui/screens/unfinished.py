"""An operation that an earlier console left unfinished."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from .unasked import UnaskedDialog


class UnfinishedScreen(UnaskedDialog[bool]):
    """Resume (answers true), see the plan that undoes it (false), or leave it for later (nothing)."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,r", "resume", "resume", show=True, id="unfinished.resume", tooltip="go on with the operation"),
        Binding(
            "u", "undo", "roll back", show=True, id="unfinished.undo", tooltip="show the plan that restores what was before it"
        ),
    ]

    def __init__(self, sentence: str) -> None:
        super().__init__("Unfinished operation")
        self._sentence = sentence

    def compose_body(self) -> ComposeResult:
        undoes = "shows the plan that restores what was before"
        ways = (("resume", "goes on and confirms it"), ("undo", undoes), ("leave", "decides later"))
        keys = {action: self.written_keys(action) for action, _ in ways}
        column = max(map(len, keys.values()))
        lines = "\n".join(f"{keys[action]:<{column}}  {does}" for action, does in ways)
        yield Static(Text(f"{self._sentence}.\n\n{lines}"), classes="question")

    def action_resume(self) -> None:
        self.dismiss(True)

    def action_undo(self) -> None:
        self.dismiss(False)
