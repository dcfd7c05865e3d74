"""A host shows a key that nobody has accepted yet: is it the host's?"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from .unasked import UnaskedDialog

if TYPE_CHECKING:
    from ..link import KeyQuestion


class HostKeyScreen(UnaskedDialog[bool]):
    """``y`` accepts; everything else, ``enter`` too, says no: a key is not accepted by habit."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "accept", "accept and connect", show=True, id="hostkey.accept", tooltip="accept the host's key"),
        Binding("n,enter", "refuse", "no", show=True, id="hostkey.refuse", tooltip="do not"),
    ]

    def __init__(self, question: KeyQuestion) -> None:
        super().__init__("Unknown host key")
        self._question = question

    def compose_body(self) -> ComposeResult:
        asked = self._question
        text = Text()
        text.append("No known_hosts file has a key for ")
        text.append(asked.hop.strip(" ,"), style="bold")
        text.append(". It shows this one:\n\n")
        text.append(f"   {asked.algorithm}  {asked.fingerprint}\n\n", style="bold")
        text.append(
            "Compare it with the host's own before you accept it. There, or from whoever set it up:\n"
            "   ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub\n\n",
            style="dim",
        )
        text.append(f"{self.written_keys('accept')} adds it to {asked.file} and connects.   ")
        text.append(f"{self.written_keys('refuse', 'leave')}: nothing is sent to the host.")
        yield Static(text, classes="question", markup=False)

    def action_accept(self) -> None:
        self.dismiss(True)

    def action_refuse(self) -> None:
        self.dismiss(False)

    def action_leave(self) -> None:
        self.dismiss(False)
