"""``?``: the keys that work here; F1: what the panel in focus shows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding

from ..keymap import key_names
from ..topics import topic
from .dialog import Dialog, ScrollText


class ExplainScreen(Dialog[None]):
    """Definitions for the panel in focus."""

    def __init__(self, name: str) -> None:
        self._topic = topic(name)
        super().__init__(self._topic.title)

    def compose_body(self) -> ComposeResult:
        yield ScrollText(Text(self._topic.text), id="explanation")


class HelpScreen(Dialog[None]):
    """All keys that work on the screen below, grouped by what they are about."""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        super().__init__("Keys")
        self._keys = list(bindings)

    def compose_body(self) -> ComposeResult:
        yield ScrollText(Text(), id="keys")

    def on_mount(self) -> None:
        if not self.has_parts:
            return
        self.query_one(ScrollText).show_text(keys_text(self._keys, names=self.app.size.width >= ROOMY))


_GROUPS = {
    "screen": "Screens",
    "change": "Change settings",
    "operation": "Apply",
    "plot": "Plots",
    "panel": "Panels",
    "prompt": "Prompts",
    "settings": "Settings",
    "truth": "Truth",
    "log": "Log",
    "playground": "Playground",
    "hosts": "Hosts",
    "app": "Console",
}


ROOMY = 96
"""Columns from which a key's name in the configuration file has room beside what it does."""


def keys_text(bindings: list[Binding], *, names: bool) -> Text:
    """The keys by group in the order of ``bindings``, each with what it does.

    Args:
        names: show the ids too, by which the configuration file can change the keys.
    """
    text = Text()
    groups = dict.fromkeys(str(binding.id).split(".", 1)[0] for binding in bindings if binding.id)
    for group, title in ((group, _GROUPS[group]) for group in groups if group in _GROUPS):
        rows: dict[str, Binding] = {}
        keys: dict[str, list[str]] = {}
        for binding in bindings:
            if binding.id and binding.id.split(".", 1)[0] == group:
                rows.setdefault(binding.id, binding)
                keys.setdefault(binding.id, []).append(key_names(binding.key))
        if not rows:
            continue
        text.append(f"{title}\n", style="bold")
        column = max(9, *(len(" ".join(written)) + 2 for written in keys.values()))
        for identity, binding in rows.items():
            text.append(f"  {' '.join(keys[identity]):<{column}}", style="bold")
            text.append(f"{binding.tooltip or binding.description:<56} " if names else f"{binding.tooltip}")
            text.append(f"{identity}\n" if names else "\n", style="dim")
        text.append("\n")
    text.append(
        "In a text field printable keys type; escape leaves it. Keys can be changed in the configuration file:\n", style="dim"
    )
    text.append('[keymap]\n"change.budget_up" = "b"\n', style="dim")
    return text
