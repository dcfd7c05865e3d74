"""Adding a host to the configuration."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Label, Static

from ...hosts.ssh_destination import BadDestination, parse_destination
from ..fleet import NewHost
from ..focus import take_focus
from ..widgets.field import LeavingInput
from .dialog import Dialog

FIELDS = {
    "address": ("address", "what ssh would take: root@gpu-a, gpu-a:2222, an alias of ~/.ssh/config"),
    "name": ("name", "how it is called here; empty: the address without user and port"),
    "unit": ("unit", "the systemd unit; empty: the host is searched for an engine"),
    "note": ("note", "a few words for the list"),
}


class AddHostScreen(Dialog[NewHost]):
    """Four fields; ``tab`` walks them, ``enter`` adds."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,down", "step(1)", "next field", show=True, id="addhost.next", tooltip="the next field", priority=True),
        Binding("shift+tab,up", "step(-1)", "", show=False, id="addhost.previous", tooltip="the field before", priority=True),
    ]

    def __init__(self, address: str = "") -> None:
        super().__init__("Add a host")
        self._address = address

    def compose_body(self) -> ComposeResult:
        for name, (title, hint) in FIELDS.items():
            with Horizontal(classes="form-line"):
                yield Label(title.ljust(9), markup=False)
                yield LeavingInput(self._address if name == "address" else "", hint, id=f"host-{name}")
        yield Static(
            Text("enter adds it to the configuration file, whose comments stay", style="dim"), id="host-said", markup=False
        )

    def on_mount(self) -> None:
        if not self.has_parts:
            return
        take_focus(self.query_one("#host-address", Input))

    def action_step(self, by: int) -> None:
        names = list(FIELDS)
        focused = self.focused.id if self.focused is not None and self.focused.id else ""
        here = names.index(focused.removeprefix("host-")) if focused.removeprefix("host-") in names else 0
        take_focus(self.query_one(f"#host-{names[(here + by) % len(names)]}", Input))

    def on_leaving_input_left(self, message: LeavingInput.Left) -> None:
        message.stop()
        self.dismiss(None)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if event.input.id == "host-address":
            self._say(self._problem() if event.value.strip() else "")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if problem := self._problem():
            self._say(problem)
            take_focus(self.query_one("#host-address", Input))
            return
        values = {name: self.query_one(f"#host-{name}", Input).value.strip() for name in FIELDS}
        self.dismiss(NewHost(values["address"], values["name"], values["unit"], values["note"]))

    def _problem(self) -> str:
        """Why the address is none; empty when it is one."""
        try:
            parse_destination(self.query_one("#host-address", Input).value)
        except BadDestination as error:
            return str(error)
        return ""

    def _say(self, problem: str) -> None:
        said = Text(problem, style=self.app.theme_variables.get("error", "")) if problem else Text("")
        self.query_one("#host-said", Static).update(said)
