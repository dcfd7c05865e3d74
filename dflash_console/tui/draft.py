"""The change that is being put together on the screen: settings edited, nothing written yet. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..knobs import Knob, Value, find_knob, same_value, show_value


@dataclass(frozen=True)
class DraftChange:
    """Edits by setting, each against the value it had when it was first touched."""

    values: Mapping[str, Value] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values)

    def with_value(self, name: str, value: Value, now: Value | None) -> DraftChange:
        """Set one setting; going back to the value it has now takes the edit away."""
        values = {key: old for key, old in self.values.items() if key != name}
        if not same_value(value, now):
            values[name] = value
        return DraftChange(values)

    def without(self, name: str) -> DraftChange:
        return DraftChange({key: value for key, value in self.values.items() if key != name})

    def wanted(self, name: str, now: Value | None) -> Value | None:
        """The edited value, or the present one."""
        return self.values.get(name, now)


def step(knob: Knob, value: Value | None, direction: int, extra: tuple[Value, ...] = ()) -> Value | None:
    """The next value up (``direction`` 1) or down (−1) on the setting's ladder; ``None`` when there is none.

    A value between two rungs goes to the nearer rung in that direction; words (``off``, ``config``) stand below all numbers.
    ``extra`` adds rungs: the window that the drafter was trained with.
    """
    words = [rung for rung in knob.steps if isinstance(rung, str)]
    numbers = sorted({rung for rung in (*knob.steps, *extra) if isinstance(rung, (int, float)) and not isinstance(rung, bool)})
    ladder: list[Value] = [*words, *numbers]
    if not ladder:
        return None
    if value is None:
        return numbers[0] if numbers else ladder[0]
    rank = ladder.index(value) if value in ladder else None
    if rank is not None:
        target = rank + direction
        return ladder[target] if 0 <= target < len(ladder) else None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        above = [number for number in numbers if number > value]
        below = [number for number in numbers if number < value]
        if direction > 0:
            return above[0] if above else None
        return below[-1] if below else (words[-1] if words else None)
    return numbers[0] if numbers and direction > 0 else None


def toggle_window(now: Value | None, remembered: Value | None, trained: int | None, knob: Knob) -> Value:
    """``w``: off when it is on; on with the size it had last, else the trained one, else the second rung."""
    if now not in (None, "off"):
        return "off"
    if remembered not in (None, "off"):
        assert remembered is not None
        return remembered
    if trained:
        return trained
    sizes = [rung for rung in knob.steps if isinstance(rung, int)]
    return sizes[0]


def words(change: DraftChange, now: Mapping[str, Value | None]) -> str:
    """``tree budget 8 → 16 · top-k 4 → 8``; secrets masked."""
    parts = []
    for name, value in change.values.items():
        knob = find_knob(name)
        parts.append(f"{knob.title.lower()} {show_value(knob.shown(now.get(name)))} → {show_value(knob.shown(value))}")
    return " · ".join(parts)


def value_words(values: Mapping[str, Value]) -> str:
    """``tree budget 16 · top-k 4``; secrets masked."""
    knobs = {name: find_knob(name) for name in values}
    return " · ".join(f"{knob.title.lower()} {show_value(knob.shown(values[name]))}" for name, knob in knobs.items())
