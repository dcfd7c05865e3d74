"""A small text field with its name before it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Label


class LeavingInput(Input):
    """A one-line field that ``escape`` leaves and that remembers what was sent from it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "send", show=True, id="prompt.send", tooltip="send"),
        Binding("escape", "leave", "leave the field", show=True, id="prompt.leave", tooltip="leave a text field"),
        Binding("up", "recall(-1)", "earlier", id="prompt.earlier", tooltip="in a prompt: the prompt before", show=False),
        Binding("down", "recall(1)", "later", id="prompt.later", tooltip="the prompt after", show=False),
    ]

    class Left(Message):
        """``escape`` was pressed in a field."""

    def __init__(self, value: str = "", placeholder: str = "", *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(value, placeholder, id=id, compact=True, select_on_focus=False)
        self._sent: list[str] = []
        self._recalled = 0

    def remember(self, text: str) -> None:
        """Keep a text for the up key."""
        if text and (not self._sent or self._sent[-1] != text):
            self._sent.append(text)
        self._recalled = len(self._sent)

    def action_leave(self) -> None:
        self.post_message(self.Left())

    def action_recall(self, direction: int) -> None:
        index = self._recalled + direction
        if 0 <= index < len(self._sent):
            self._recalled = index
            self.value = self._sent[index]
            self.cursor_position = len(self.value)


class ValueInput(LeavingInput):
    """A field for a value or a name: nothing is sent from it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "take", show=True, id="prompt.send", tooltip="take what is typed"),
    ]


class Field(Horizontal):
    """``n [ 1 ]``."""

    def __init__(self, name: str, value: str, *, id: str, width: int) -> None:  # noqa: A002
        super().__init__(classes="field")
        self._name = name
        self._input = LeavingInput(value, id=id)
        self._input.styles.width = width

    def compose(self) -> ComposeResult:
        yield Label(f"{self._name} ", markup=False)
        yield self._input
