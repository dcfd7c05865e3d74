"""The keys that put a change together: steps, toggles and edits, whatever screen they are pressed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import App

from . import draft
from .facts import current_value
from .knob_rows import takes_hot
from .model import ConsoleModel
from .widgets.change_bar import ChangeBar

if TYPE_CHECKING:
    from ..knobs import Value
    from .screens.pane import Pane


class ChangingApp(App[None]):
    """The part of the console that edits; nothing here reaches a host."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ConsoleModel()

    @property
    def pane(self) -> Pane:
        """The numbered screen that is open."""
        raise NotImplementedError

    def _now(self, name: str) -> Value | None:
        return None if self.model.state is None else current_value(self.model.state, name)

    def edit(self, name: str, value: Value) -> None:
        """Put one setting into the change (or take it out, when the value is the present one)."""
        self.model.change = self.model.change.with_value(name, value, self._now(name))
        self.show_change()
        self.pane.change_edited(self.model)
        self.refresh_bindings()

    def forget_edit(self, name: str) -> None:
        """Take one setting out of the change."""
        self.model.change = self.model.change.without(name)
        self.show_change()
        self.pane.change_edited(self.model)
        self.refresh_bindings()

    def show_change(self) -> None:
        change = self.model.change
        now = {name: self._now(name) for name in change.values}
        # An edit that has come true (applied here or elsewhere) is no edit any more.
        for name, value in list(change.values.items()):
            change = change.with_value(name, value, now[name])
        if change != self.model.change:
            self.model.change = change
            self.pane.change_edited(self.model)
            self.refresh_bindings()
        how = "now:" if all(takes_hot(self.model.state, name) for name in change.values) else "with a restart:"
        self.screen_stack[0].query_one(ChangeBar).show_change(draft.words(change, now), how)

    def action_step(self, name: str, direction: int) -> None:
        from ..knobs import KNOBS

        now = self._now(name)
        wanted = self.model.change.wanted(name, now)
        trained = self._trained_window() if name == "draft_window" else None
        value = draft.step(KNOBS[name], wanted, direction, (trained,) if trained else ())
        if value is None:
            self.bell()
        else:
            self.edit(name, value)

    def _trained_window(self) -> int | None:
        state = self.model.state
        return None if state is None or state.drafter is None else state.drafter.value.sliding_window

    def action_toggle_window(self) -> None:
        from ..knobs import KNOBS

        now = self.model.change.wanted("draft_window", self._now("draft_window"))
        if isinstance(now, int):
            self.model.window_size = now
        value = draft.toggle_window(now, self.model.window_size, self._trained_window(), KNOBS["draft_window"])
        self.edit("draft_window", value)

    def action_toggle_layers_window(self) -> None:
        now = self._now("layers_window")
        if self.model.change.wanted("layers_window", now) != "off":
            self.edit("layers_window", "off")
        else:
            # Back to the very value in effect (a number where the engine names it), so that twice W is no edit.
            self.edit("layers_window", "config" if now in (None, "off") else now)

    def action_toggle_speculation(self) -> None:
        now = self.model.change.wanted("speculation", self._now("speculation"))
        self.edit("speculation", now is False)

    def action_discard(self) -> None:
        self.model.change = draft.DraftChange()
        self.show_change()
        self.pane.change_edited(self.model)
        self.refresh_bindings()
