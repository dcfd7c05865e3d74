"""The log of a systemd unit, read from the host's journal without losing or doubling a line.

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
from ..evidence.journal_cursor import LogPlace, parse_cursor, parse_place
from ..evidence.journal_stream import SHORTENED, JournalReader
from .journald_access import JournalAccess
from .journald_query import Scope
from .transport import HostError, HostUnreachable, Transport

PAUSES_S = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Between a cut and the next try; the last one repeats. The transport itself reconnects at a pace of its own."""
BARREN = 4
"""So many streams that ended at once and gave nothing: then it is asked why."""
STORED_QUIET_S = 2.0
"""After so long without anything, what is stored counts as given, should its last entry have gone meanwhile."""
STALL_S = 10.0
"""A caller that takes its batches this late may have been overtaken by the journal's vacuuming."""
LINES_BYTES = 32 * 1024 * 1024
"""Text that :meth:`Journal.lines` keeps at most."""


@dataclass
class _Follow:
    """One caller's way through the journal."""

    matches: tuple[str, ...]
    reader: JournalReader
    begin: str = ""
    """The cursor to start the next stream at; empty = the oldest entry."""
    last_stored: str | None = None
    """The newest entry when following began, while it has not been given; ``None`` = all that was stored has been."""

    def resume(self) -> None:
        """The next stream goes on after what was read."""
        if self.reader.cursor:
            self.begin = self.reader.cursor
            self.reader.expect(self.begin)

    def reached_stored(self) -> bool:
        """Whether the newest stored entry has just been passed."""
        if self.last_stored is None or not _reached(self.reader.cursor, self.last_stored):
            return False
        self.last_stored = None
        return True


class Journal:
    """The log methods of :class:`~dflash_console.hosts.service.Service` for one unit."""

    def __init__(self, transport: Transport, unit: str, *, scope: Scope = "system", sudo: bool = False) -> None:
        """``sudo``: try ``sudo -n`` where this user may not read the journal; it is never asked for a password."""
        self._transport = transport
        self._unit = unit
        self._scope: Scope = scope
        self._access = JournalAccess(transport, unit, scope, sudo=sudo)

    async def cursor(self) -> str:
        """The end of the whole journal right now; :meth:`follow` from it gives every line of the unit that is written later.

        Raises:
            HostError: the journal cannot be read.
        """
        newest = await self._access.last()
        return str(LogPlace(newest.cursor if newest is not None else ""))

    async def follow(self, *, cursor: str | None = None, invocation_id: str | None = None) -> AsyncIterator[LogLine]:
        """The lines of :meth:`batches`, one by one."""
        async with contextlib.aclosing(self.batches(cursor=cursor, invocation_id=invocation_id)) as batches:
            async for batch in batches:
                for line in batch:
                    yield line

    async def batches(
        self, *, cursor: str | None = None, invocation_id: str | None = None
    ) -> AsyncGenerator[tuple[LogLine, ...], None]:
        """Lines after ``cursor`` (``None`` = from the oldest), as they come, for ever and across cuts of the link.

        An empty batch says that all that was stored at the beginning has been given.

        Raises:
            HostError: the journal cannot be read, or ``cursor`` is none of a journal.
        """
        place = self._place(cursor)
        matches = (await self._access.query()).matches(invocation_id)
        newest = await self._access.last(*matches)
        follow = _Follow(matches, JournalReader(), place.journal)
        if place.journal and not place.at_entry:
            if not await self._access.has(place.journal):
                yield (LogLine(SHORTENED, cursor=place.journal, invocation_id=invocation_id, priority=4, origin="gap"),)
            follow.reader.expect(place.journal, gap_if_other=False)
        follow.last_stored = newest.cursor if newest is not None and _comes(newest.cursor, place) else None
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
                        await self._access.last(*matches)
            follow.resume()
            await asyncio.sleep(PAUSES_S[min(barren, len(PAUSES_S) - 1)] * random.uniform(0.8, 1.2))

    async def _stream(self, follow: _Follow) -> AsyncGenerator[tuple[LogLine, ...], None]:
        """Batches of one stream, until it is cut."""
        command = await self._access.command(*follow.matches, cursor=follow.begin, follow=True)
        async with self._transport.stream(command) as chunks:
            async for data in _with_silence(chunks, lambda: follow.last_stored is not None):
                lines = follow.reader.feed(data)
                if lines:
                    yield tuple(lines)
                if follow.reached_stored() or (not data and follow.last_stored is not None):
                    follow.last_stored = None
                    yield ()

    async def _overtaken(self, follow: _Follow) -> LogLine | None:
        """A gap when the entry read last is gone: others after it may be gone too."""
        cursor = follow.reader.cursor
        with contextlib.suppress(HostError):
            if cursor and not await self._access.has(cursor):
                return LogLine(SHORTENED, cursor=cursor, priority=4, origin="gap")
        return None

    async def log_start(self) -> str | None:
        """The cursor at which the log of the newest start begins; ``None`` = from the oldest line.

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
                        return str(LogPlace(line.cursor, at_entry=True))
        return None

    async def _newest_start(self) -> str | None:
        query = await self._access.query()
        manager: tuple[str, ...] = ("systemctl",)
        if self._scope == "user":
            # A login without a session of its own, as SSH gives, does not know where its manager listens.
            manager = ("env", f"XDG_RUNTIME_DIR=/run/user/{query.uid}", "systemctl", "--user")
        done = await self._transport.run([*manager, "show", "--property=InvocationID", "--value", self._unit])
        invocation = done.stdout.decode("ascii", "replace").strip()
        if done.ok and invocation:
            return invocation
        # A unit that was stopped is forgotten by the manager; the journal still knows its last start.
        newest = await self._access.last(*query.matches(restarts=False))
        return newest.invocation_id if newest is not None else None

    async def lines(self, *, invocation_id: str | None = None, limit: int = 5_000) -> tuple[LogLine, ...]:
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
        return tuple(kept)

    def _place(self, cursor: str | None) -> LogPlace:
        try:
            return parse_place(cursor)
        except ValueError as error:
            raise HostError(f"the log of {self._unit} cannot be followed: {error}") from None


async def _with_silence(chunks: AsyncIterator[bytes], wanted: Callable[[], bool]) -> AsyncGenerator[bytes, None]:
    """The chunks; while ``wanted()``, silence of :data:`STORED_QUIET_S` is given as an empty one."""
    reading: asyncio.Future[bytes] | None = None
    try:
        while wanted():
            # Not a timeout around the reading: that would cancel the stream itself.
            reading = reading or asyncio.ensure_future(anext(chunks))
            done, _ = await asyncio.wait((reading,), timeout=STORED_QUIET_S)
            if not done:
                yield b""
                continue
            try:
                data = reading.result()
            except StopAsyncIteration:
                return
            reading = None
            yield data
        if reading is not None:
            data = await reading
            reading = None
            yield data
        async for data in chunks:
            yield data
    except StopAsyncIteration:
        return
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
