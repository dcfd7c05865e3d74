"""The fold over the log of the newest start that the log tells of, and how far its events have been taken up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..evidence.journal import LogLine
    from ..evidence.log_events import DecodeBatch
    from ..evidence.start_log import ChangePoint, StartLog


class LogFold:
    """Takes lines in their order; a line of another start begins the fold anew."""

    def __init__(self) -> None:
        self.invocation: str | None = None
        """Id of the start that the fold is about; ``None`` before a line named one."""
        self._left: set[str] = set()
        """Ids of the starts before it."""
        self._made: StartLog | None = None
        self._change_taken = 0
        self._decode_taken = 0
        """Lines of the newest hot change and decode line that were taken up. The fold keeps the newest of them only, so their
        number tells nothing."""

    @property
    def log(self) -> StartLog:
        """What the lines said so far. Made when a line or a figure needs it: a service's state is shown before that, and does not
        wait for the imports."""
        if self._made is None:
            from ..evidence.start_log import StartLog

            self._made = StartLog()
        return self._made

    def take(self, lines: Iterable[LogLine]) -> None:
        """Go on with these lines. Lines of an older start that come late are left out."""
        for line in lines:
            if line.invocation_id in self._left:
                continue
            if line.invocation_id and line.invocation_id != self.invocation:
                if self.invocation is not None:
                    self._left.add(self.invocation)
                self._made = None
                self.invocation = line.invocation_id
                self._change_taken = 0
            if line.invocation_id == self.invocation:
                self._made = self.log.add(line)

    def begin_again(self) -> None:
        """The log is read from the start's first line again, so nothing is counted twice."""
        self._made = None

    def lines_of(self, invocation: str | None) -> int:
        """How many lines of this start have been read."""
        return self.log.lines if self.invocation == invocation else 0

    def new_changes(self) -> tuple[ChangePoint, ...]:
        """Hot changes since this was asked last, oldest first."""
        new = tuple(point for point in self.log.hot_changes if point.number > self._change_taken)
        if new:
            self._change_taken = new[-1].number
        return new

    def new_decode_line(self) -> DecodeBatch | None:
        """The newest decode line, when it came since this was asked last and does not count idle time."""
        new = [point for point in self.log.decode if point.number > self._decode_taken]
        if not new:
            return None
        self._decode_taken = new[-1].number
        return None if new[-1].after_idle else new[-1].batch

    def forget_decode_lines(self) -> None:
        """Another start: its lines are counted from 1 again."""
        self._decode_taken = 0
