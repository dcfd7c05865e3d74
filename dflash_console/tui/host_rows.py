"""From a host at a glance to the words of its row. Pure: no widget, no clock of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .. import formats
from ..hosts.transport import LinkStatus
from .facts import DriftBadge, Tone, header_facts, link_words
from .fleet import HostView, Look

if TYPE_CHECKING:
    from ..state import HostState


@dataclass(frozen=True)
class HostRow:
    """The words of one row."""

    symbol: str
    state: str
    tone: Tone
    engine: str = ""
    settings: str = ""
    decode: str = formats.UNKNOWN
    commit: str = formats.UNKNOWN
    drift: DriftBadge = field(default_factory=DriftBadge)
    link: str = ""
    age: str = ""
    stale: bool = False


def host_row(view: HostView, *, now: float, wall: float) -> HostRow:
    """What a row says.

    Args:
        now: this machine's monotonic clock, for ages.
        wall: seconds since the epoch, for the uptime.
    """
    if view.state is None:
        return _unseen(view)
    facts = header_facts(view.state, now=now, wall=wall, drift=view.drift)
    lost = link_words(view.link, now)
    failed = view.look is Look.FAILED
    rates = view.state.rates
    return HostRow(
        symbol="✗" if lost or failed else facts.symbol,
        state="link lost" if lost else "not reached" if failed else f"{facts.state} {facts.since}".strip(),
        tone=Tone.BAD if lost or failed else facts.tone,
        engine=facts.engine,
        settings=short_settings(facts.settings),
        decode=formats.tokens_per_second(rates.decode_tok_s) if view.state.ready else formats.UNKNOWN,
        commit=formats.commit_length(rates.commit_length) if view.state.ready else formats.UNKNOWN,
        drift=view.drift,
        link=_link(view),
        age=_age(view.state, now),
        stale=bool(lost) or failed or facts.age_tone is not Tone.GOOD,
    )


def _unseen(view: HostView) -> HostRow:
    if view.look is Look.FAILED:
        word = "has a question" if view.needs_answer else "not reached"
        return HostRow("?" if view.needs_answer else "✗", word, Tone.WARN if view.needs_answer else Tone.BAD, link="none")
    word = "connecting" if view.look is Look.CONNECTING else view.look.value
    return HostRow("…", word, Tone.QUIET)


def _link(view: HostView) -> str:
    if view.link is None:
        return "this machine" if not view.address else ""
    return {LinkStatus.UP: "connected", LinkStatus.NEW: "connecting"}.get(view.link.status, view.link.status.value)


def _age(state: HostState, now: float) -> str:
    newest = state.newest()
    return "" if newest is None else formats.age(max(0.0, now - newest))


def short_settings(settings: tuple[tuple[str, str], ...]) -> str:
    """``DDTREE b8 k4 w2048``: the header's settings where there is little room."""
    letters = {"budget": "b", "top-k": "k", "compact draft cache": "w"}
    words = []
    for name, value in settings:
        if not name:
            words.append(value)
        elif name in letters:
            words.append(f"{letters[name]}{'' if value[:1].isdigit() else ' '}{value}")
    return " ".join(words)


def detail_lines(view: HostView, *, now: float) -> list[tuple[str, Tone]]:
    """What stands under the chosen row."""
    place = view.address or "this machine"
    unit = view.unit or (view.state.unit if view.state is not None else "")
    parts = [place, f"unit {unit}" if unit else "its unit is searched for", *([view.note] if view.note else [])]
    if not view.configured:
        parts.append("not in the configuration file: n adds it")
    lines = [(" · ".join(parts), Tone.QUIET)]
    if lost := link_words(view.link, now):
        lines.append((f"{lost}: {view.link.reason}" if view.link is not None and view.link.reason else lost, Tone.BAD))
    if view.problem:
        advice = " enter opens it and asks." if view.needs_answer else ""
        stop = "" if view.problem.endswith((".", "?", "!")) else "."
        lines.append((f"{view.problem}{stop}{advice}", Tone.WARN if view.needs_answer else Tone.BAD))
    if view.state is not None:
        lines += [(f"{source}: {problem}", Tone.WARN) for source, problem in list(view.state.all_problems.items())[:2]]
    return lines
