"""The last line of the screen: the keys that do something now, clickable."""

from __future__ import annotations

from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Static

from ..keymap import key_names


class KeyLine(Static):
    """One widget for all keys: what does not fit is left to the help screen, which stands at the right end."""

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
        others = list(
            {active.binding.id: active.binding for active in reversed(bindings) if active.binding.id not in _LAST}.values()
        )
        others.reverse()
        others.sort(key=lambda binding: binding.id == "dialog.leave")  # the way out comes last
        tail = "".join(f"{self._key(binding)} {binding.description}  " for binding in last)
        line = Text(no_wrap=True, end="")
        self._spans = []
        for name, keys in _grouped(others):
            label = "".join(self._key(binding) for binding in keys)
            if line.cell_len + len(label) + len(name) + 4 > width - len(tail):
                break
            self._append(line, keys[0], label, name)
        line.append(" " * max(0, width - len(tail) - line.cell_len))
        for binding in last:
            self._append(line, binding, self._key(binding), binding.description)
        self.update(line)

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


def _grouped(bindings: list[Binding]) -> list[tuple[str, list[Binding]]]:
    """Bindings with the same description stand together: ``b B budget``."""
    groups: dict[str, list[Binding]] = {}
    for binding in bindings:
        groups.setdefault(binding.description, []).append(binding)
    return list(groups.items())
