"""The playground's prompt: several lines, ``enter`` sends."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea


class PromptEditor(TextArea):
    """Printable keys type. ``enter`` sends, ``alt+enter`` begins a new line, ``escape`` leaves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "leave the editor", show=True, id="playground.leave", tooltip="leave the editor"),
        Binding("alt+enter,f6", "new_line", "new line", show=True, id="playground.new_line", tooltip="in the editor: a new line"),
    ]
    topic = "playground"

    class Sent(Message):
        """The prompt is to be sent."""

    class Left(Message):
        """``escape`` was pressed."""

    def __init__(self, text: str, *, id: str) -> None:  # noqa: A002
        super().__init__(text, id=id, soft_wrap=True, tab_behavior="focus")
        self.border_title = "Prompt"
        self.add_class("framed")

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self.post_message(self.Sent())
            return
        if event.key == "escape":
            event.stop()
            event.prevent_default()
            self.post_message(self.Left())
            return
        await super()._on_key(event)

    def action_new_line(self) -> None:
        self.insert("\n")

    def action_leave(self) -> None:
        self.post_message(self.Left())
