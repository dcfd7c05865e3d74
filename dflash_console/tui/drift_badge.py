"""The drift table in two words, for the header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hosts.service import ENDED, RunState
from .facts import DriftBadge, Tone

if TYPE_CHECKING:
    from ..state import HostState


def drift_evidence(state: HostState) -> tuple[object, ...]:
    """What the verdict stands on: while it stays equal, so does the verdict. Most lines of a log and most answers of an engine
    repeat what is known, and judging takes milliseconds."""
    parts = (state.service, state.config, state.process, state.server, state.drafter, state.stranger)
    holders = None if state.gpu_holders is None else state.gpu_holders.value
    # Why a source cannot be read is said beside what it says.
    unread = tuple(state.problems.get(source, "") for source in ("config", "process", "server", "log", "drafter"))
    known = (state.ready, state.unread_config, unread, holders, *(None if part is None else part.value for part in parts))
    if state.log is None:
        return known
    log = state.log.value
    unreported = sum(point.number > state.report_after for point in log.hot_changes)
    # The phases' milestones name their lines, and the fold keeps what did not change, so most of this is compared by identity.
    said = (log.values, log.confirmation, log.server_args, log.phases, log.warnings, log.hot_changes, log.decode, log.draft_kv)
    return (*known, *said, unreported)


def drift_badge(state: HostState) -> DriftBadge:
    """``✓ confirmed`` when every row that can be judged is fine and the log of this start proves it.

    The proof is the confirmation line; plain decoding prints none, and is proven where the log names the algorithm.
    """
    if state.stranger is not None:
        return _port_badge(state)
    if state.service is None:
        return DriftBadge()
    run = state.service.value.state
    if run not in ENDED and not (run is RunState.RUNNING and state.ready):
        return DriftBadge()
    from ..drift import DriftKind, drift_items, truth_table
    from ..knobs import PLAIN, Source

    table = truth_table(state)
    items = drift_items(table)
    if items and all(row.kind is DriftKind.HOT_NOT_WRITTEN for row in items):
        return DriftBadge(f"! {len(items)} unwritten", Tone.WARN)
    if items:
        return DriftBadge(f"✗ {len(items)} drift", Tone.BAD)
    if state.unread_config:
        return DriftBadge("? unit file", Tone.WARN)
    if run in ENDED:
        return DriftBadge()
    log = None if state.log is None else state.log.value
    algorithm = table.row("algorithm")
    plain = algorithm is not None and algorithm.readings[Source.LOG].value == PLAIN
    if log is None or (log.confirmation is None and not plain):
        return DriftBadge("? not confirmed", Tone.WARN)
    return DriftBadge("✓ confirmed", Tone.GOOD)


def _port_badge(state: HostState) -> DriftBadge:
    from ..drift import Verdict, port_verdict

    drifts = port_verdict(state) is Verdict.DRIFT
    return DriftBadge("✗ port taken", Tone.BAD) if drifts else DriftBadge("! port taken", Tone.WARN)
