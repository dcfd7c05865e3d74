"""What a host's journal has of one unit, read without losing or doubling a line.

Where the reader stands is a cursor, never a time: a host's clock may jump and differs from this machine's. Every cut of the link
is followed by another ``journalctl --follow`` that begins at the entry read last; that entry comes again and is left out, and
when it does not come, the lines after it are gone from the journal and that is said.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass

from ..evidence.journal import LogLine
from ..evidence.journal_cursor import LogPlace, parse_cursor
from ..evidence.journal_stream import SHORTENED, JournalReader
from .journald_access import JournalAccess
from .journald_output import current_start
from .journald_query import JournalQuery, Scope
from .journald_streams import StreamStarts
from .transport import HostError, HostUnreachable, Transport

PAUSES_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Between a cut and the next try; the last one repeats. The transport itself reconnects at a pace of its own."""
BARREN = 4
"""So many streams that ended at once and gave nothing: then it is asked why."""
STORED_QUIET_S = 2.0
"""After so long without anything, what is stored counts as given, should its last entry have gone meanwhile."""
ASK_EVERY_S = 0.1
"""journald tells those who listen of new entries a quarter to half a second late (a timer of 250 ms that may be late by as much:
``schedule_post_change`` of systemd 252), but who asks gets them at once. A confirmation asks."""
STALL_S = 10.0
"""A caller that takes its batches this late may have been overtaken by the journal's vacuuming."""
LINES_BYTES = 32 * 1024 * 1024
"""Text that :meth:`JournaldLog.lines` keeps at most."""


@dataclass
class _Follow:
    """One caller's way through the journal."""

    matches: tuple[str, ...]
    reader: JournalReader
    invocation_id: str | None
    """Of the start that is followed; ``None`` = all."""
    from_oldest: bool
    begin: str = ""
    """The cursor to start the next stream at; empty = the oldest entry."""
    unselected: str = ""
    """The cursor that the caller gave: of any entry, so that it need not be among those that the stream selects."""
    silences: int = 0
    urgent: bool = False
    """Somebody waits for a line of this start: the journal is asked as well, and not only listened to."""
    last_stored: str | None = None
    """The newest entry when following began, while it has not been given; ``None`` = all that was stored has been."""

    def resume(self) -> None:
        """The next stream goes on after what was read."""
        if self.reader.cursor:
            self.begin = self.reader.cursor
            self.reader.expect(self.begin, gap_if_other=self.begin != self.unselected)

    def patience(self) -> float | None:
        """How long silence may last before it is told; ``None`` = for ever."""
        return ASK_EVERY_S if self.urgent else STORED_QUIET_S if self.last_stored is not None else None

    def waited(self) -> bool:
        """Whether the newest stored entry has been waited for long enough: it may have gone meanwhile."""
        self.silences += 1
        return self.last_stored is not None and (not self.urgent or self.silences * ASK_EVERY_S >= STORED_QUIET_S)

    def reached_stored(self) -> bool:
        """Whether the newest stored entry has just been passed."""
        if self.last_stored is None or not _reached(self.reader.cursor, self.last_stored):
            return False
        self.last_stored = None
        return True


class JournaldLog:
    """What journald has of one unit."""

    def __init__(self, transport: Transport, unit: str, *, scope: Scope = "system", sudo: bool = False) -> None:
        """``sudo``: try ``sudo -n`` where this user may not read the journal; it is never asked for a password."""
        self._transport = transport
        self._access = JournalAccess(transport, unit, scope, sudo=sudo)
        self._starts = StreamStarts(self._access)

    async def query(self) -> JournalQuery:
        """The unit's matches. Raises: HostError."""
        return await self._access.query()

    def look_in(self, namespace: str) -> None:
        """Where the unit logs to a journal of its own, read that beside the host's, in which the manager's lines are."""
        self._access.namespace = namespace

    async def cursor(self) -> LogPlace:
        """The end of the whole journal right now; :meth:`batches` from it give every line of the unit that is written later.

        Raises:
            HostError: the journal cannot be read.
        """
        newest = await self._access.last()
        return LogPlace(newest.cursor if newest is not None else "")

    async def batches(self, place: LogPlace, invocation_id: str | None) -> AsyncGenerator[tuple[LogLine, ...], None]:
        """Lines from a place on, as they come, for ever and across cuts of the link.

        An empty batch says that all that was stored at the beginning has been given.

        Raises:
            HostError: the journal cannot be read.
        """
        follow, gone = await self._begin(place, invocation_id)
        if gone:
            yield (LogLine(SHORTENED, cursor=place.journal, invocation_id=invocation_id, priority=4, origin="gap"),)
        if follow.last_stored is None:
            yield ()
        barren = 0
        while True:
            fruitful = False
            begun = time.monotonic()
            try:
                async with contextlib.aclosing(self._stream(follow)) as batches:
                    async for batch in batches:
                        fruitful = True
                        yielded = time.monotonic()
                        yield batch
                        if time.monotonic() - yielded > STALL_S and (gap := await self._overtaken(follow)):
                            yield (gap,)
            except HostUnreachable:
                barren = 0 if fruitful else barren + 1
            else:
                barren = 0 if fruitful or time.monotonic() - begun > STALL_S else barren + 1
                if barren and barren % BARREN == 0:
                    # The tool ends by itself: the question says why, unless the link is down just now.
                    with contextlib.suppress(HostUnreachable):
                        await self._access.last(*follow.matches)
            follow.resume()
            if follow.begin == follow.unselected and not gone and (gap := await self._overtaken(follow)):
                gone = True
                yield (gap,)
            await asyncio.sleep(PAUSES_S[min(barren, len(PAUSES_S) - 1)] * random.uniform(0.8, 1.2))

    async def _begin(self, place: LogPlace, invocation_id: str | None) -> tuple[_Follow, bool]:
        """What has to be known before the first stream; and whether the entry at ``place`` is gone from the journal."""
        while True:
            try:
                matches = (await self._access.query()).matches(invocation_id)
                newest = await self._access.last(*matches)
                from_oldest = not place.journal and invocation_id is None
                follow = _Follow(
                    matches, JournalReader(), invocation_id, from_oldest, place.journal, urgent=invocation_id is not None
                )
                gone = False
                if place.journal and not place.at_entry:
                    gone = not await self._access.has(place.journal)
                    follow.unselected = place.journal
                    follow.reader.expect(place.journal, gap_if_other=False)
                follow.last_stored = newest.cursor if newest is not None and _comes(newest.cursor, place) else None
                return follow, gone
            except HostUnreachable:
                await asyncio.sleep(PAUSES_S[-2])

    async def _stream(self, follow: _Follow) -> AsyncGenerator[tuple[LogLine, ...], None]:
        """Batches of one stream, until it is cut."""
        command = await self._access.command(*follow.matches, cursor=follow.begin, follow=True)
        async with self._transport.stream(command) as chunks:
            async for data in _with_silence(chunks, follow.patience):
                lines = follow.reader.feed(data) if data or not follow.urgent else await self._ask(follow)
                lines = await self._sorted(follow, lines)
                if lines:
                    yield tuple(lines)
                if follow.reached_stored() or (not data and not lines and follow.waited()):
                    follow.last_stored = None
                    yield ()

    async def _sorted(self, follow: _Follow, lines: list[LogLine]) -> list[LogLine]:
        """The lines by the start that printed them. They were read and will not come again, so a cut is waited out."""
        while True:
            try:
                return await self._starts.sort(lines, follow.invocation_id, from_oldest=follow.from_oldest)
            except HostUnreachable:
                await asyncio.sleep(PAUSES_S[-2])

    async def _ask(self, follow: _Follow) -> list[LogLine]:
        """What is stored and has not come yet. The reader leaves it out when the stream brings it later."""
        reader = follow.reader
        if not reader.cursor or reader.pending:
            return []
        command = await self._access.command(*follow.matches, cursor=reader.cursor)
        try:
            done = await self._transport.run(command)
        except HostUnreachable:
            raise
        except HostError:
            # The stream brings it, a little later.
            return []
        return reader.overtake(done.stdout, selected=reader.cursor != follow.unselected) if done.ok else []

    async def _overtaken(self, follow: _Follow) -> LogLine | None:
        """A gap when the entry read last is gone: others after it may be gone too."""
        cursor = follow.reader.cursor
        with contextlib.suppress(HostError):
            if cursor and not await self._access.has(cursor):
                return LogLine(SHORTENED, cursor=cursor, priority=4, origin="gap")
        return None

    async def log_start(self) -> LogPlace | None:
        """Where the log of the newest start begins; ``None`` = with the oldest line.

        Raises:
            HostError: the journal cannot be read.
        """
        invocation = await self._newest_start()
        if invocation is None:
            return None
        command = await self._access.command(*(await self._access.query()).matches(invocation))
        reader = JournalReader()
        async with self._transport.stream(command) as chunks:
            async for data in chunks:
                for line in reader.feed(data):
                    if line.invocation_id == invocation:
                        return LogPlace(line.cursor, at_entry=True)
        return None

    async def _newest_start(self) -> str | None:
        query = await self._access.query()
        if (invocation := await current_start(self._transport, query)) is not None:
            return invocation
        # A unit that was stopped is forgotten by the manager; the journal still knows its last start.
        newest = await self._access.last(*query.matches(restarts=False))
        return newest.invocation_id if newest is not None else None

    async def lines(self, invocation_id: str | None, limit: int) -> tuple[LogLine, ...]:
        """The newest stored lines, oldest first.

        Raises:
            HostError: the journal cannot be read.
        """
        matches = (await self._access.query()).matches(invocation_id)
        command = await self._access.command(*matches, newest=limit)
        reader = JournalReader()
        kept: deque[LogLine] = deque(maxlen=limit)
        size = 0
        async with self._transport.stream(command) as chunks:
            async for data in chunks:
                for line in reader.feed(data):
                    if len(kept) == limit:
                        size -= len(kept[0].text)
                    kept.append(line)
                    size += len(line.text)
                    while size > LINES_BYTES:
                        size -= len(kept.popleft().text)
        return tuple(kept) if invocation_id is None else tuple(await self._starts.sort(kept, invocation_id))


async def _with_silence(chunks: AsyncIterator[bytes], patience: Callable[[], float | None]) -> AsyncGenerator[bytes, None]:
    """The chunks; silence that lasts longer than ``patience()`` seconds is given as an empty one."""
    reading: asyncio.Future[bytes] | None = None
    try:
        while True:
            # Not a timeout around the reading: that would cancel the stream itself.
            reading = reading or asyncio.ensure_future(anext(chunks))
            done, _ = await asyncio.wait((reading,), timeout=patience())
            if not done:
                yield b""
                continue
            try:
                data = reading.result()
            except StopAsyncIteration:
                return
            finally:
                reading = None
            yield data
    finally:
        if reading is not None:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, HostError):
                await reading


def _comes(newest: str, place: LogPlace) -> bool:
    """Whether the entry ``newest`` is given when one follows from ``place``."""
    begin, end = parse_cursor(place.journal), parse_cursor(newest)
    if begin is None or end is None:
        return True
    return begin.before(end) or (place.at_entry and begin.same(end))


def _reached(cursor: str, goal: str) -> bool:
    here, there = parse_cursor(cursor), parse_cursor(goal)
    return here is not None and there is not None and not here.before(there)
