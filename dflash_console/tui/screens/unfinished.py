"""An operation that an earlier console left unfinished."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from ..link import Control
from .unasked import UnaskedDialog


class UnfinishedScreen(UnaskedDialog[Control]):
    """Resume, undo, or leave it for later."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,r", "resume", "resume", show=True, id="unfinished.resume", tooltip="go on with the operation"),
        Binding("u", "undo", "roll back", show=True, id="unfinished.undo", tooltip="restore what was before it"),
    ]

    def __init__(self, sentence: str) -> None:
        super().__init__("Unfinished operation")
        self._sentence = sentence

    def compose_body(self) -> ComposeResult:
        words = f"{self._sentence}.\n\nenter goes on and confirms it   u restores what was before   esc decides later"
        yield Static(Text(words), classes="question")

    def action_resume(self) -> None:
        self.dismiss(Control.RESUME)

    def action_undo(self) -> None:
        self.dismiss(Control.UNDO)
