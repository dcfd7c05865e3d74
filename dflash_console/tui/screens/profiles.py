"""Profiles beside what is in effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ...knobs import Value, same_value, show_value
from .dialog import Dialog, ScrollText


class ProfilesScreen(Dialog[Mapping[str, Value]]):
    """Up and down compare, ``enter`` takes the profile's settings into the change."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", "profile", show=True, id="profiles.up", priority=True),
        Binding("down,j", "step(1)", "profile", show=True, id="profiles.down", priority=True),
        Binding("enter", "take", "load", show=True, id="profiles.take"),
    ]

    def __init__(self, profiles: Mapping[str, Mapping[str, Value]], now: Mapping[str, Value | None]) -> None:
        super().__init__("Profiles")
        self._names = list(profiles)
        self._profiles = profiles
        self._now = now
        self._index = 0

    def compose_body(self) -> ComposeResult:
        yield ScrollText(Text(), id="profiles")

    def on_mount(self) -> None:
        self._repaint()

    def action_step(self, by: int) -> None:
        self._index = (self._index + by) % len(self._names)
        self._repaint()

    def action_take(self) -> None:
        self.dismiss(self._profiles[self._names[self._index]])

    def _repaint(self) -> None:
        variables = self.app.theme_variables
        text = Text()
        for index, name in enumerate(self._names):
            chosen = index == self._index
            text.append(f"{'▸' if chosen else ' '} {name}\n", style="bold" if chosen else "")
            if not chosen:
                continue
            for knob, value in self._profiles[name].items():
                now = self._now.get(knob)
                same = same_value(now, value)
                text.append(
                    f"    {knob:<18}{show_value(now):>12} → {show_value(value)}\n",
                    style="dim" if same else variables.get("accent", ""),
                )
        self.query_one(ScrollText).show_text(text)
