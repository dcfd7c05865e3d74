"""Which start an output stream belongs to, where journald names the wrong one.

journald looks up the invocation id of a line's unit when it takes the line, not when the line was printed
(``client_context_really_refresh`` of systemd 252). What an engine prints as it ends is therefore stored under the *next* start's
id when journald comes to it late, as on a busy machine. The stream cannot be mistaken: each start gets outputs of its own, and
all records of one carry its ``_STREAM_ID``. So a stream, with all its lines, belongs to the start that its first record names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..evidence.journal import LogLine
from .journald_access import JournalAccess
from .transport import HostError, HostUnreachable


class StreamStarts:
    """Remembers the start of each stream; asks the journal where a stream's beginning was not read."""

    def __init__(self, access: JournalAccess) -> None:
        self._access = access
        self._starts: dict[str, str | None] = {}
        """Stream → invocation id of its first record."""

    async def sort(self, lines: Iterable[LogLine], invocation_id: str | None, *, from_oldest: bool = False) -> list[LogLine]:
        """The lines with the start that printed them; those of other starts are left out where ``invocation_id`` names one.

        Args:
            from_oldest: the reading began with the oldest entry, so a stream's first line here is its first of all.

        Raises:
            HostUnreachable: the journal cannot be asked just now; nothing was given, and asking again is right.
        """
        given = []
        for line in lines:
            if not line.stream or not line.invocation_id:
                given.append(line)
                continue
            if line.stream not in self._starts:
                self._starts[line.stream] = line.invocation_id if from_oldest else await self._first(line)
            start = self._starts[line.stream] or line.invocation_id
            if invocation_id is None or start == invocation_id:
                given.append(line if start == line.invocation_id else replace(line, invocation_id=start))
        return given

    async def _first(self, line: LogLine) -> str | None:
        """The start that the first record of a line's stream names; as the line says where that is not to be had."""
        try:
            first = await self._access.first(f"_STREAM_ID={line.stream}")
        except HostUnreachable:
            raise
        except HostError:
            first = None
        return first.invocation_id if first is not None and first.stream == line.stream else line.invocation_id
