"""What the screens show, kept in one place: the newest snapshot, the series behind the plots, the change being edited."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..hosts.service import RunState
from ..hosts.transport import LinkStatus
from .draft import DraftChange
from .facts import STALE_AFTER, DriftBadge
from .series import SPANS, Mark, Series

if TYPE_CHECKING:
    from ..hosts.transport import Link
    from ..state import HostState
    from .link import Past

MARK_LIMIT = 200


@dataclass
class ConsoleModel:
    """Changed by message handlers in the screen's thread only."""

    state: HostState | None = None
    decode: Series = field(default_factory=Series)
    """Decode throughput, tok/s."""
    commit: Series = field(default_factory=Series)
    """Commit length, tokens per verify; only samples in which something finished."""
    marks: list[Mark] = field(default_factory=list)
    baseline: float | None = None
    span: float = SPANS[2]
    wall: float = 0.0
    """When the newest snapshot came, seconds since the epoch: the right edge of the plots."""
    change: DraftChange = field(default_factory=DraftChange)
    window_size: int | None = None
    """The window that ``w`` switches back on."""
    drift: DriftBadge = field(default_factory=DriftBadge)
    busy: str = ""
    """The operation that runs, in a word."""
    _ending: tuple[str, str | None] = ("", None)
    connection_problem: str = ""
    """Why the host cannot be watched, in a sentence."""
    next_try: float | None = None
    """When it is tried again by itself, by the monotonic clock."""
    link: Link | None = None
    """The connection to the host as it was a moment ago; ``None`` for this machine."""
    stale: bool = False
    """The figures shown are old: the link is down, or the engine has not answered for seconds."""
    _sampled_at: float = 0.0
    _invocation: str | None = None
    _stood_still: bool = False
    """Nothing ran when the service was last seen, so that what comes next is no restart."""
    _change_marked: int = 0
    """Line of the newest hot change that has its mark."""

    def take_past(self, past: Past) -> None:
        """Put what history knows before what was sampled since."""
        self.decode.prepend(past.decode)
        self.commit.prepend(past.commit)
        seen = {mark.start for mark in self.marks if mark.start}
        unseen = (mark for mark in past.marks if mark.start not in seen)
        self.marks = sorted({*unseen, *self.marks}, key=lambda mark: mark.at)[-MARK_LIMIT:]
        if past.baseline is not None:
            self.baseline = past.baseline

    def take_state(self, state: HostState, wall: float) -> bool:
        """Replace the snapshot, sample its figures once per reading, and mark restarts and hot changes.

        Args:
            wall: seconds since the epoch, where the sample stands on the time axis.

        Returns:
            Whether a new sample was taken.
        """
        self.state = state
        self.wall = wall
        self._note_marks(state, wall)
        if state.metrics is None or state.metrics.at == self._sampled_at:
            if self._is_down(state):
                self.decode.add(wall, None)
            return False
        self._sampled_at = state.metrics.at
        rates = state.rates
        self.decode.add(wall, rates.decode_tok_s)
        if rates.commit_length is not None and not rates.commit_stale:
            self.commit.add(wall, rates.commit_length)
        return True

    @staticmethod
    def _is_down(state: HostState) -> bool:
        return state.service is not None and state.service.value.state is not RunState.RUNNING

    def _note_marks(self, state: HostState, wall: float) -> None:
        invocation = None if state.service is None else state.service.value.invocation_id
        if invocation is not None and invocation != self._invocation:
            if self._stood_still or self._invocation is not None:
                self.add_mark(Mark(wall, "start" if self._stood_still else "restart", start_of(invocation)))
            self._invocation = invocation
            self._change_marked = 0
        if state.service is not None:
            run = state.service.value.state
            self._stood_still = run in (RunState.STOPPED, RunState.FAILED) or (self._stood_still and run is not RunState.RUNNING)
        changes = () if state.log is None else state.log.value.hot_changes
        for point in changes:
            if point.number > self._change_marked and point.change.differs:
                moment = wall if point.at is None else point.at
                self.add_mark(Mark(moment, mark_words(point.change.name, point.change.new)))
        self._change_marked = max(self._change_marked, *(point.number for point in changes[-1:]), 0)

    def judge_age(self, link: Link | None, now: float, wall: float) -> bool:
        """Note the connection, and whether the figures are old; the plots' time goes on without them, so that they show the gap.

        Returns:
            Whether anything on a screen changes by it.
        """
        before = self.stale
        self.link = link
        metrics = None if self.state is None else self.state.metrics
        down = link is not None and link.status in (LinkStatus.LOST, LinkStatus.REFUSED)
        self.stale = self.state is not None and (down or (metrics is not None and now - metrics.at > STALE_AFTER))
        if self.stale:
            self.wall = wall
        return self.stale or before

    def begin_ending(self, word: str) -> None:
        """The operation ends the present start on purpose, with ``word`` (``restarting``); an empty one: no longer."""
        service = None if self.state is None else self.state.service
        self._ending = (word, None if service is None else service.value.invocation_id)

    @property
    def ending(self) -> str:
        """What the operation does to the start that the newest snapshot is of; empty when it leaves that alone."""
        word, invocation = self._ending
        service = None if self.state is None else self.state.service
        return word if service is not None and service.value.invocation_id == invocation else ""

    def add_mark(self, mark: Mark) -> None:
        self.marks = [*self.marks, mark][-MARK_LIMIT:]


def start_of(invocation: str) -> str:
    """What of an invocation id a mark keeps; history keeps as much."""
    return invocation[:8]


_SHORT = {
    "speculative_ddtree_budget": "budget",
    "speculative_ddtree_topk": "top-k",
    "speculative_draft_window_size": "compact draft cache",
    "speculation": "speculation",
}


def mark_words(name: str, value: object) -> str:
    """``budget 16``: a hot change in the few letters that a plot has room for."""
    short = _SHORT.get(name, name)
    text = str(value)
    if name == "speculative_draft_window_size" and text in ("0", "None", "off"):
        text = "off"
    if name == "speculation":
        text = "on" if text in ("1", "1.0", "True", "on") else "off"
    return f"{short} {text.removesuffix('.0')}"
