"""Every action by its name, for the command palette: the keys of the open screen, the console's own, the themes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual import actions
from textual.app import SystemCommand
from textual.binding import Binding
from textual.dom import DOMNode

from .keymap import APP_BINDINGS, key_names

if TYPE_CHECKING:
    from .app import ConsoleApp

_MOVING = frozenset({"up", "down", "left", "right", "pageup", "pagedown", "home", "end"})
"""Keys that move a cursor: nobody looks for these by name."""


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
