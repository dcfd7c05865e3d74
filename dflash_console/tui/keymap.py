"""Every key of the console, each with an id by which the configuration file can change it.

No action needs a ctrl chord, because multiplexers and terminals take them. Keys in upper case do the opposite or the bigger
thing of the same letter.
"""

from __future__ import annotations

from collections.abc import Mapping

from textual.binding import Binding, BindingType

PANES = {
    "dashboard": "Dashboard",
    "configure": "Configure",
    "truth": "Truth",
    "logs": "Logs",
    "playground": "Playground",
}
"""The numbered screens: pane id → title, in the order of their numbers."""

EDIT_ACTIONS = frozenset(
    {
        "toggle_window",
        "toggle_layers_window",
        "step",
        "toggle_speculation",
        "apply",
        "restart",
        "stop",
        "rollback",
        "discard",
    }
)
"""Actions that change the server or the change being put together."""


def _key(identity: str, key: str, action: str, description: str, *, show: bool = False, tooltip: str = "") -> Binding:
    return Binding(key, action, description, show=show, id=identity, tooltip=tooltip)


APP_BINDINGS: list[BindingType] = [
    *(
        _key(f"screen.{pane}", str(number), f"open_pane('{pane}')", title)
        for number, (pane, title) in enumerate(PANES.items(), start=1)
    ),
    _key("change.window", "w", "toggle_window", "window", show=True, tooltip="compact draft cache on or off"),
    _key("change.window_smaller", "left_square_bracket", "step('draft_window', -1)", "size", show=True),
    _key("change.window_larger", "right_square_bracket", "step('draft_window', 1)", "size", show=True),
    _key("change.layers_window", "W", "toggle_layers_window", "layers", show=True, tooltip="the drafter layers' own window"),
    _key("change.budget_up", "b", "step('tree_budget', 1)", "budget", show=True),
    _key("change.budget_down", "B", "step('tree_budget', -1)", "budget", show=True),
    _key("change.topk_up", "k", "step('tree_topk', 1)", "top-k", show=True),
    _key("change.topk_down", "K", "step('tree_topk', -1)", "top-k", show=True),
    _key("change.speculation", "s", "toggle_speculation", "speculation", show=True),
    _key("operation.apply", "a", "apply", "apply", show=True),
    _key("change.discard", "escape", "discard", "discard"),
    _key("operation.restart", "r", "restart", "restart", show=True, tooltip="start, or restart and confirm"),
    _key("operation.rollback", "u", "rollback", "roll back", show=True),
    _key("operation.stop", "X", "stop", "stop"),
    _key("plot.shorter", "minus", "span(-1)", "shorter span"),
    _key("plot.longer", "plus,equals_sign", "span(1)", "longer span"),
    _key("panel.maximise", "z", "maximise", "maximise"),
    _key("app.explain", "f1", "explain", "what is this"),
    _key("app.quit", "q", "leave", "quit"),
    _key("app.help", "question_mark", "help", "help", show=True),
    _key("app.palette", "colon", "command_palette", "palette", show=True),
]


def check_keymap(keymap: Mapping[str, str], known: frozenset[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The entries of a user's keymap that can be used, and a sentence for each that cannot.

    A ctrl chord alone is refused: it would work on one machine and be swallowed by the multiplexer of the next.
    """
    good: dict[str, str] = {}
    problems: list[str] = []
    for identity, keys in keymap.items():
        words = [key.strip() for key in keys.split(",") if key.strip()]
        if identity not in known:
            problems.append(f"keymap: there is no action {identity}; ? lists them")
        elif not words:
            problems.append(f"keymap: {identity} has no key")
        elif all(word.startswith("ctrl+") for word in words):
            problems.append(f"keymap: {identity} would be on a ctrl chord alone ({keys}); add another key")
        else:
            good[identity] = ",".join(words)
    return good, tuple(problems)


def key_names(key: str) -> str:
    """Keys as people write them: ``left_square_bracket`` is ``[``."""
    return " ".join(_WRITTEN.get(word, word) for word in key.split(","))


_WRITTEN = {
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "minus": "-",
    "plus": "+",
    "equals_sign": "=",
    "question_mark": "?",
    "colon": ":",
    "slash": "/",
    "escape": "esc",
    "f1": "F1",
}
