"""The file that a unit's output goes to, followed from an offset across truncation and replacement."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from ..evidence.journal import LogLine, decode_lines, mask_lines
from ..evidence.journal_cursor import FilePlace
from ..evidence.start_spans import StartSpans
from .journald_output import Extent, UnitOutput, look_at, read_tail
from .journald_query import JournalQuery
from .transport import HostFileError, HostUnreachable, Transport

FAST_S = 0.1
SLOW_S = 0.5
ASK_EVERY_S = 1.0
"""How often the start's id is asked for while the file is quiet."""
WATCH_S = 180.0
"""For so long after a cursor was taken the file is watched for the change of starts, unless it is followed sooner."""
MARK = 64
"""Bytes before the place read last: other ones there mean that the file was emptied and grew again."""
LINE_LIMIT = 128 * 1024
TAIL = 4 << 20
"""Bytes from which the newest lines are taken."""
PLACES = 64
_CHUNK = 1 << 20


@dataclass(frozen=True)
class FileBatch:
    """What was found at one look."""

    lines: tuple[tuple[LogLine, FilePlace], ...]
    """Each with the place after it."""
    all_given: bool
    """Nothing more was stored at that moment."""


@dataclass
class _Reading:
    """How far one caller has read."""

    offset: int
    mark: bytes = b""
    """The bytes before ``offset``."""
    content: int | None = None
    """Which content of the file that is a place in; ``None`` = not known."""


class OutputFile:
    """One unit's output file."""

    def __init__(self, transport: Transport, query: JournalQuery, output: UnitOutput) -> None:
        self._transport = transport
        self._query = query
        self.output = output
        self._spans = StartSpans()
        self._inode = 0
        self._size = 0
        self._asked_at = 0.0
        self._content = 0
        """Grows when the file is emptied or replaced."""
        self._how = ""
        self._taken: dict[FilePlace, int] = {}
        """Places that were given as cursors, each with the content that it is a place in."""
        self._watching: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()

    async def close(self) -> None:
        """Stop watching. Left to the end of the event loop, that would be cancelled together with the command it waits for, whose
        pipes then never close."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def end(self) -> FilePlace:
        """The end of the file now, from which on the change of starts is watched. Raises: HostError."""
        stat = await self._look(ask=True)
        place = FilePlace(stat.inode, stat.size) if stat is not None else FilePlace(0, 0)
        self._taken = {**dict(list(self._taken.items())[-PLACES:]), place: self._content}
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        return place

    async def begin(self) -> FilePlace:
        """Where the lines of the newest start begin, as far as that is known; else the end. Raises: HostError."""
        stat = await self._look(ask=True)
        if stat is None:
            return FilePlace(0, 0)
        return FilePlace(stat.inode, 0 if self.output.kind == "truncate" else stat.size)

    async def tail(self, limit: int, invocation_id: str | None) -> tuple[LogLine, ...]:
        """The newest lines, oldest first. Raises: HostError."""
        stat = await self._look(ask=True)
        if stat is None:
            return ()
        offset, data = await read_tail(self._transport, self.output.path, stat.size, TAIL)
        lines, _ = self._split(data, offset, stat)
        chosen = [line for line, _ in lines if invocation_id is None or line.invocation_id == invocation_id]
        return tuple(chosen[-limit:])

    async def follow(self, place: FilePlace | None) -> AsyncGenerator[FileBatch, None]:
        """Batches from a place on (``None`` = from the beginning), for ever, across cuts of the link.

        Raises:
            HostFileError: this user may not read the file.
        """
        await self.close()
        reading = _Reading(place.offset if place is not None else 0)
        if place is not None and place.offset:
            reading.content = self._taken.get(place)
        pause = FAST_S
        first = True
        while True:
            try:
                batch = await self._next(reading, place, first=first)
            except HostUnreachable:
                await asyncio.sleep(SLOW_S)
                continue
            place = None
            if batch.lines or first:
                yield batch
            first = first and not batch.all_given
            pause = FAST_S if batch.lines else min(SLOW_S, pause * 1.3)
            await asyncio.sleep(pause if batch.all_given else 0)

    async def _next(self, reading: _Reading, place: FilePlace | None, *, first: bool) -> FileBatch:
        """What is new; ``place`` is where the reading began, at its first look."""
        # What watched until now may have been stopped in the middle of a question.
        stat = await self._look(ask=first or time.monotonic() - self._asked_at > ASK_EVERY_S)
        if stat is None:
            return FileBatch((), all_given=True)
        if place is not None and place.inode not in (0, stat.inode):
            self._change("was replaced")
        if reading.mark and stat.size >= reading.offset:
            before = await self._transport.read(
                self.output.path, offset=reading.offset - len(reading.mark), limit=len(reading.mark)
            )
            if before != reading.mark:
                self._change("was emptied")
                await self._look(ask=True)
        said: tuple[tuple[LogLine, FilePlace], ...] = ()
        if reading.content is not None and reading.content != self._content:
            said = ((self._changed(), FilePlace(stat.inode, 0)),)
            reading.offset, reading.mark = 0, b""
        reading.content = self._content
        if stat.size <= reading.offset:
            return FileBatch(said, all_given=True)
        data = await self._transport.read(self.output.path, offset=reading.offset, limit=min(_CHUNK, stat.size - reading.offset))
        lines, used = self._split(data, reading.offset, stat)
        reading.offset += used
        reading.mark = (reading.mark + data[:used])[-MARK:]
        return FileBatch((*said, *lines), all_given=reading.offset >= stat.size or not used)

    def _change(self, how: str) -> None:
        """What stands in the file is not what stood there."""
        self._content += 1
        self._how = how
        self._spans = StartSpans()

    def _changed(self) -> LogLine:
        if self.output.kind == "truncate":
            return LogLine(f"[{self.output.path} {self._how} here, as it is by each start]", origin="console")
        return LogLine(f"[{self.output.path} {self._how} here; lines that were still to be read are missing]", origin="gap")

    def _split(self, data: bytes, offset: int, stat: Extent) -> tuple[tuple[tuple[LogLine, FilePlace], ...], int]:
        used = data.rfind(b"\n") + 1
        if not used and len(data) >= LINE_LIMIT:
            used = len(data)
        found: list[tuple[LogLine, FilePlace]] = []
        at = offset
        for raw in _lines(data[:used]):
            start = self._spans.start_of(at)
            at += len(raw)
            texts = decode_lines(raw.removesuffix(b"\n"))
            lines = mask_lines(LogLine(text, invocation_id=start) for text in texts)
            found += [(line, FilePlace(stat.inode, at)) for line in lines]
        return tuple(found), used

    async def _look(self, *, ask: bool) -> Extent | None:
        """Look at the file, and at the start's id where that is due; ``None`` when there is no file."""
        async with self._looking:
            fresh = not self._spans.any
            found = None if ask or fresh else await self._extent()
            if ask or fresh or (found.size if found is not None else 0) != self._size:
                seen = await look_at(self._transport, self._query, self.output.path)
                self._asked_at = time.monotonic()
                # Where nothing was found, the host's own words tell a file that is missing from one that this user may not see.
                found = seen.file or await self._extent()
                self._notice(found)
                fresh = not self._spans.any
                if fresh and self.output.kind == "truncate":
                    self._spans.emptied(seen.start)
                # Where the id changed between two looks, only what comes after this one's end is surely the new start's.
                self._spans.seen(found.size if found is not None else 0, seen.start, seen.size_after)
            else:
                self._notice(found)
            self._size = found.size if found is not None else 0
            return found

    def _notice(self, found: Extent | None) -> None:
        """See whether the file is what it was."""
        if found is None:
            return
        if self._inode and (found.inode != self._inode or found.size < self._size):
            self._change("was replaced" if found.inode != self._inode else "was emptied")
        self._inode = found.inode

    async def _watch(self) -> None:
        until = time.monotonic() + WATCH_S
        while time.monotonic() < until:
            with contextlib.suppress(HostUnreachable, HostFileError):
                await self._look(ask=True)
            await asyncio.sleep(FAST_S)

    async def _extent(self) -> Extent | None:
        try:
            stat = await self._transport.stat(self.output.path)
        except HostFileError as error:
            if error.missing:
                return None
            raise
        return Extent(stat.inode, stat.size)


def _lines(data: bytes) -> list[bytes]:
    """Lines with their newlines; a carriage return ends none."""
    return [line + b"\n" for line in data.split(b"\n")[:-1]] if data.endswith(b"\n") else [data]
