"""The log of a systemd unit: its journal, and the files that its outputs go to where they go to some."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial

from ..evidence.journal import LogLine
from ..evidence.journal_cursor import LogPlace, parse_place
from .journald_file import OutputFile
from .journald_log import JournaldLog
from .journald_output import UnitOutputs, find_outputs
from .journald_query import Scope
from .transport import HostError, Transport

_WAITING = 4
"""Batches of each source that wait for the caller at most."""


class Journal:
    """The log methods of :class:`~dflash_console.hosts.service.Service` for one unit.

    A line of an output file has no time, and a start only where that is certain. Lines of several sources are in the order in
    which they were found; within each, in the order in which they were written.
    """

    def __init__(self, transport: Transport, unit: str, *, scope: Scope = "system", sudo: bool = False) -> None:
        """``sudo``: try ``sudo -n`` where this user may not read the journal; it is never asked for a password."""
        self._transport = transport
        self._unit = unit
        self._journal = JournaldLog(transport, unit, scope=scope, sudo=sudo)
        self._outputs = UnitOutputs()
        self._files: tuple[OutputFile, ...] = ()

    async def cursor(self) -> str:
        """The end of the log right now; :meth:`follow` from it gives every line that is written later.

        Raises:
            HostError: the journal or an output file cannot be read.
        """
        files = await self._output_files()
        place = await self._journal.cursor()
        return str(replace(place, files=tuple([await file.end() for file in files])))

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
            HostError: the journal or an output file cannot be read, or ``cursor`` is none of this log.
        """
        place = self._place(cursor)
        files = await self._output_files()
        for line in self._said(cursor or "", invocation_id):
            yield (line,)
        if not files:
            async with contextlib.aclosing(self._journal.batches(place, invocation_id)) as batches:
                async for batch in batches:
                    yield batch
        else:
            async with contextlib.aclosing(self._merged(place, files, invocation_id)) as merged:
                async for batch in merged:
                    yield batch

    async def _merged(
        self, place: LogPlace, files: tuple[OutputFile, ...], invocation_id: str | None
    ) -> AsyncGenerator[tuple[LogLine, ...], None]:
        found: asyncio.Queue[tuple[LogLine, ...] | Exception] = asyncio.Queue(_WAITING)
        where = place
        stored = [asyncio.Event() for _ in range(len(files) + 1)]

        async def journal() -> None:
            nonlocal where
            async for batch in self._journal.batches(place, invocation_id):
                for line in batch:
                    where = where.after(line.cursor)
                    await found.put((replace(line, cursor=str(where)),))
                if not batch:
                    stored[0].set()
                    await found.put(())

        async def output(number: int) -> None:
            nonlocal where
            async for batch in files[number].follow(place.files[number] if number < len(place.files) else None):
                lines = []
                for line, after in batch.lines:
                    where = where.with_file(number, after)
                    # What the console says of the file concerns every start.
                    if invocation_id is None or line.invocation_id == invocation_id or line.origin != "engine":
                        lines.append(replace(line, cursor=str(where)))
                if lines:
                    await found.put(tuple(lines))
                if batch.all_given and not stored[number + 1].is_set():
                    stored[number + 1].set()
                    await found.put(())

        async def run(source: Callable[[], Awaitable[None]]) -> None:
            try:
                await source()
            except Exception as error:
                await found.put(error)

        sources: list[Callable[[], Awaitable[None]]] = [journal, *(partial(output, number) for number in range(len(files)))]
        tasks = [asyncio.create_task(run(source)) for source in sources]
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
            HostError: the journal or an output file cannot be read.
        """
        files = await self._output_files()
        place = await self._journal.log_start()
        if not files:
            return str(place) if place is not None else None
        return str(replace(place or LogPlace(), files=tuple([await file.begin() for file in files])))

    async def lines(self, *, invocation_id: str | None = None, limit: int = 5_000) -> tuple[LogLine, ...]:
        """The newest stored lines, oldest first; those of output files after the journal's. Before them stands where outputs go
        that are not in the journal.

        Raises:
            HostError: the journal or an output file cannot be read.
        """
        files = await self._output_files()
        journal = await self._journal.lines(invocation_id, limit)
        if not files:
            return (*self._said("", invocation_id), *journal)
        last = LogPlace(journal[-1].cursor if journal else "", tuple([await file.end() for file in files]))
        lines = [line for file in files for line in await file.tail(limit, invocation_id)]
        newest = (*journal, *(replace(line, cursor=str(last)) for line in lines))[-limit:]
        return (*self._said(str(last), invocation_id), *newest)

    def _said(self, cursor: str, invocation_id: str | None) -> tuple[LogLine, ...]:
        """What the log has to tell of outputs that are not in the journal."""
        return tuple(
            LogLine(sink.said, cursor=cursor, invocation_id=invocation_id, origin="unseen" if sink.unseen else "console")
            for sink in self._outputs.said
        )

    async def close(self) -> None:
        """End what watches the output files between two calls."""
        for file in self._files:
            await file.close()

    async def _output_files(self) -> tuple[OutputFile, ...]:
        """The files that outputs go to now; none = the journal, or nothing that can be read."""
        query = await self._journal.query()
        outputs = await find_outputs(self._transport, query)
        if outputs != self._outputs:
            await self.close()
            self._outputs = outputs
            self._files = tuple(OutputFile(self._transport, query, output) for output in outputs.files)
            self._journal.look_in(outputs.namespace)
        return self._files

    def _place(self, cursor: str | None) -> LogPlace:
        try:
            return parse_place(cursor)
        except ValueError as error:
            raise HostError(f"the log of {self._unit} cannot be followed: {error}") from None
