"""From a host's snapshot to the header's words. Pure: no widget, no clock of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from ..evidence.reading import Known, Reading
from ..formats import age, duration
from ..hosts.service import RunState
from ..hosts.transport import Link, LinkStatus
from ..knobs import KNOBS, PLAIN, Value, find_knob, show_value

if TYPE_CHECKING:
    from ..evidence.engine_log import StartLog
    from ..state import HostState
    from .model import ConsoleModel

STALE_AFTER = 5.0
"""Seconds after which data that should come every second are called old."""


class Tone(Enum):
    """How a fact is coloured; its words say the same."""

    GOOD = "good"
    BUSY = "busy"
    WARN = "warn"
    BAD = "bad"
    QUIET = "quiet"


@dataclass(frozen=True)
class HeaderFacts:
    """What the header says."""

    host: str = ""
    unit: str = ""
    symbol: str = "…"
    state: str = "connecting"
    since: str = ""
    tone: Tone = Tone.QUIET
    engine: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    """Name and value, in the order of importance; the algorithm's name is empty."""
    note: str = ""
    short_note: str = ""
    """The same where there is less room."""
    badge: str = ""
    badge_tone: Tone = Tone.QUIET
    age: str = "no data yet"
    age_tone: Tone = Tone.QUIET


@dataclass(frozen=True)
class DriftBadge:
    """The drift table in two words."""

    words: str = ""
    tone: Tone = Tone.QUIET


def current_value(state: HostState, name: str) -> Value | None:
    """The value to start an edit from: in effect when the engine runs, else as configured, else the engine's default."""
    from ..effective import UNGIVEN, configured, in_effect
    from ..evidence.command import command_reading

    if name not in KNOBS:
        # Any other flag: what the configuration gives is all that is known of it.
        given = None if state.config is None else command_reading(state.config.value.command, find_knob(name))
        return None if given is None or given.known is not Known.VALUE else given.value
    reading = in_effect(state, name)
    if reading.known is not Known.VALUE:
        reading = configured(state, name)
    if reading.known is Known.VALUE:
        return reading.value
    return UNGIVEN.get(name) if reading.known is Known.ABSENT else None


_RUN_WORDS = {
    RunState.STOPPED: ("○", "stopped", Tone.QUIET),
    RunState.STARTING: ("◐", "starting", Tone.BUSY),
    RunState.RUNNING: ("●", "running", Tone.GOOD),
    RunState.STOPPING: ("◑", "stopping", Tone.BUSY),
    RunState.FAILED: ("✗", "failed", Tone.BAD),
    RunState.MISSING: ("∅", "no such unit", Tone.WARN),
    RunState.UNKNOWN: ("?", "unknown", Tone.WARN),
}

_LAST_SEEN = (RunState.RUNNING, RunState.FAILED, RunState.STOPPED)
"""What a start that is ended on purpose may look like at last: it answers no more, and may leave with an error."""


def header_facts(
    state: HostState | None,
    *,
    now: float,
    wall: float,
    drift: DriftBadge,
    busy: str = "",
    ending: str = "",
    problem: str = "",
    host: str = "",
    link: Link | None = None,
) -> HeaderFacts:
    """The header's words.

    Args:
        now: this machine's monotonic clock, for ages.
        wall: seconds since the epoch, for the uptime.
        busy: an operation that runs (``applying``), shown in place of the drift badge.
        ending: what the operation does to the start that the snapshot is of (``restarting``): it is being ended on purpose.
        problem: why the host cannot be watched, in a sentence.
        host: its name, for as long as nothing came from it.
        link: the connection to it; ``None`` for this machine.
    """
    if state is None:
        if problem:
            return HeaderFacts(host=host, symbol="✗", state="not connected", tone=Tone.BAD)
        return HeaderFacts(host=host)
    facts = HeaderFacts(host=state.host, unit=state.unit, badge=drift.words, badge_tone=drift.tone)
    newest = state.newest()
    seconds = None if newest is None else max(0.0, now - newest)
    old = seconds is None or seconds > STALE_AFTER
    facts = replace(facts, age=age(seconds), age_tone=Tone.WARN if old else Tone.GOOD)
    if busy:
        facts = replace(facts, badge=f"▸ {busy}", badge_tone=Tone.BUSY)
    if state.embedded:
        facts = replace(facts, note="embedded engine: a small model on this CPU", short_note="small model on this CPU")
    if state.unread_config:
        facts = replace(facts, note=f"unit file: {_without_path(state)}", short_note="")
    lost = link_words(link, now)
    if lost:
        facts = replace(facts, symbol="✗", state=lost, tone=Tone.BAD, age="stale", age_tone=Tone.BAD)
        # A verdict about a host that nobody sees is no good news.
        facts = facts if busy else replace(facts, badge_tone=Tone.QUIET)
    if state.service is None:
        if lost:
            return facts
        reason = state.problems.get("service", "")
        return replace(facts, symbol="?" if reason else "…", state="unreachable" if reason else "connecting", tone=Tone.WARN)
    service = state.service.value
    symbol, word, tone = _RUN_WORDS[service.state]
    if service.state is RunState.RUNNING and not state.ready:
        # Until the engine has been asked, or its log read, nobody knows whether it loads or answers.
        asked = state.log is not None or "server" in state.problems
        word = loading_words(None if state.log is None else state.log.value) if asked else "running"
        symbol, tone = "◐", Tone.BUSY
        if state.said_ready:
            symbol, word, tone = ("✗", "does not answer", Tone.BAD) if state.silent else ("◐", "running", Tone.BUSY)
        if state.stranger is not None:
            symbol, word, tone = "✗", "another program answers", Tone.BAD
    if ending and not state.ready and service.state in _LAST_SEEN:
        symbol, word, tone = "◑", ending, Tone.BUSY
    since = ""
    if service.state is RunState.RUNNING and service.started_at is not None:
        since = duration(max(0.0, wall - service.started_at))
    elif service.state is RunState.FAILED and not ending:
        since = service.result if service.result != "success" else ""
    settings = _settings(state) if service.state is RunState.RUNNING else ()
    facts = replace(facts, engine=_engine(state), settings=settings)
    return facts if lost else replace(facts, symbol=symbol, state=word, tone=tone, since=since)


def _without_path(state: HostState) -> str:
    """Why the configuration cannot be read, without the long name of its file."""
    path = state.config.value.sources[-1].path if state.config is not None and state.config.value.sources else ""
    return state.unread_config.removeprefix(f"{path}: ")


def link_words(link: Link | None, now: float) -> str:
    """``link lost 12 s ago, trying again in 4 s``; empty while the host can be reached."""
    if link is None or link.status not in (LinkStatus.LOST, LinkStatus.REFUSED):
        return ""
    if link.status is LinkStatus.REFUSED:
        return f"link refused {duration(now - link.since)} ago"
    again = "trying now" if link.next_try is None else f"trying again in {max(0.0, link.next_try - now):.0f} s"
    return f"link lost {duration(now - link.since)} ago, {again}"


def connection_words(model: ConsoleModel, now: float) -> tuple[str, str]:
    """What keeps the host from being watched, in full, and what happens next; two empty texts while it is watched."""
    link = model.link
    if link is not None and link.status is LinkStatus.REFUSED:
        return link.reason, "F5 tries again · 7 other hosts"
    if link is not None and link.status is LinkStatus.LOST:
        return f"The connection was lost: {link.reason}. What is shown is old.", "F5 tries now · 7 other hosts"
    if not model.connection_problem:
        return "", ""
    if model.next_try is None:
        return model.connection_problem, "F5 tries again · 7 other hosts"
    return model.connection_problem, f"trying again in {max(0.0, model.next_try - now):.0f} s · F5 tries now · 7 other hosts"


def loading_words(log: StartLog | None) -> str:
    """``loading: draft runner``: the newest phase that this start's log has reached."""
    if log is None or not log.phases:
        return "loading"
    return f"loading: {list(log.phases)[-1].value}"


def _engine(state: HostState) -> str:
    if state.server is None:
        return ""
    return state.server.value.engine_name


def _settings(state: HostState) -> tuple[tuple[str, str], ...]:
    """The settings in effect; a row of question marks while an engine loads would say nothing."""
    if not any((state.config, state.process, state.server, state.log)):
        return ()
    words = setting_words(state)
    return words if state.ready or any(value != "?" for _, value in words) else ()


def setting_words(state: HostState) -> tuple[tuple[str, str], ...]:
    """The settings in effect as the header writes them; a setting that is not known is a question mark."""
    from ..effective import in_effect

    values = {name: in_effect(state, name) for name in ("algorithm", "tree_budget", "tree_topk", "draft_window", "layers_window")}
    algorithm = values["algorithm"]
    words: list[tuple[str, str]] = [("", _word(algorithm))]
    speculation = in_effect(state, "speculation")
    if speculation.known is Known.VALUE and speculation.value is False:
        words.append(("", "speculation off"))
    if algorithm.known is Known.VALUE and algorithm.value == PLAIN:
        return (("", "plain decoding"),)
    if algorithm.known is not Known.VALUE or algorithm.value == "DDTREE":
        words += [("budget", _word(values["tree_budget"])), ("top-k", _word(values["tree_topk"]))]
    words.append(("compact draft cache", _word(values["draft_window"])))
    return tuple(words)


def _word(reading: Reading) -> str:
    return show_value(reading.value) if reading.known is Known.VALUE else "?"
