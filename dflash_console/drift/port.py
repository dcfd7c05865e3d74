"""The row of the engine's port: there when another program has it."""

from __future__ import annotations

from ..evidence.reading import Known, Reading
from ..knobs import Source
from ..state import HostState, RunState
from .verdicts import PORT, DriftKind, TruthRow, Verdict


def port_rows(state: HostState) -> list[TruthRow]:
    """One row while another program listens where the unit's engine should. Beside a unit that was stopped it is something to
    know; beside one that runs or failed, what answers contradicts what the service manager says."""
    if state.stranger is None:
        return []
    stranger = state.stranger.value
    stopped = state.service is None or state.service.value.state in (RunState.STOPPED, RunState.MISSING)
    absent = {source: Reading(Known.ABSENT, why="is no setting") for source in Source}
    verdict = Verdict.NOTE if stopped and not stranger.beside else Verdict.DRIFT
    message = f"{stranger.sentence}; no prompt is sent to it, and nothing that it says is taken for this unit's"
    return [TruthRow(PORT, "Engine's port", absent, verdict, message, kind=DriftKind.STRANGER)]
