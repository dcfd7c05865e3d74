"""The dashboard's newest figures with the words that say where they come from. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..evidence.rates import FAST_S, Rates
from ..formats import clock
from ..hosts.service import ENDED, RunState

if TYPE_CHECKING:
    from ..state import HostState


@dataclass(frozen=True)
class LiveFigures:
    """What the dashboard shows of one snapshot, apart from the plots' history."""

    rates: Rates = field(default_factory=Rates)
    """All unknown while the engine is not there to have any."""
    decode: float | None = None
    decode_note: str = ""
    decode_source: str = ""
    commit: float | None = None
    commit_stale: bool = False
    commit_note: str = ""
    commit_source: str = ""


def live_figures(state: HostState, busy: str = "", ending: str = "") -> LiveFigures:
    """The newest figures with the words that say where they come from.

    Args:
        busy: the operation that runs, in a word.
        ending: the same while it ends the start that the snapshot is of.
    """
    down = _why_no_figures(state, busy, ending)
    rates = Rates() if down else state.rates
    decode_source = f"{rates.decode_source} · over {FAST_S:.0f} s" if rates.decode_source else "no source yet"
    if rates.decode_tok_s and rates.decode_gauge_tok_s and rates.running:
        off = abs(rates.decode_gauge_tok_s - rates.decode_tok_s) / rates.decode_tok_s
        decode_source += f" · gauge {rates.decode_gauge_tok_s:.0f}" if off > 0.05 else f" · gauge agrees within {off * 100:.0f} %"
    commit_source = rates.commit_source or "tokens ÷ verify calls of finished requests"
    return LiveFigures(
        rates=rates,
        decode=rates.decode_tok_s,
        decode_note=down or ("idle" if rates.running == 0 and not rates.decode_tok_s else ""),
        decode_source=decode_source,
        commit=rates.commit_length,
        commit_stale=rates.commit_stale,
        commit_note=down
        or _last_known(rates)
        or ("none since the change" if rates.changed and rates.commit_length is None else ""),
        commit_source=commit_source,
    )


def _last_known(rates: Rates) -> str:
    """Of how many verifies an old commit length is: after a change it may be the one of the prompt that proved it."""
    if not rates.commit_stale or rates.commit_length is None:
        return ""
    verifies = sum(rates.accept_histogram)
    return f"last known, of {verifies:,} {'verify' if verifies == 1 else 'verifies'}" if verifies else "last known"


def counted_words(rates: Rates) -> tuple[str, ...]:
    """Which verifies the histogram counts, in words that follow their number: in full first, then shorter and shorter."""
    if rates.accept_since is not None:
        since = clock(rates.accept_since)
        briefly = f" since {clock(rates.accept_since, seconds=False)}"
        return (*((f" since the change at {since}",) if rates.changed else ()), f" since {since}", briefly)
    return (", last busy minute", ", busy minute") if rates.commit_stale else (", last minute",)


def uncounted_words(rates: Rates) -> str:
    """What an empty histogram says."""
    anew = f"none since the change at {clock(rates.accept_since)}" if rates.changed and rates.accept_since is not None else ""
    return f"{anew or 'none yet'}: p runs a prompt"


_DOWN = {
    RunState.STOPPED: "the engine is stopped: r starts it",
    RunState.FAILED: "the engine failed: 4 shows its log, r starts it",
    RunState.MISSING: "there is no such unit on this host",
    RunState.STARTING: "the engine starts",
    RunState.STOPPING: "the engine stops",
}


def _why_no_figures(state: HostState, busy: str, ending: str) -> str:
    """What keeps the engine from giving figures; empty when it runs."""
    if state.service is None:
        return ""
    if busy and state.service.value.state in (RunState.STOPPED, RunState.FAILED):
        # It is being seen to: a key that starts it would be refused now.
        return f"{busy} …"
    if ending and not state.ready:
        return f"{ending} …"
    if state.service.value.state is RunState.RUNNING:
        if state.stranger is not None:
            return "another program answers: 3 says which"
        return "" if state.ready else _why_no_answer(state)
    if state.stranger is not None and state.service.value.state in ENDED:
        return f"{state.service.value.state.value}; its port is taken (see 3)"
    return _DOWN.get(state.service.value.state, "")


def _why_no_answer(state: HostState) -> str:
    """Why a running engine gives no figures: as the header, it is not said to load before it was asked or its log was read."""
    if state.said_ready:
        return "the engine does not answer" if state.silent else "asking the engine"
    return "the engine loads" if state.log is not None or "server" in state.problems else "asking the engine"
