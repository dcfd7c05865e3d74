"""Every action by its name, for the command palette: the keys of the open screen, the console's own, the themes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual import actions, on
from textual.app import SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.command import CommandPalette
from textual.dom import DOMNode
from textual.message import Message
from textual.widgets import Input, OptionList

from .keymap import APP_BINDINGS, key_names

if TYPE_CHECKING:
    from .app import ConsoleApp

_MOVING = frozenset({"up", "down", "left", "right", "pageup", "pagedown", "home", "end"})
"""Keys that move a cursor: nobody looks for these by name."""


class Palette(CommandPalette):
    """Textual's, for people who type fast.

    Its own (8.2.8) handles what was on its way when it closed: a second enter would run the command again, and close the screen
    under it or, where there is none, end the console.
    """

    @on(Input.Submitted)
    @on(OptionList.OptionSelected)
    def _closed_already(self, event: Message) -> None:
        if not self.is_active:
            event.stop()
            event.prevent_default()

    def _action_command_list(self, action: str) -> None:
        # A list that is not laid out yet has no pages; page up and page down look one up and end the console.
        if self.query_one(OptionList).size:
            super()._action_command_list(action)

    def dismiss(self, result: None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()


def commands(app: ConsoleApp) -> Iterator[SystemCommand]:
    """Entries for what can be done now, each with its key."""
    for owner, bindings in ((app.pane, app.pane.BINDINGS), (app, APP_BINDINGS)):
        for binding in bindings:
            if isinstance(binding, Binding) and _offered(binding, owner):
                words = binding.tooltip or binding.description
                keys = key_names(app.keys_of(binding))
                yield SystemCommand(words[0].upper() + words[1:], f"key {keys}", _run(app, owner, binding.action))
    for theme in sorted(name for name in app.available_themes if name.startswith("ddtree-") or name in app.user_theme_names):
        yield SystemCommand(f"Theme {theme}", "colours", partial(setattr, app, "theme", theme))


def _offered(binding: Binding, owner: DOMNode) -> bool:
    if binding.id == "app.palette" or binding.key.split(",")[0] in _MOVING:
        return False
    _, name, parameters = actions.parse(binding.action)
    return bool(owner.check_action(name, parameters))


def _run(app: ConsoleApp, owner: DOMNode, action: str) -> Callable[[], None]:
    def run() -> None:
        app.call_later(app.run_action, action, owner)

    return run
