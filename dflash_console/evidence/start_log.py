"""What the log of one start has said so far: an immutable fold over its lines.

Confirmation stands on this record: which settings the engine printed, in which line, how far the start has come, what was
changed while it ran, and what went wrong. Everything in it is bounded, so a fold over a week of lines stays small.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from .journal import LogLine
from .log_events import (
    DDTreeWorker,
    DecodeBatch,
    DraftRunner,
    EngineEvent,
    EngineWarning,
    ErrorLine,
    FirstVerify,
    GraphCapture,
    HotChange,
    KvPool,
    LoadWeight,
    MaskToken,
    ModelPart,
    PrefillBatch,
    Rank,
    ReadLine,
    Ready,
    SchedulerSummary,
    ServerArgsLine,
    TracebackStart,
    WarningKind,
)
from .log_lines import read_events
from .secrets import mask_text
from .stamps import written_earlier
from .terminal_text import Progress

MAX_DECODE_LINES = 120
MAX_HOT_CHANGES = 100
MAX_WARNINGS = 30
MAX_ERRORS = 20
MAX_TRACEBACK = 60
MAX_TEXT = 4_000
"""Characters of a line that are kept; a line may be a megabyte long."""

_TRACEBACK_BODY = re.compile(
    r"\s|[\w.]*(?:Error|Exception|Interrupt|Exit)\b|During handling|The above exception|Traceback|$|\s*\^+"
)
_RAISED = re.compile(r"^[\w.]+(?:Error|Exception|Interrupt|Exit|Warning)?(?::|$)")


class Phase(Enum):
    """Milestones of a start, in the order in which they are usually reached."""

    PROCESS_UP = "process up"
    TARGET_WEIGHTS = "target weights"
    DRAFT_WEIGHTS = "draft weights"
    DRAFT_RUNNER = "draft runner"
    KV_POOL = "KV pool"
    GRAPHS = "graphs"
    READY = "ready"
    FIRST_VERIFY = "first verify"


@dataclass(frozen=True)
class PhaseMark:
    """A milestone that was reached."""

    phase: Phase
    number: int
    """Line of this start, from 1."""
    at: float | None
    """Seconds since the epoch, by the host's clock."""
    text: str
    seconds: float | None = None
    """How long it took, as the engine itself says."""


@dataclass(frozen=True)
class LogValue:
    """A setting as the engine printed it."""

    text: str
    number: int
    at: float | None = None


@dataclass(frozen=True)
class DecodePoint:
    """A decode line in its place."""

    batch: DecodeBatch
    number: int
    at: float | None
    rank: Rank
    after_idle: bool
    """The interval counts idle time: leave it out of medians and plots."""


@dataclass(frozen=True)
class ChangePoint:
    change: HotChange
    number: int
    at: float | None = None


@dataclass(frozen=True)
class LogRemark:
    """A warning or an error line in its place."""

    text: str
    number: int
    at: float | None = None
    kind: WarningKind | None = None
    """``None`` for an error."""
    flag: str = ""


@dataclass(frozen=True)
class StartLog:
    """The fold. :meth:`add` answers a new record and changes nothing."""

    lines: int = 0
    """Lines seen; the number of the newest line when lines carry none."""
    gaps: int = 0
    """Places where the log is known to miss lines, or a line that was too long to be stored."""
    phases: Mapping[Phase, PhaseMark] = field(default_factory=dict)
    values: Mapping[str, LogValue] = field(default_factory=dict)
    """Confirmation values by log key, as printed; ``algorithm`` from the line's own words."""
    confirmation: LogValue | None = None
    """The confirmation line itself."""
    server_args: Mapping[str, str] = field(default_factory=dict, repr=False)
    server_args_line: int | None = None
    hot_changes: tuple[ChangePoint, ...] = ()
    """Taken and refused, oldest first."""
    decode: tuple[DecodePoint, ...] = ()
    warnings: tuple[LogRemark, ...] = ()
    errors: tuple[LogRemark, ...] = ()
    """The newest error lines, oldest first."""
    first_error: LogRemark | None = None
    traceback: tuple[str, ...] = ()
    """The newest traceback, without prefixes."""
    progress: Progress | None = None
    """The bar that is moving now; ``None`` when the last one has ended."""
    draft_kv: KvPool | None = None
    replaced: int | None = None
    """Line at which a wrapper of the unit started another engine within this start; nothing from before it is this engine's."""
    newest_at: float | None = None
    _idle: frozenset[int] = frozenset()
    """Data-parallel ranks whose next decode line counts idle time; -1 for engines without ranks."""
    _in_traceback: bool = False
    _tree_worker: bool = False
    """A tree worker has printed its own line."""
    _seen_decode: frozenset[int] = frozenset()

    @property
    def ready(self) -> bool:
        return Phase.READY in self.phases

    @property
    def confirmed_line(self) -> int | None:
        return self.confirmation.number if self.confirmation is not None else None

    @property
    def raised(self) -> str:
        """The last line of the newest traceback (``ValueError: …``), else the newest error line, else empty."""
        for line in reversed(self.traceback):
            if line and not line[0].isspace() and _RAISED.match(line):
                return line
        return self.errors[-1].text if self.errors else ""

    def told(self) -> StartLog:
        """The fold without what nearly every line changes: counts, times and throughput. While it stays equal, new lines were
        access lines or decode lines, which a running engine writes once a second or more, and nothing is in a hurry to show."""
        return replace(self, lines=0, newest_at=None, decode=(), _idle=frozenset(), _seen_decode=frozenset())

    def warning(self, kind: WarningKind, flag: str = "") -> LogRemark | None:
        """The newest warning of a kind (and about a flag, when one is given)."""
        for remark in reversed(self.warnings):
            if remark.kind is kind and (not flag or remark.flag == flag):
                return remark
        return None

    def add(self, line: LogLine) -> StartLog:
        """The fold with one more line. Lines of the service manager count but are not read as the engine's."""
        number = line.number if line.number is not None else self.lines + 1
        log = replace(self, lines=max(number, self.lines + 1), newest_at=line.at if line.at is not None else self.newest_at)
        if line.origin == "gap":
            return replace(log, gaps=log.gaps + 1)
        if line.origin != "engine":
            return log
        if Phase.PROCESS_UP not in log.phases:
            log = log._reached(Phase.PROCESS_UP, number, line.at, line.text)
        for read in read_events(line.text):
            log = log._take(read, number, line)
        return log

    def add_all(self, lines: Iterable[LogLine]) -> StartLog:
        log = self
        for line in lines:
            log = log.add(line)
        return log

    def _take(self, read: ReadLine, number: int, line: LogLine) -> StartLog:
        event, at = read.event, line.at
        if written_earlier(read.stamp, at):
            # A wrapper shows an earlier start's log: neither settings nor milestones nor errors in it are of this one.
            return self
        log = self._close_traceback(read) if self._in_traceback else self
        if log._in_traceback:
            return log
        match event:
            case Progress():
                return replace(log, progress=None if event.finished else event)
            case DecodeBatch():
                return log._decoded(event, read, number, at)
            case PrefillBatch():
                return replace(log, _idle=log._idle | {_dp(read)}) if event.from_idle else log
            case DraftRunner() | DDTreeWorker() | SchedulerSummary() | MaskToken() if log.ready:
                # The settings of a start are printed before it is ready. What looks like them later was quoted from a request.
                return log
            case DraftRunner() | DDTreeWorker():
                return log._confirmed(event, read, number, at)
            case SchedulerSummary():
                return replace(log, values={**log.values, **_values(event.values, number, at)})
            case MaskToken():
                return replace(log, values={**_values(event.values, number, at), **log.values})
            case ServerArgsLine():
                return replace(log._begun_anew(read, number), server_args=event.settings, server_args_line=number)
            case LoadWeight() | KvPool() | GraphCapture() | Ready() | FirstVerify():
                return log._milestone(event, read, number, at)
            case HotChange():
                return log._changed(event, read, number, at)
            case EngineWarning():
                remark = LogRemark(event.text[:MAX_TEXT], number, at, event.kind, event.flag)
                return replace(log, warnings=(*log.warnings, remark)[-MAX_WARNINGS:])
            case TracebackStart():
                return replace(log, _in_traceback=True, traceback=(read.text[:MAX_TEXT],))
            case ErrorLine():
                return log._failed(event.text, number, at)
            case _:
                return log._failed(mask_text(read.text), number, at) if line.priority <= 3 and read.text else log

    def _begun_anew(self, read: ReadLine, number: int) -> StartLog:
        """Without what an earlier engine of this start said of itself.

        An engine prints its arguments once, before it loads anything. Where they come after its settings, a wrapper of the unit
        has started another engine within the same start (``A || B``, a loop), and what the first one printed says nothing of
        the one that runs. Its errors stay: they are why.
        """
        if self.confirmation is None and not self.ready:
            return self
        if self.ready and not (read.stamp and read.text.startswith("server_args=ServerArgs(")):
            # Once requests come, a line may be quoted from one of them.
            return self
        kept: dict[Phase, PhaseMark] = (
            {Phase.PROCESS_UP: self.phases[Phase.PROCESS_UP]} if Phase.PROCESS_UP in self.phases else {}
        )
        again = StartLog(lines=self.lines, gaps=self.gaps, phases=kept, replaced=number, newest_at=self.newest_at)
        return replace(again, warnings=self.warnings, errors=self.errors, first_error=self.first_error, traceback=self.traceback)

    def _reached(self, phase: Phase, number: int, at: float | None, text: str, seconds: float | None = None) -> StartLog:
        return replace(self, phases={**self.phases, phase: PhaseMark(phase, number, at, text[:MAX_TEXT], seconds)})

    def _milestone(self, event: EngineEvent, read: ReadLine, number: int, at: float | None) -> StartLog:
        match event:
            case LoadWeight(ended=True):
                draft = event.part is ModelPart.DRAFT or (
                    event.part is ModelPart.UNKNOWN and Phase.TARGET_WEIGHTS in self.phases and read.rank.first
                )
                phase = Phase.DRAFT_WEIGHTS if draft else Phase.TARGET_WEIGHTS
                return self if phase in self.phases else self._reached(phase, number, at, read.text, event.seconds)
            case KvPool():
                if Phase.KV_POOL in self.phases:
                    return replace(self, draft_kv=event) if self.draft_kv is None and read.rank.first else self
                return self._reached(Phase.KV_POOL, number, at, read.text)
            case GraphCapture(ended=True):
                return self._reached(Phase.GRAPHS, number, at, read.text, event.seconds)
            case Ready() if Phase.READY not in self.phases:
                return replace(self._reached(Phase.READY, number, at, read.text), progress=None)
            case FirstVerify() if Phase.FIRST_VERIFY not in self.phases:
                return self._reached(Phase.FIRST_VERIFY, number, at, read.text)
            case _:
                return self

    def _confirmed(self, event: DraftRunner | DDTreeWorker, read: ReadLine, number: int, at: float | None) -> StartLog:
        """Combine the drafter's line and the tree worker's, in whichever order they come; of two of a kind the later counts."""
        values = {**self.values, **_values(event.values, number, at)}
        tree_worker = self._tree_worker or isinstance(event, DDTreeWorker)
        if isinstance(event, DDTreeWorker):
            values["algorithm"] = LogValue("DDTREE", number, at)
            confirmation = self.confirmation or LogValue(read.text[:MAX_TEXT], number, at)
        else:
            # Engines with a tree worker of its own go on calling their drafter's runner DFLASH.
            if not tree_worker:
                values["algorithm"] = LogValue(event.algorithm, number, at)
            confirmation = LogValue(read.text[:MAX_TEXT], number, at)
        log = replace(self, values=values, confirmation=confirmation, _tree_worker=tree_worker)
        return log if Phase.DRAFT_RUNNER in log.phases else log._reached(Phase.DRAFT_RUNNER, number, at, read.text)

    def _decoded(self, batch: DecodeBatch, read: ReadLine, number: int, at: float | None) -> StartLog:
        rank = _dp(read)
        after_idle = rank in self._idle or rank not in self._seen_decode
        point = DecodePoint(batch, number, at, read.rank, after_idle)
        log = replace(
            self,
            decode=(*self.decode, point)[-MAX_DECODE_LINES:],
            _idle=self._idle - {rank},
            _seen_decode=self._seen_decode | {rank},
        )
        if batch.accept_len is not None and Phase.FIRST_VERIFY not in log.phases:
            return log._reached(Phase.FIRST_VERIFY, number, at, read.text)
        return log

    def _changed(self, change: HotChange, read: ReadLine, number: int, at: float | None) -> StartLog:
        log = replace(self, hot_changes=(*self.hot_changes, ChangePoint(change, number, at))[-MAX_HOT_CHANGES:])
        if change.accepted:
            return log
        remark = LogRemark(read.text[:MAX_TEXT], number, at, WarningKind.HOT_REFUSED)
        return replace(log, warnings=(*log.warnings, remark)[-MAX_WARNINGS:])

    def _failed(self, text: str, number: int, at: float | None) -> StartLog:
        remark = LogRemark(text[:MAX_TEXT], number, at)
        return replace(self, errors=(*self.errors, remark)[-MAX_ERRORS:], first_error=self.first_error or remark)

    def _close_traceback(self, read: ReadLine) -> StartLog:
        """Follow a traceback's lines; it ends after the line that names the exception."""
        text = mask_text(read.text)[:MAX_TEXT]
        if isinstance(read.event, TracebackStart) or text[:1].isspace() or not text:
            return replace(self, traceback=(*self.traceback, text)[-MAX_TRACEBACK:])
        closed = replace(self, _in_traceback=False)
        if not read.stamp and _TRACEBACK_BODY.match(text):
            return replace(closed, traceback=(*self.traceback, text)[-MAX_TRACEBACK:])
        return closed


def _dp(read: ReadLine) -> int:
    return read.rank.dp if read.rank.dp is not None else -1


def _values(pairs: Mapping[str, str], number: int, at: float | None) -> dict[str, LogValue]:
    return {key: LogValue(text, number, at) for key, text in pairs.items()}
