"""The log of a systemd unit: its journal, and the file that its output goes to where it goes to one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import replace

from ..evidence.journal import LogLine
from ..evidence.journal_cursor import LogPlace, parse_place
from .journald_file import OutputFile
from .journald_log import JournaldLog
from .journald_output import UnitOutput, find_output
from .journald_query import Scope
from .transport import HostError, Transport

_WAITING = 4
"""Batches of each source that wait for the caller at most."""


class Journal:
    """The log methods of :class:`~dflash_console.hosts.service.Service` for one unit.

    A line of an output file has no time, and a start only where that is certain. Lines of the two sources are in the order in
    which they were found; within each, in the order in which they were written.
    """

    def __init__(self, transport: Transport, unit: str, *, scope: Scope = "system", sudo: bool = False) -> None:
        """``sudo``: try ``sudo -n`` where this user may not read the journal; it is never asked for a password."""
        self._transport = transport
        self._unit = unit
        self._journal = JournaldLog(transport, unit, scope=scope, sudo=sudo)
        self._output = UnitOutput()
        self._file: OutputFile | None = None

    async def cursor(self) -> str:
        """The end of the log right now; :meth:`follow` from it gives every line that is written later.

        Raises:
            HostError: the journal or the output file cannot be read.
        """
        file = await self._output_file()
        place = await self._journal.cursor()
        return str(place if file is None else replace(place, file=await file.end()))

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
            HostError: the journal or the output file cannot be read, or ``cursor`` is none of this log.
        """
        place = self._place(cursor)
        file = await self._output_file()
        if self._output.said:
            yield (LogLine(self._output.said, cursor=cursor or "", invocation_id=invocation_id, origin="console"),)
        if file is None:
            async with contextlib.aclosing(self._journal.batches(place, invocation_id)) as batches:
                async for batch in batches:
                    yield batch
        else:
            async with contextlib.aclosing(self._merged(place, file, invocation_id)) as merged:
                async for batch in merged:
                    yield batch

    async def _merged(
        self, place: LogPlace, file: OutputFile, invocation_id: str | None
    ) -> AsyncGenerator[tuple[LogLine, ...], None]:
        found: asyncio.Queue[tuple[LogLine, ...] | Exception] = asyncio.Queue(_WAITING)
        where = place
        stored = asyncio.Event(), asyncio.Event()

        async def journal() -> None:
            nonlocal where
            async for batch in self._journal.batches(place, invocation_id):
                for line in batch:
                    where = where.after(line.cursor)
                    await found.put((replace(line, cursor=str(where)),))
                if not batch:
                    stored[0].set()
                    await found.put(())

        async def output() -> None:
            nonlocal where
            async for batch in file.follow(place.file):
                lines = []
                for line, after in batch.lines:
                    where = replace(where, file=after)
                    # What the console says of the file concerns every start.
                    if invocation_id is None or line.invocation_id == invocation_id or line.origin != "engine":
                        lines.append(replace(line, cursor=str(where)))
                if lines:
                    await found.put(tuple(lines))
                if batch.all_given and not stored[1].is_set():
                    stored[1].set()
                    await found.put(())

        async def run(source: Callable[[], Awaitable[None]]) -> None:
            try:
                await source()
            except Exception as error:
                await found.put(error)

        tasks = [asyncio.create_task(run(source)) for source in (journal, output)]
        said = False
        try:
            while True:
                batch = await found.get()
                if isinstance(batch, Exception):
                    raise batch
                if batch:
                    yield batch
                elif not said and all(event.is_set() for event in stored):
                    said = True
                    yield ()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def log_start(self) -> str | None:
        """The cursor at which the log of the newest start begins; ``None`` = from the oldest line.

        Raises:
            HostError: the journal or the output file cannot be read.
        """
        file = await self._output_file()
        place = await self._journal.log_start()
        if file is None:
            return str(place) if place is not None else None
        return str(replace(place or LogPlace(), file=await file.begin()))

    async def lines(self, *, invocation_id: str | None = None, limit: int = 5_000) -> tuple[LogLine, ...]:
        """The newest stored lines, oldest first; those of an output file after the journal's.

        Raises:
            HostError: the journal or the output file cannot be read.
        """
        file = await self._output_file()
        journal = await self._journal.lines(invocation_id, limit)
        if file is None:
            return journal
        last = LogPlace(journal[-1].cursor if journal else "", await file.end())
        lines = await file.tail(limit, invocation_id)
        return (*journal, *(replace(line, cursor=str(last)) for line in lines))[-limit:]

    async def close(self) -> None:
        """End what watches the output file between two calls."""
        if self._file is not None:
            await self._file.close()

    async def _output_file(self) -> OutputFile | None:
        """The file that the output goes to now; ``None`` = the journal, or nothing that can be read."""
        output = await find_output(self._transport, await self._journal.query())
        if output != self._output:
            await self.close()
            self._output, self._file = output, None
        if output.kind not in ("append", "truncate"):
            return None
        if self._file is None:
            self._file = OutputFile(self._transport, await self._journal.query(), output)
        return self._file

    def _place(self, cursor: str | None) -> LogPlace:
        try:
            return parse_place(cursor)
        except ValueError as error:
            raise HostError(f"the log of {self._unit} cannot be followed: {error}") from None
