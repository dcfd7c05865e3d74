"""Reading the log that a supervisor writes, through a transport: from a cursor, across rotation, line by line as it grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from ..evidence.journal import LogLine
from ..evidence.values import read_json
from .supervisor_log import LINE_LIMIT, LOG_NAME, MANAGER, OLD_LOG_NAME, cursor_of, first_offset, offset_of
from .transport import FileStat, HostFileError, Transport

FAST_S = 0.05
SLOW_S = 0.25
_CHUNK = 1 << 20
_HEAD = 2 * LINE_LIMIT


def read_line(raw: bytes) -> LogLine | None:
    """One stored line; ``None`` when it is not one (a line cut by a crash)."""
    try:
        fields = read_json(raw)
        if not isinstance(fields, dict):
            return None
        manager = fields["SYSLOG_IDENTIFIER"] == MANAGER
        text, cursor, invocation = fields["MESSAGE"], fields["__CURSOR"], fields["_SYSTEMD_INVOCATION_ID"]
        if not (isinstance(text, str) and isinstance(cursor, str) and isinstance(invocation, str)):
            return None
        return LogLine(
            text=text,
            cursor=cursor,
            at=int(fields["__REALTIME_TIMESTAMP"]) / 1e6,
            invocation_id=invocation,
            pid=int(fields["_PID"]),
            priority=int(fields["PRIORITY"]),
            origin="gap" if "N_DROPPED" in fields else "manager" if manager else "engine",
            number=int(fields["LINE_OF_START"]) if "LINE_OF_START" in fields else None,
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


class ProcessLog:
    """The log of one unit's folder. Any number of followers may use one object."""

    def __init__(self, transport: Transport, folder: str) -> None:
        self._transport = transport
        self._current = f"{folder}/{LOG_NAME}"
        self._old = f"{folder}/{OLD_LOG_NAME}"
        self._begins: dict[int, int] = {}
        """First offset by inode: a rotated file keeps its inode, and reading its head each time would cost more than the news."""

    async def end(self) -> str:
        """A cursor at the end of what is stored now."""
        stat = await self._stat(self._current)
        if stat is None or stat.size == 0:
            return cursor_of(0)
        return cursor_of(await self._begin(self._current, stat) + stat.size)

    async def stored(self, cursor: str | None = None) -> tuple[LogLine, ...]:
        """Everything stored from ``cursor`` on (``None`` = all)."""
        lines, _ = await self._news(offset_of(cursor) if cursor else None)
        return lines

    async def follow(self, cursor: str | None = None) -> AsyncIterator[tuple[LogLine, ...]]:
        """Batches of new lines from ``cursor`` on (``None`` = from the oldest stored), for ever. An empty batch says that all
        that is stored has been given; the log is asked often while it moves and four times a second when it is quiet."""
        offset = offset_of(cursor) if cursor else None
        seen: FileStat | None = None
        pause = FAST_S
        while True:
            stat = await self._stat(self._current)
            lines: tuple[LogLine, ...] = ()
            if stat is not None and (seen is None or (stat.inode, stat.size) != (seen.inode, seen.size)):
                lines, offset = await self._news(offset)
                seen = stat
            if lines:
                yield lines
            yield ()
            pause = FAST_S if lines else min(SLOW_S, pause * 1.3)
            await asyncio.sleep(pause)

    async def _news(self, offset: int | None) -> tuple[tuple[LogLine, ...], int | None]:
        """Lines from ``offset`` on, and the offset after them."""
        stat = await self._stat(self._current)
        if stat is None or stat.size == 0:
            return (), offset
        begin = await self._begin(self._current, stat)
        lines: list[LogLine] = []
        if offset is None or offset < begin:
            old = await self._stat(self._old)
            if old is not None and old.size:
                old_begin = await self._begin(self._old, old)
                if old_begin < begin:
                    lines, _ = await self._read(self._old, old_begin, max(offset or 0, old_begin))
            offset = begin
        more, offset = await self._read(self._current, begin, offset)
        return (*lines, *more), offset

    async def _read(self, path: str, begin: int, offset: int) -> tuple[list[LogLine], int]:
        lines: list[LogLine] = []
        while True:
            try:
                data = await self._transport.read(path, offset=offset - begin, limit=_CHUNK)
            except HostFileError as error:
                if error.missing:
                    break
                raise
            whole = data[: data.rfind(b"\n") + 1]
            raws = whole.split(b"\n")[:-1]
            if not raws or ((first := read_line(raws[0])) is not None and first.cursor != cursor_of(offset)):
                # Nothing new, or the file was rotated under the reading: the next look finds out which.
                break
            for raw in raws:
                offset += len(raw) + 1
                if (line := read_line(raw)) is not None:
                    # Who follows from a line's cursor has that line.
                    lines.append(replace(line, cursor=cursor_of(offset)))
            if len(data) < _CHUNK:
                break
        return lines, offset

    async def _begin(self, path: str, stat: FileStat) -> int:
        if stat.inode not in self._begins:
            begin = first_offset(await self._transport.read(path, limit=_HEAD))
            if begin is None:
                return 0
            if len(self._begins) > 16:
                self._begins.clear()
            self._begins[stat.inode] = begin
        return self._begins[stat.inode]

    async def _stat(self, path: str) -> FileStat | None:
        try:
            return await self._transport.stat(path)
        except HostFileError as error:
            if error.missing:
                return None
            raise
