"""The real host behind the screens: a session, its watcher, its history, its engine.

Imported by a worker after the first paint. What only a prompt or a change needs is imported by the first of them.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ..config import load_config
from ..config_edit import save_profile
from ..history import MarkKind
from ..hosts.transport import HostError
from ..knobs import KnobError, Value
from ..session import HostSession
from ..tasks import end_task
from ..watch.sources import load_readers
from .link import ApplyChoices, Control, LinkError, OnStage, Past
from .link_errors import link_error
from .model import mark_words
from .series import SPANS, Mark, Point

if TYPE_CHECKING:
    from ..apply.records import ApplyResult
    from ..evidence.journal import LogLine
    from ..history import Mark as HistoryMark
    from ..history import Sample
    from ..hosts.transport import CommandRecord, Link
    from ..load.client import OnChunk, OnDone
    from ..load.records import RequestRecord
    from ..load.request import PromptRequest
    from ..plan import Mode, Plan
    from ..state import HostState
    from .live_operations import LiveOperations
    from .tree import VerifyPicture

BATCH_S = 0.05
"""Log lines that come within this time are shown together."""
STORED_LINES = 5_000
PAST_POINTS = 600
"""Of each span of the plots, which is more than the widest plot has dots: whichever span is looked at, neighbouring samples are
neighbouring dots, and the line is a line."""


class SessionLink:
    """A :class:`~dflash_console.tui.link.HostLink` on a :class:`~dflash_console.session.HostSession`."""

    def __init__(self, session: HostSession) -> None:
        self._session = session
        self._made: LiveOperations | None = None

    @property
    def _operations(self) -> LiveOperations:
        """What carries changes out, imported when it is first needed: the first snapshot must not wait for it."""
        if self._made is None:
            from .live_operations import LiveOperations

            self._made = LiveOperations(self._session)
        return self._made

    @property
    def read_only(self) -> bool:
        return self._session.read_only

    @property
    def session(self) -> HostSession:
        """What stands behind this link."""
        return self._session

    @property
    def connection(self) -> Link | None:
        return None if self._session.embedded else self._session.transport.link

    def commands(self) -> tuple[CommandRecord, ...]:
        from ..evidence.secrets import mask_argv

        return tuple(replace(record, argv=mask_argv(record.argv)) for record in self._session.transport.commands.records())

    async def reconnect(self) -> None:
        from ..hosts.ssh import SshTransport

        if isinstance(self._session.transport, SshTransport):
            try:
                await self._session.transport.connect()
            except HostError as error:
                raise link_error(error) from None

    async def states(self) -> AsyncIterator[HostState]:
        # The service's state first, alone: what reads the rest is imported while that is on the screen.
        watcher = self._session.watcher
        yield await watcher.look()
        await asyncio.to_thread(load_readers)
        await watcher.start()
        async for state in watcher.states():
            yield state

    async def past(self, seconds: float) -> Past:
        history, key = self._session.history, self._session.key
        until = time.time()
        since = until - seconds
        ages = [0.0, *(span for span in SPANS if span < seconds), seconds]
        samples: list[Sample] = []
        for younger, older in reversed(list(pairwise(ages))):
            samples += await history.samples(key, until - older, until - younger, PAST_POINTS)
        marks = await history.marks(key, since, until)
        baseline = await history.baseline(key)
        return Past(
            decode=tuple(Point(sample.at, sample.decode_tok_s) for sample in samples),
            commit=tuple(Point(sample.at, sample.commit_length) for sample in samples if sample.commit_length is not None),
            marks=past_marks(marks),
            baseline=None if baseline is None else baseline.decode_tok_s,
        )

    async def follow(self, *, this_start: bool) -> AsyncIterator[tuple[LogLine, ...]]:
        service = self._session.service
        try:
            invocation = (await service.state()).invocation_id if this_start else None
            end = await service.cursor()
            # What is to be told of the outputs comes with following.
            found = await service.lines(invocation_id=invocation, limit=STORED_LINES)
            stored = tuple(line for line in found if line.origin not in ("console", "unseen"))
            yield stored
            queue: asyncio.Queue[LogLine | None] = asyncio.Queue()
            pump = asyncio.create_task(self._pump(queue, stored[-1].cursor if stored else end, invocation))
            try:
                async for batch in _batches(queue):
                    yield batch
            finally:
                await end_task(pump)
        except HostError as error:
            raise LinkError(str(error)) from None

    async def _pump(self, queue: asyncio.Queue[LogLine | None], cursor: str, invocation: str | None) -> None:
        try:
            async for line in self._session.service.follow(cursor=cursor, invocation_id=invocation):
                queue.put_nowait(line)
        finally:
            queue.put_nowait(None)

    async def plan(
        self,
        state: HostState,
        settings: Mapping[str, Value],
        mode: Mode,
        *,
        persist: bool = False,
        commit_confirm: bool = False,
    ) -> Plan:
        return await self._operations.plan(settings, mode, persist=persist, commit_confirm=commit_confirm)

    async def plan_drop_in(self, *, release: bool) -> Plan:
        return await self._operations.plan_drop_in(release=release)

    async def plan_roll_back(self) -> Plan:
        return await self._operations.plan_roll_back()

    async def apply(self, plan: Plan, choices: ApplyChoices, on_stage: OnStage) -> ApplyResult:
        return await self._operations.apply(plan, choices, on_stage)

    async def roll_back(self, plan: Plan, choices: ApplyChoices, on_stage: OnStage) -> ApplyResult:
        return await self._operations.roll_back(plan, choices, on_stage)

    async def control(self, control: Control, on_stage: OnStage) -> ApplyResult:
        return await self._operations.control(control, on_stage)

    async def pending(self) -> str:
        # In a thread, because it imports what carries changes out and reads the journals.
        return await asyncio.to_thread(lambda: self._operations.pending())

    async def send(self, requests: Sequence[PromptRequest], on_chunk: OnChunk, on_done: OnDone) -> tuple[RequestRecord, ...]:
        from ..firing import fire

        try:
            return await fire(self._session, requests, on_chunk, on_done)
        except HostError as error:
            raise LinkError(str(error)) from None

    async def verifies(self, limit: int) -> tuple[VerifyPicture, ...]:
        from ..firing import own_engine
        from .tree import PictureError, read_pictures

        try:
            engine = await own_engine(self._session)
        except HostError as error:
            raise LinkError(str(error)) from None
        try:
            return read_pictures(json.loads(await engine.rounds(limit)))
        except HostError as error:
            raise LinkError(f"This engine keeps no record of its verifies: {error}") from None
        except (PictureError, ValueError) as error:
            raise LinkError(f"The engine's record of its verifies cannot be read: {error}") from None

    async def save_profile(self, name: str, settings: Mapping[str, Value]) -> None:
        try:
            await asyncio.to_thread(save_profile, self._session.paths.config_file, name, settings)
        except (OSError, ValueError) as error:
            raise LinkError(f"The profile could not be saved: {error}") from None

    async def profiles(self) -> Mapping[str, Mapping[str, Value]]:
        config = (await asyncio.to_thread(load_config, self._session.paths.config_file)).config
        try:
            return {name: config.profile(name) for name in config.profiles}
        except KnobError as error:
            raise LinkError(f"The profiles cannot be read: {error}") from None

    async def close(self) -> None:
        await self._session.close()


def past_marks(marks: Sequence[HistoryMark]) -> tuple[Mark, ...]:
    """What the plots show of history's marks, oldest first. The first start that is known of is no *re*start."""
    shown: list[Mark] = []
    started = False
    for mark in marks:
        if mark.kind is MarkKind.RESTART:
            shown.append(Mark(mark.at, "restart" if started else "start", mark.text.removeprefix("start ")))
            started = True
        elif mark.kind is MarkKind.HOT and mark.text:
            # In the words of one that was seen to happen: it may be the same, and is then marked once.
            name, _, value = mark.text.partition(" ")
            shown.append(Mark(mark.at, mark_words(name, value)))
        elif mark.kind is not MarkKind.APPLY:
            shown.append(Mark(mark.at, mark.kind.value))
    return tuple(shown)


async def _batches(queue: asyncio.Queue[LogLine | None]) -> AsyncIterator[tuple[LogLine, ...]]:
    """Lines that come together, together; ends with the ``None`` that the source leaves when it ends."""
    while True:
        line = await queue.get()
        if line is None:
            return
        batch = [line]
        await asyncio.sleep(BATCH_S)
        while not queue.empty():
            more = queue.get_nowait()
            if more is None:
                yield tuple(batch)
                return
            batch.append(more)
        yield tuple(batch)
