"""The rows of the settings table from a snapshot and the change being put together. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..evidence.reading import Known
from ..formats import UNKNOWN
from ..hosts.service import RunState
from ..knobs import KNOBS, Knob, show_value
from .draft import DraftChange
from .facts import current_value
from .widgets.knob_table import KnobRow

if TYPE_CHECKING:
    from ..state import HostState


def takes_hot(state: HostState | None, name: str) -> bool:
    """Whether the engine that runs takes this setting without a restart."""
    return state is not None and state.ready and state.server is not None and name in state.server.value.hot_knobs()


def knob_rows(state: HostState, change: DraftChange) -> list[KnobRow]:
    """All settings of the catalogue, then flags that were edited by name."""
    from ..knobs import find_knob

    names = [*KNOBS, *(name for name in change.values if name not in KNOBS)]
    return [_row(state, change, find_knob(name)) for name in names]


def _row(state: HostState, change: DraftChange, knob: Knob) -> KnobRow:
    now, origin = _now(state, knob)
    edited = knob.name in change.values
    new = show_value(knob.shown(change.values[knob.name])) if edited else now
    if edited:
        hot = takes_hot(state, knob.name)
        running = state.service is not None and state.service.value.state is RunState.RUNNING
        remark = "now, without a restart" if hot else "restart" if running else "at the next start"
        return KnobRow(knob.name, knob.title, now, new, remark, edited=True, hot=hot)
    trained = _trained(state, knob)
    return KnobRow(knob.name, knob.title, now, new, f"{origin} · {trained}" if trained else origin)


def _now(state: HostState, knob: Knob) -> tuple[str, str]:
    """The present value and where it comes from."""
    if knob.name in KNOBS:
        from ..effective import configured, in_effect

        reading = in_effect(state, knob.name)
        if reading.known is Known.VALUE:
            return show_value(reading.value), "engine" if "server_info" in reading.where else reading.where or "log"
        reading = configured(state, knob.name)
        if reading.known is Known.VALUE:
            return show_value(reading.value), "unit file"
        if reading.known is Known.ABSENT:
            return UNKNOWN, f"not set: {knob.default_text}" if knob.default_text else "not set"
        return "?", reading.why or "not read"
    value = current_value(state, knob.name)
    return (UNKNOWN, "not set") if value is None else (show_value(value), "unit file")


def _trained(state: HostState, knob: Knob) -> str:
    if state.drafter is None:
        return ""
    drafter = state.drafter.value
    if knob.name == "draft_window" and drafter.sliding_window:
        return f"trained with {drafter.sliding_window:,}"
    if knob.name == "layers_window":
        return drafter.window_text
    if knob.name == "block_size":
        return f"trained with {drafter.block_size}"
    return ""
