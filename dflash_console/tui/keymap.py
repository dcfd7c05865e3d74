"""Every key of the console, each with an id by which the configuration file can change it.

No action needs a ctrl chord, because multiplexers and terminals take them. Keys in upper case do the opposite or the bigger
thing of the same letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from textual.binding import Binding, BindingType
from textual.keys import Keys

PANES = {
    "dashboard": "Dashboard",
    "configure": "Configure",
    "truth": "Truth",
    "logs": "Logs",
    "playground": "Playground",
    "hosts": "Hosts",
}
"""The numbered screens: pane id → title, in the order of their numbers."""

NUMBERS = {"dashboard": 1, "configure": 2, "truth": 3, "logs": 4, "playground": 5, "hosts": 7}
"""Pane id → its key. 6 is kept for sweeps."""

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


EDITING_PANES = ("dashboard", "configure", "truth")
"""The numbered screens on which these keys work: they show what is changed."""

OPERATIONS = ("restart", "rollback", "stop")
"""Actions whose keys say on the other screens why they do nothing there: whoever presses one expects the server to change."""


def key_binding(identity: str, key: str, action: str, footer: str, tooltip: str) -> Binding:
    """A key of the console.

    Args:
        identity: by which the configuration file can change it, such as ``log.search``.
        footer: one word for the last line; empty keeps the key out of it.
        tooltip: what it does, in words that stand alone: the help screen, the palette and docs/keys.md show them.
    """
    return Binding(key, action, footer or tooltip, show=bool(footer), id=identity, tooltip=tooltip)


_CACHE = "compact draft cache"
"""Three keys stand under this name in the last line: on or off, and the steps of its size."""

APP_BINDINGS: list[BindingType] = [
    *(
        key_binding(f"screen.{pane}", str(NUMBERS[pane]), f"open_pane('{pane}')", "", f"open {title}")
        for pane, title in PANES.items()
    ),
    key_binding("change.window", "w", "toggle_window", _CACHE, "compact draft cache on or off"),
    key_binding(
        "change.window_smaller", "left_square_bracket", "step('draft_window', -1)", _CACHE, "compact draft cache: a step smaller"
    ),
    key_binding(
        "change.window_larger", "right_square_bracket", "step('draft_window', 1)", _CACHE, "compact draft cache: a step larger"
    ),
    key_binding(
        "change.layers_window", "W", "toggle_layers_window", "layers", "the drafter layers' own window: as trained, or off"
    ),
    key_binding("change.budget_up", "b", "step('tree_budget', 1)", "budget", "tree budget: a step larger"),
    key_binding("change.budget_down", "B", "step('tree_budget', -1)", "budget", "tree budget: a step smaller"),
    key_binding("change.topk_up", "k", "step('tree_topk', 1)", "top-k", "top-k: a step larger"),
    key_binding("change.topk_down", "K", "step('tree_topk', -1)", "top-k", "top-k: a step smaller"),
    key_binding("change.speculation", "s", "toggle_speculation", "speculation", "speculation on or off"),
    key_binding("operation.apply", "a", "apply", "apply", "show the plan of these edits and apply it"),
    # Before what the same key does to the edits.
    key_binding("operation.give_up_plan", "escape", "give_up_plan", "", "give up the plan that is being made"),
    key_binding("change.discard", "escape", "discard", "", "take all edits back"),
    key_binding("operation.restart", "r", "restart", "restart", "start the service, or restart it, and confirm"),
    key_binding("operation.rollback", "u", "rollback", "roll back", "plan a roll-back to the last confirmed configuration"),
    key_binding("operation.stop", "X", "stop", "", "stop the service"),
    key_binding("plot.shorter", "minus", "span(-1)", "", "plots: a shorter span of time"),
    key_binding("plot.longer", "plus,equals_sign", "span(1)", "", "plots: a longer span of time"),
    key_binding("panel.maximise", "z", "maximise", "", "the panel in focus fills the screen, and back"),
    key_binding("app.explain", "f1", "explain", "", "explain the panel in focus"),
    key_binding("app.commands", "exclamation_mark", "command_log", "", "every command that was run on this host"),
    key_binding("app.connect", "f5", "connect", "", "try the connection to the host now"),
    key_binding("app.quit", "q", "leave", "", "quit; engines run on; asks while an operation runs"),
    key_binding("app.help", "question_mark", "help", "help", "the keys that work here"),
    key_binding("app.palette", "colon", "command_palette", "palette", "find any action by its name"),
]


def check_keymap(keymap: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The entries of a user's keymap that can be used, and a sentence for each that cannot.

    A ctrl chord alone is refused: it would work on one machine and be swallowed by the multiplexer of the next.
    """
    good: dict[str, str] = {}
    problems: list[str] = []
    for identity, keys in keymap.items():
        named = [_key_name(key.strip()) for key in keys.split(",") if key.strip()]
        words = [word for word in named if is_key(word)]
        problems += [f"keymap: {identity}: no terminal sends a key called {word}" for word in named if not is_key(word)]
        if not words:
            if not named:
                problems.append(f"keymap: {identity} has no key")
        elif all(word.startswith("ctrl+") for word in words):
            problems.append(f"keymap: {identity} would be on a ctrl chord alone ({keys}); add another key")
        else:
            good[identity] = ",".join(words)
    return good, (*problems, *shared_keys(good, APP_BINDINGS))


def shared_keys(keymap: Mapping[str, str], bindings: Iterable[BindingType]) -> tuple[str, ...]:
    """A sentence for each key that the keymap gives to two of these actions, which are reached from one place."""
    holders: dict[str, list[str]] = {}
    given: set[str] = set()
    for binding in bindings:
        if isinstance(binding, Binding) and binding.id is not None:
            for key in keymap.get(binding.id, binding.key).split(","):
                name = _key_name(key.strip())
                names = holders.setdefault(name, [])
                if binding.id not in names:
                    names.append(binding.id)
                if name not in binding.key.split(","):
                    given.add(name)
    return tuple(
        f"keymap: {key_names(key)} is the key of {' and of '.join(names)}: only one of them can be reached by it"
        for key, names in holders.items()
        if len(names) > 1 and key in given
    )


def _key_name(word: str) -> str:
    """The name by which a key that is written as its character is known: ``[`` is ``left_square_bracket``."""
    return next(iter(Binding.make_bindings([Binding(word, "")]))).key if len(word) == 1 else word


def is_key(name: str) -> bool:
    """Whether there is a key of this name: a character, one of a keyboard's other keys, or either with modifiers."""
    *modifiers, key = name.split("+")
    if not _MODIFIERS.issuperset(modifiers):
        return False
    if len(key) == 1 or key in _KEYS:
        return True
    return any(_key_name(chr(code)) == key for code in _CHARACTERS)


_MODIFIERS = frozenset({"ctrl", "alt", "shift", "super", "hyper", "meta"})
_KEYS = frozenset({"comma", *(key.value for key in Keys if not key.value.startswith("<"))})
_CHARACTERS = (
    *range(0x21, 0x2C),
    *range(0x2D, 0x7F),
    *range(0xA1, 0x180),
    *range(0x2010, 0x2028),
    *range(0x2030, 0x205F),
    0x20AC,
)
"""Whose keys are known by their names: ASCII, the Latin alphabets, punctuation, the euro."""


def editing_panes(keys_of: Callable[[Binding], str]) -> str:
    """The screens on which settings are changed, with their keys: ``Dashboard (1), Configure (2) and Truth (3)``.

    Args:
        keys_of: the keys of a binding as they are now.
    """
    openers = {binding.action: binding for binding in APP_BINDINGS if isinstance(binding, Binding)}
    keys = {pane: key_names(keys_of(openers[f"open_pane('{pane}')"])) for pane in EDITING_PANES}
    names = [f"{PANES[pane]} ({key})" for pane, key in keys.items()]
    return f"{', '.join(names[:-1])} and {names[-1]}"


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
    "exclamation_mark": "!",
    "colon": ":",
    "slash": "/",
    "escape": "esc",
    "f1": "F1",
    "f5": "F5",
}
