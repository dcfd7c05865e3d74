"""The log of a start as a few sentences: what happened, in the order in which it happened. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..evidence.terminal_text import clean_line
from ..evidence.values import whole
from ..formats import duration, short_seconds
from .model import mark_words

if TYPE_CHECKING:
    from ..evidence.engine_log import LogValue, PhaseMark, StartLog


@dataclass(frozen=True)
class EventWords:
    """One log event as a sentence."""

    at: float | None
    words: str
    tone: str = ""
    """``""``, ``success``, ``warning`` or ``error``: a theme colour; the words say it too."""
    number: int = 0
    """Its line in the log of this start."""


def event_words(log: StartLog) -> tuple[EventWords, ...]:
    """The events of one start, oldest first. Bounded, because the fold is."""
    from ..evidence.acceptance import acceptance_finding
    from ..evidence.engine_log import Phase

    started = log.phases[Phase.PROCESS_UP].at if Phase.PROCESS_UP in log.phases else None
    events = [
        EventWords(mark.at, _phase_words(mark, started, log.values), _phase_tone(mark), mark.number)
        for mark in log.phases.values()
    ]
    for point in log.hot_changes:
        change = point.change
        if change.accepted and not change.differs:
            events.append(EventWords(point.at, f"{mark_words(change.name, change.new)}: set again, as it was", "", point.number))
        elif change.accepted:
            words = f"{mark_words(change.name, change.new)} (was {_old(change.name, change.old)}): changed while running"
            events.append(EventWords(point.at, words, "success", point.number))
        else:
            words = f"change refused: {mark_words(change.name, change.new)}" + (f": {change.reason}" if change.reason else "")
            events.append(EventWords(point.at, words, "warning", point.number))
    for remark in log.warnings:
        if remark.kind is not None and remark.kind.value != "change refused":
            events.append(EventWords(remark.at, f"{remark.kind.value}: {clean_line(remark.text)}", "warning", remark.number))
    block = log.values.get("block_size")
    acceptance = acceptance_finding(log.decode, whole(block.text) if block is not None else None)
    if acceptance is not None:
        events.append(EventWords(acceptance.at, acceptance.words, "warning", acceptance.first_line))
    for error in log.errors:
        events.append(EventWords(error.at, clean_line(error.text), "error", error.number))
    return tuple(sorted(events, key=lambda event: event.number))


def _old(name: str, value: str) -> str:
    return mark_words(name, value).rsplit(" ", 1)[1]


def _phase_tone(mark: PhaseMark) -> str:
    return "success" if mark.phase.name in ("READY", "DRAFT_RUNNER") else ""


def _phase_words(mark: PhaseMark, started: float | None, values: Mapping[str, LogValue]) -> str:
    took = f" in {short_seconds(mark.seconds)}" if mark.seconds is not None else ""
    match mark.phase.name:
        case "PROCESS_UP":
            return "process up"
        case "TARGET_WEIGHTS":
            return f"target weights loaded{took}"
        case "DRAFT_WEIGHTS":
            return f"drafter's weights loaded{took}"
        case "DRAFT_RUNNER":
            return f"draft runner: {confirmed_words(values)} (confirmed, log line {mark.number})"
        case "KV_POOL":
            return "KV pool allocated"
        case "GRAPHS":
            return f"CUDA graphs captured{took}"
        case "READY":
            after = f" after {duration(mark.at - started)}" if mark.at is not None and started is not None else ""
            return f"ready{after}"
        case _:
            return "first verify"


_SHOWN = (
    ("draft_window_size", "compact draft cache"),
    ("layers_window", "layers' window"),
    ("tree_budget", "budget"),
    ("tree_topk", "top-k"),
)


def confirmed_words(values: Mapping[str, LogValue]) -> str:
    """``compact draft cache 512, layers' window 512, budget 8, top-k 4`` from a confirmation line's values."""
    parts = [f"{title} {'off' if values[key].text == 'None' else values[key].text}" for key, title in _SHOWN if key in values]
    if "compact_cache" in values:
        on, size = values["compact_cache"].text == "True", values.get("draft_window_size")
        if size is None:
            parts.insert(0, f"compact draft cache {'on' if on else 'off'}")
        elif on is (size.text in ("None", "0")):
            # A line that contradicts itself is shown as it is.
            parts.insert(1, f"in use {'on' if on else 'off'}")
    return ", ".join(parts) or "started"
