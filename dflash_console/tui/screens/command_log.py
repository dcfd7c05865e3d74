"""Every command that was run on the host, newest first."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input, Static

from ...evidence.terminal_text import one_line
from ...formats import clock, short_seconds, shorten
from ..focus import take_focus
from ..widgets.field import LeavingInput
from .dialog import Dialog, ScrollText

if TYPE_CHECKING:
    from ...hosts.transport import CommandRecord
    from ..link import HostLink


BEFORE = 38
"""Cells before a command: time, seconds, status, kind."""
NOT_FOUND = 127
"""What a shell says of a command that is not there."""
WHOLE = 4_000
"""Characters of a command that are shown when it is shown in full."""


class CommandLogScreen(Dialog[None]):
    """Looks again every second; shows and copies with secrets masked."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash,f", "filter", "filter", show=True, id="commands.filter", tooltip="show the commands that hold some words"),
        Binding("c", "only_changes", "changes only", show=True, id="commands.changes", tooltip="only what changed something"),
        Binding("w", "wrap", "whole commands", show=True, id="commands.wrap", tooltip="long commands in full"),
        Binding("y", "copy", "copy", show=True, id="commands.copy", tooltip="copy the list"),
    ]

    def __init__(self, link: HostLink, host: str) -> None:
        super().__init__(f"Commands run on {host}")
        self._link = link
        self._filter = ""
        self._changes = False
        self._whole = False
        self._seen: tuple[object, ...] = ()

    def compose_body(self) -> ComposeResult:
        yield Static("", markup=False, id="commands-head")
        field = LeavingInput(placeholder="words that the command holds", id="commands-filter")
        field.display = False
        yield field
        yield ScrollText(Text(), id="commands")

    def on_mount(self) -> None:
        if not self.has_parts:
            return
        self.set_interval(1.0, self._repaint)
        self._repaint()
        # Again when the width is known.
        self.call_after_refresh(self._repaint)
        take_focus(self.query_one(ScrollText))

    def chosen(self) -> list[CommandRecord]:
        """The records that are shown, newest first."""
        words = self._filter.lower().split()
        return [
            record
            for record in reversed(self._link.commands())
            if (record.changes or not self._changes) and all(word in written(record).lower() for word in words)
        ]

    def action_filter(self) -> None:
        field = self.query_one("#commands-filter", LeavingInput)
        field.display = True
        take_focus(field)

    def action_only_changes(self) -> None:
        self._changes = not self._changes
        self._repaint()

    def action_wrap(self) -> None:
        """Long commands in full, or each on one line."""
        self._whole = not self._whole
        self._repaint()

    def action_copy(self) -> None:
        records = self.chosen()
        self.app.copy_to_clipboard("\n".join(line(record) for record in reversed(records)) + "\n")
        self.notify(f"{len(records)} commands copied, secrets masked.")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._filter = event.value
        self._repaint()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        take_focus(self.query_one(ScrollText))

    def on_leaving_input_left(self, message: LeavingInput.Left) -> None:
        message.stop()
        field = self.query_one("#commands-filter", LeavingInput)
        field.value, field.display = "", False
        take_focus(self.query_one(ScrollText))

    def _repaint(self) -> None:
        records, all_records = self.chosen(), self._link.commands()
        width = self.query_one(ScrollText).scrollable_content_region.width or self.app.size.width
        newest = records[0] if records else None
        seen = (len(records), newest, len(all_records), self._filter, self._changes, self._whole, width)
        if seen == self._seen:
            return
        self._seen = seen
        changing = sum(record.changes for record in all_records)
        head = f"{len(records)} of {len(all_records)} · {changing} changed something"
        if self._changes:
            head += " · changes only"
        self.query_one("#commands-head", Static).update(Text(head, style="dim"))
        self.query_one(ScrollText).show_text(self._text(records, width))

    def _text(self, records: list[CommandRecord], width: int) -> Text:
        variables = self.app.theme_variables
        text = Text()
        for record in records:
            text.append(f"{clock(record.at)}  {short_seconds(record.seconds):>7}  ", style="dim")
            good = record.status == 0
            text.append(f"{status_words(record):<10}", style="dim" if good else variables.get("warning", ""))
            kind = "changes  " if record.changes else "reads    "
            text.append(kind, style=variables.get("accent", "") if record.changes else "dim")
            room = WHOLE if self._whole else max(10, width - BEFORE)
            text.append(f"{shorten(written(record), room)}\n", style="bold" if record.changes else "")
        return text if records else Text("Nothing yet that would be shown here.", style="dim")


def status_words(record: CommandRecord) -> str:
    """``status 0``, ``not found``; a command that was cut off has none."""
    if record.status == NOT_FOUND:
        return "not found"
    return "cut off" if record.status is None else f"status {record.status}"


def written(record: CommandRecord) -> str:
    """The command as a shell would need it, on one line."""
    return one_line(shlex.join(record.argv))


def line(record: CommandRecord) -> str:
    """The record as it is copied."""
    kind = "changes" if record.changes else "reads"
    return f"{clock(record.at)}  {record.seconds:.2f} s  {status_words(record)}  {kind}  {written(record)}"
