"""The row of the engine's port: there when another program has it."""

from __future__ import annotations

from ..evidence.reading import Known, Reading
from ..knobs import Source
from ..state import HostState, RunState
from .verdicts import PORT, DriftKind, TruthRow, Verdict


def port_verdict(state: HostState) -> Verdict:
    """What another program on the engine's port comes to, wherever it is said; ``OK`` = none is seen.

    Beside a unit that runs or failed it is drift: who asks the engine is answered by somebody else. Beside a unit that was
    stopped it is a note: two units may share a port in turns, and a check that calls that drift would never be quiet. It is said
    all the same, because the next start needs the port.
    """
    if state.stranger is None:
        return Verdict.OK
    stopped = state.service is None or state.service.value.state in (RunState.STOPPED, RunState.MISSING)
    return Verdict.NOTE if stopped and not state.stranger.value.beside else Verdict.DRIFT


def port_rows(state: HostState) -> list[TruthRow]:
    """One row while another program listens where the unit's engine should."""
    if state.stranger is None:
        return []
    absent = {source: Reading(Known.ABSENT, why="is no setting") for source in Source}
    message = f"{state.stranger.value.sentence}; no prompt is sent to it, and nothing that it says is taken for this unit's"
    return [TruthRow(PORT, "Engine's port", absent, port_verdict(state), message, kind=DriftKind.STRANGER)]
