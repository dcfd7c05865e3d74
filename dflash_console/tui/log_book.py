"""The log as a screen holds it: bounded, cleaned, classified; bars as one line, tracebacks folded. Pure.

Remote text is text: escapes are stripped here and nothing of it is ever read as markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum

from ..evidence.journal import LogLine
from ..evidence.log_events import (
    AccessLine,
    DDTreeWorker,
    DecodeBatch,
    DraftRunner,
    EngineWarning,
    ErrorLine,
    HotChange,
    PrefillBatch,
    Ready,
    TracebackStart,
)
from ..evidence.log_lines import read_events
from ..evidence.secrets import mask_text
from ..evidence.terminal_text import Progress, clean_line

_STAMP = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?P<rank>[^\]]*)\] ")

LIMIT = 20_000
"""Entries kept; the oldest go first."""
CUT = 2_000
"""Characters of a line that are shown; the engine's first line lists hundreds of flags."""


class Level(IntEnum):
    """How much a line matters."""

    REQUEST = 0
    """HTTP requests, this console's own questions among them: several a second."""
    BATCH = 1
    """Prefill and decode lines."""
    INFO = 2
    WARNING = 3
    ERROR = 4


class Kind(Enum):
    """What a line is, as far as the screen treats it apart."""

    PLAIN = "plain"
    CONFIRMATION = "confirmation"
    MILESTONE = "milestone"
    PROGRESS = "progress"
    TRACEBACK = "traceback"
    GAP = "gap"
    MANAGER = "manager"


@dataclass(frozen=True)
class LogEntry:
    """One row of the log, or a traceback with its rows folded in."""

    text: str
    level: Level
    kind: Kind
    at: float | None
    number: int | None
    invocation_id: str | None = None
    folded: tuple[str, ...] = ()
    """Further lines of a traceback; shown when it is opened."""
    rank: int | None = None
    """Tensor-parallel rank, where the line names one."""


_TRACEBACK_MORE = re.compile(r"^(\s|Traceback|During handling|The above exception|[\w.]+(Error|Exception|Interrupt|Exit)\b)")
_RAISED = re.compile(r"^[\w.]+(Error|Exception|Interrupt|Exit)\b")


class LogBook:
    """Entries in the order of the log. ``dropped`` counts those that went at the front, so that a view can stand still."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self.entries: list[LogEntry] = []
        self.dropped = 0
        self.changed_from = 0
        """Absolute number of the first entry that is new or another since somebody set this: where a view has to read on."""
        self._bar: int | None = None
        """Absolute number of the entry that shows the moving bar."""
        self._open_traceback = False

    @property
    def end(self) -> int:
        """Absolute number of the next entry."""
        return self.dropped + len(self.entries)

    def clear(self) -> None:
        """Forget everything (another start, or another source, is read from now on)."""
        self.entries.clear()
        self.dropped = self.changed_from = 0
        self._bar = None
        self._open_traceback = False

    def add_all(self, lines: Iterable[LogLine]) -> None:
        for line in lines:
            self.add(line)
        extra = len(self.entries) - self._limit
        if extra > 0:
            del self.entries[:extra]
            self.dropped += extra

    def add(self, line: LogLine) -> None:
        """Append a line; a bar's next state replaces its last one, a traceback's next line goes into its fold."""
        if line.origin == "gap":
            self._append(LogEntry("… lines are missing here …", Level.WARNING, Kind.GAP, line.at, None, line.invocation_id))
            return
        if line.origin == "manager":
            self._append(LogEntry(_one_row(line.text), _priority(line), Kind.MANAGER, line.at, None, line.invocation_id))
            return
        text = _one_row(line.text)
        if self._open_traceback and self._continue_traceback(text):
            return
        if not text:
            return
        reads = read_events(line.text)
        event = reads[-1].event if reads else None
        rank = reads[-1].rank.tp if reads else None
        if isinstance(event, Progress):
            self._move_bar(LogEntry(bar_words(event), Level.INFO, Kind.PROGRESS, line.at, line.number, line.invocation_id), event)
            return
        level, kind = _classify(event, line)
        self._append(LogEntry(text, level, kind, line.at, line.number, line.invocation_id, rank=rank))
        self._open_traceback = kind is Kind.TRACEBACK

    def _change(self, index: int, entry: LogEntry) -> None:
        self.entries[index] = entry
        self.changed_from = min(self.changed_from, self.dropped + index)

    def _append(self, entry: LogEntry) -> None:
        self.entries.append(entry)
        self._open_traceback = False

    def _continue_traceback(self, text: str) -> bool:
        if not text or _TRACEBACK_MORE.match(text):
            last = self.entries[-1]
            head = last.text
            if _RAISED.match(text):
                head = f"{last.text.split(' ▸ ')[0]} ▸ {text}"
            self._change(len(self.entries) - 1, replace(last, text=head[:CUT], folded=(*last.folded, text)[-200:]))
            return True
        self._open_traceback = False
        return False

    def _move_bar(self, entry: LogEntry, bar: Progress) -> None:
        index = None if self._bar is None else self._bar - self.dropped
        if index is not None and 0 <= index < len(self.entries):
            self._change(index, entry)
        else:
            self._append(entry)
            self._bar = self.end - 1
        if bar.finished:
            self._bar = None

    def ranks(self) -> tuple[int, ...]:
        """The tensor-parallel ranks that entries name, in order."""
        return tuple(sorted({entry.rank for entry in self.entries if entry.rank is not None}))

    def confirmation(self) -> int | None:
        """Index of the newest confirmation line."""
        for index in range(len(self.entries) - 1, -1, -1):
            if self.entries[index].kind is Kind.CONFIRMATION:
                return index
        return None


def _one_row(text: str) -> str:
    """A stored line as one row to show: cleaned, masked, cut; a message of several lines has its ends marked."""
    return " ⏎ ".join(mask_text(_without_stamp(clean_line(text)))[:CUT].splitlines())


def _without_stamp(text: str) -> str:
    """The line without the engine's own date and time, which stand beside it already; its rank stays."""
    match = _STAMP.match(text)
    if match is None:
        return text
    rank = match["rank"].strip()
    return (f"[{rank}] " if rank else "") + text[match.end() :]


def _priority(line: LogLine) -> Level:
    return Level.ERROR if line.priority <= 3 else Level.WARNING if line.priority == 4 else Level.INFO


def _classify(event: object, line: LogLine) -> tuple[Level, Kind]:
    match event:
        case DraftRunner() | DDTreeWorker():
            return Level.INFO, Kind.CONFIRMATION
        case HotChange(accepted=accepted):
            return (Level.INFO, Kind.MILESTONE) if accepted else (Level.WARNING, Kind.MILESTONE)
        case Ready():
            return Level.INFO, Kind.MILESTONE
        case TracebackStart():
            return Level.ERROR, Kind.TRACEBACK
        case ErrorLine():
            return Level.ERROR, Kind.PLAIN
        case EngineWarning():
            return Level.WARNING, Kind.PLAIN
        case AccessLine(status=status):
            return (Level.WARNING if status >= 500 else Level.REQUEST), Kind.PLAIN
        case DecodeBatch() | PrefillBatch():
            return Level.BATCH, Kind.PLAIN
    return _priority(line), Kind.PLAIN


def bar_words(bar: Progress, width: int = 24) -> str:
    """``Capturing batches  14/32 ██████████░░░  about 12 s left``; no bar once it has ended."""
    text = f"{bar.label or 'progress'}  {bar.done}/{bar.total}"
    if bar.finished:
        return text
    full = round(width * min(1.0, bar.done / bar.total)) if bar.total else 0
    text += f" {'█' * full}{'░' * (width - full)}"
    return text if bar.left_s is None else f"{text}  about {bar.left_s:.0f} s left"


@dataclass(frozen=True)
class LogFilter:
    """Which entries are shown."""

    least: Level = Level.BATCH
    pattern: re.Pattern[str] | None = None
    """When only matching lines are to be shown."""
    rank: int | None = None

    def passes(self, entry: LogEntry) -> bool:
        if entry.level < self.least and entry.kind is not Kind.GAP:
            return False
        if self.rank is not None and entry.rank is not None and entry.rank != self.rank:
            return False
        return self.pattern is None or bool(self.pattern.search(entry.text))


class PatternError(ValueError):
    """What was typed is no regular expression; the message says where."""


def compile_search(text: str) -> re.Pattern[str] | None:
    """A search as people type it: lower case finds both, any capital makes it exact; empty ends the search.

    Raises:
        PatternError: not a regular expression.
    """
    if not text:
        return None
    try:
        return re.compile(text, 0 if any(letter.isupper() for letter in text) else re.IGNORECASE)
    except re.error as error:
        raise PatternError(f"{text} is no regular expression: {error.msg} at {error.pos}") from None
