"""Profiles beside what is in effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from ...knobs import Value, find_knob, same_value, show_value
from .dialog import PickDialog


class ProfilesScreen(PickDialog[Mapping[str, Value]]):
    """Up and down compare, ``enter`` takes the profile's settings into the change."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", "profile", show=True, id="profiles.up", tooltip="the profile above", priority=True),
        Binding("down,j", "step(1)", "profile", show=True, id="profiles.down", tooltip="the profile below", priority=True),
        Binding("enter", "take", "load", show=True, id="profiles.take", tooltip="take the profile's settings into the change"),
    ]

    def __init__(self, profiles: Mapping[str, Mapping[str, Value]], now: Mapping[str, Value | None]) -> None:
        super().__init__("Profiles", tuple(profiles))
        self._profiles = profiles
        self._now = now

    def action_take(self) -> None:
        self.dismiss(self._profiles[self.picked])

    def details(self, name: str) -> Text:
        variables = self.app.theme_variables
        text = Text()
        for setting, value in self._profiles[name].items():
            knob, now = find_knob(setting), self._now.get(setting)
            text.append(
                f"    {setting:<18}{show_value(knob.shown(now)):>12} → {show_value(knob.shown(value))}\n",
                style="dim" if same_value(now, value) else variables.get("accent", ""),
            )
        return text
