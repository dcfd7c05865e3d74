"""The last line of the screen: the keys that do something now, clickable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.binding import ActiveBinding, Binding
from textual.screen import Screen
from textual.widgets import Static

from ..keymap import key_names


@dataclass(frozen=True)
class _Keys:
    """Keys that stand under one name."""

    label: str
    """``bB``."""
    name: str
    first: Binding
    """The one that a click on them presses."""
    need: int
    """The smaller, the longer they stay where there is no room for all."""

    @property
    def cells(self) -> int:
        return cell_len(f"{self.label} {self.name}  ")


class KeyLine(Static):
    """One widget for all keys. What does not fit, the least needed first, is left to the help screen, which stands at the end."""

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._spans: list[tuple[int, int, str]] = []

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)
        self.call_after_refresh(self.redraw)

    def _bindings_changed(self, screen: Screen[object]) -> None:
        self.redraw()

    def on_resize(self) -> None:
        self.redraw()

    def redraw(self) -> None:
        """Write the keys anew from the screen's active bindings."""
        if not self.is_attached or self.size.width < 10:
            return
        width = self.size.width
        bindings = [
            active
            for active in self.screen.active_bindings.values()
            if active.binding.show and active.enabled and not self._is_typed(active.binding.key)
        ]
        last = [active.binding for active in bindings if active.binding.group is None and active.binding.id in _LAST]
        others = list({active.binding.id: active for active in reversed(bindings) if active.binding.id not in _LAST}.values())
        others.reverse()
        others.sort(key=lambda active: active.binding.id == "dialog.leave")  # the way out comes last
        tail = "".join(f"{self._key(binding)} {binding.description}  " for binding in last)
        line = Text(no_wrap=True, end="")
        self._spans = []
        for keys in _fitting(self._grouped(others), width - len(tail) - 1):
            self._append(line, keys.first, keys.label, keys.name)
        line.append(" " * max(0, width - len(tail) - line.cell_len))
        for binding in last:
            self._append(line, binding, self._key(binding), binding.description)
        self.update(line)

    def _grouped(self, shown: Sequence[ActiveBinding]) -> list[_Keys]:
        """Bindings with the same description stand together: ``b B budget``."""
        groups: dict[str, list[ActiveBinding]] = {}
        for active in shown:
            groups.setdefault(active.binding.description, []).append(active)
        needed = {identity for active in shown for identity in getattr(active.node, "needed_keys", ())}
        return [
            _Keys("".join(self._key(active.binding) for active in keys), name, keys[0].binding, self._need(keys[0], needed))
            for name, keys in groups.items()
        ]

    def _need(self, active: ActiveBinding, needed: set[str]) -> int:
        identity = active.binding.id or ""
        if identity in _ALWAYS:
            return 0
        if identity in _SELDOM:
            return 4
        if active.node is not self.app:
            return 1
        return 2 if identity in needed else 3

    def _is_typed(self, key: str) -> bool:
        """Whether the field in focus takes the key as text; Textual asks it about letters, not about ``plus`` and the like."""
        focused, written = self.screen.focused, key_names(key)
        return focused is not None and len(written) == 1 and focused.check_consume_key(key, written)

    def _append(self, line: Text, binding: Binding, label: str, description: str) -> None:
        start = line.cell_len
        line.append(" " if start == 0 else "")
        line.append(label, style=f"bold {self.app.theme_variables.get('accent', '')}")
        line.append(f" {description}  ")
        self._spans.append((start, line.cell_len - 1, binding.key))

    def _key(self, binding: Binding) -> str:
        return self.app.get_key_display(binding)

    def on_click(self, event: events.Click) -> None:
        """A click on a key's name does what the key does."""
        for start, end, key in self._spans:
            if start <= event.x < end:
                self.app.simulate_key(key)
                return


_LAST = frozenset({"app.help", "app.palette"})
_ALWAYS = frozenset({"dialog.leave", "operation.apply", "prompt.stop"})
"""The way out, and what is waited for once there is something to apply or to stop."""
_SELDOM = frozenset({"change.layers_window", "change.speculation", "settings.save_profile"})
_SHORTER = {"compact draft cache": "draft cache", "stop the prompt": "stop"}
"""Names that are written shorter before a key is left out."""


def _fitting(keys: Sequence[_Keys], cells: int) -> list[_Keys]:
    """What has room in so many cells, in its order: the screen's own keys before the console's, see :meth:`KeyLine._need`."""
    if sum(one.cells for one in keys) > cells:
        keys = [replace(one, name=_SHORTER.get(one.name, one.name)) for one in keys]
    chosen: set[int] = set()
    for index in sorted(range(len(keys)), key=lambda index: keys[index].need):
        if keys[index].cells <= cells:
            cells -= keys[index].cells
            chosen.add(index)
    return [one for index, one in enumerate(keys) if index in chosen]
