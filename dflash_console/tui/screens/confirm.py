"""A question with a yes and a no."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from .dialog import Dialog


class ConfirmScreen(Dialog[bool]):
    """``enter`` or ``y`` says yes, ``escape`` or ``n`` no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,y", "yes", "yes", show=True, id="dialog.yes", tooltip="say yes"),
        Binding("n", "leave", "no", show=True, id="dialog.no", tooltip="say no"),
    ]

    def __init__(self, title: str, question: str, *, yes: str) -> None:
        super().__init__(title)
        self._question = question
        self._yes = yes

    def compose_body(self) -> ComposeResult:
        # Which keys say yes and no stands in the key line, as they are bound; here is what yes means.
        yield Static(Text(f"{self._question}\n\nyes: {self._yes}"), classes="question")

    def action_yes(self) -> None:
        self.dismiss(True)

    def action_leave(self) -> None:
        self.dismiss(False)
