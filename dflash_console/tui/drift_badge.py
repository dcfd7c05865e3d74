"""The drift table in two words, for the header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hosts.service import RunState
from .facts import DriftBadge, Tone

if TYPE_CHECKING:
    from ..state import HostState


def drift_badge(state: HostState) -> DriftBadge:
    """``✓ confirmed`` when every row that can be judged is fine and the log of this start proves it."""
    if state.service is None or state.service.value.state is not RunState.RUNNING or not state.ready:
        return DriftBadge()
    from ..drift import DriftKind, drift_items, truth_table

    table = truth_table(state)
    items = [row for row in drift_items(table) if row.kind is not DriftKind.FOLLOWS]
    if items and all(row.kind is DriftKind.HOT_NOT_WRITTEN for row in items):
        return DriftBadge(f"! {len(items)} unwritten", Tone.WARN)
    if items:
        return DriftBadge(f"✗ {len(items)} drift", Tone.BAD)
    log = None if state.log is None else state.log.value
    if log is None or log.confirmation is None:
        return DriftBadge("? not confirmed", Tone.WARN)
    return DriftBadge("✓ confirmed", Tone.GOOD)
