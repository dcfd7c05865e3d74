"""Every action by its name, for the command palette."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from textual.app import SystemCommand

from .keymap import PANES

if TYPE_CHECKING:
    from .app import ConsoleApp

_ACTIONS = (
    ("Apply the change", "Show the plan, then write, restart or change hot, and confirm", "apply"),
    ("Discard the change", "Forget what was edited", "discard"),
    ("Roll back", "Return to the last confirmed configuration", "rollback"),
    ("Restart the engine", "Restart (or start) and confirm from the log of that very start", "restart"),
    ("Stop the engine", "Stop the service", "stop"),
    ("Compact draft cache on or off", "The drafter's window at run time", "toggle_window"),
    ("Drafter layers' window", "As trained, or off", "toggle_layers_window"),
    ("Speculation on or off", "While the engine runs", "toggle_speculation"),
    ("Larger tree budget", "More drafts per verify", "step('tree_budget', 1)"),
    ("Smaller tree budget", "Fewer drafts per verify", "step('tree_budget', -1)"),
    ("Larger top-k", "More candidates per position", "step('tree_topk', 1)"),
    ("Smaller top-k", "Fewer candidates per position", "step('tree_topk', -1)"),
    ("Maximise the panel", "Or return to all panels", "maximise"),
    ("Longer span", "Of the plots", "span(1)"),
    ("Shorter span", "Of the plots", "span(-1)"),
    ("What is this", "Explain the panel in focus", "explain"),
    ("Keys", "All keys of this screen", "help"),
    ("Quit", "Leave the console; the engine goes on running", "leave"),
)


def commands(app: ConsoleApp) -> Iterator[SystemCommand]:
    """Entries for what can be done now: actions, screens, themes."""
    for pane, title in PANES.items():
        yield SystemCommand(f"Open {title}", "Screen", _run(app, f"open_pane('{pane}')"))
    for title, help_text, action in _ACTIONS:
        name, _, rest = action.partition("(")
        parameters: tuple[object, ...] = (rest,) if rest else ()
        if app.check_action(name, parameters):
            yield SystemCommand(title, help_text, _run(app, action))
    for theme in sorted(name for name in app.available_themes if name.startswith("ddtree-") or name in app.user_theme_names):
        yield SystemCommand(f"Theme {theme}", "Colours", partial(setattr, app, "theme", theme))


def _run(app: ConsoleApp, action: str) -> Callable[[], None]:
    def run() -> None:
        app.call_later(app.run_action, f"app.{action}")

    return run
