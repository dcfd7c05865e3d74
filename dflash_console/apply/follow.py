"""Following one start to a server that answers: how far it has come, and what it said.

Only lines of the new invocation count. The loop looks at three things at once: the log, the service manager, and the engine's
HTTP port, since an engine with a quiet log still gets ready and a dying one may say nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

from ..evidence.engine_log import Phase, StartLog
from ..evidence.journal import LogLine
from ..evidence.server import ServerInfo, parse_server_info
from ..hosts.address import engine_address
from ..hosts.http import EngineHttpError, HttpFailure
from ..hosts.link import EngineLink
from ..hosts.service import RunState, Service, ServiceConfig
from ..hosts.transport import HostError, HostUnreachable, Transport
from ..hosts.wrapped import engine_argv
from .answering import answered_by_another
from .judge import shown_text
from .operation import Operation
from .patience import Patience
from .records import StageFailed, StageStatus, Timeouts, Verdict
from .start import LAST_LINES, POLL_S, Before, how_it_ended, last_words, rebooted, start_lines

MILESTONES = (
    ("weights", (Phase.DRAFT_WEIGHTS, Phase.TARGET_WEIGHTS)),
    ("draft runner", (Phase.DRAFT_RUNNER,)),
    ("KV pool", (Phase.KV_POOL,)),
    ("graphs", (Phase.GRAPHS,)),
)
"""Stages that the log marks, in order, each with the phases of which the first that can come closes it."""
CATCH_UP_S = 2.0
"""For the last lines to come, once the server answers."""
WRAPPER_S = 30.0
"""For a script that the unit runs to start its engine, so that its command line can be seen."""
STORED_LINES = 5_000


class StartFollower:
    """Waits for one invocation to become ready, and keeps what it said."""

    def __init__(
        self,
        transport: Transport,
        service: Service,
        link: EngineLink,
        invocation_id: str,
        before: Before,
        timeouts: Timeouts,
        main_pid: int,
        patience: Patience,
    ) -> None:
        self._transport = transport
        self._main_pid = main_pid
        self._begun = time.monotonic()
        self._service = service
        self._link = link
        self._invocation = invocation_id
        self._before = before
        self._cursor = before.cursor or None
        self._timeouts = timeouts
        self._patience = patience
        self.log_problem = before.log_problem
        """Why the log of this start cannot be read; empty while it can."""
        self.unseen = ""
        """Why a part of what the engine prints does not come, though the log can be read."""
        self.log = StartLog()
        self.lines: list[LogLine] = []
        self.server: ServerInfo | None = None
        self._stranger = ""
        """What is wrong with the answer that came, when it is another program's."""
        self._closed: set[str] = set()
        self._moved = asyncio.Event()
        self._probe: asyncio.Task[ServerInfo | None] | None = None

    async def follow(self, operation: Operation, config: ServiceConfig, check_early: Callable[[StartLog], None]) -> None:
        """Until the server answers.

        Args:
            check_early: looks at the log of a start that is still loading, and raises StageFailed when a value is wrong already:
                nobody has to wait minutes for the graphs of a configuration that is not the wanted one.

        Raises:
            StageFailed: the process died, another start began, a value is wrong already, or the time is up.
        """
        until = time.monotonic() + self._timeouts.ready
        reader = asyncio.create_task(self._read())
        failed_before = len(operation.stages)
        try:
            while not self._ready(config):
                self._milestones(operation, ended=False)
                check_early(self.log)
                if reader.done() and (problem := reader.exception()) is not None:
                    raise problem
                await self._still_alive(until)
                if time.monotonic() >= until:
                    self._timed_out()
                await asyncio.sleep(POLL_S)
            # The ready line is printed when the port opens; let the lines before it arrive.
            await self._catch_up(reader)
            self._milestones(operation, ended=True)
        except StageFailed as error:
            if not any(stage.status is StageStatus.FAILED for stage in operation.stages[failed_before:]):
                operation.failed_at(self._waiting_for(), error.reason)
            raise
        finally:
            for task in filter(None, (reader, self._probe)):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, HostError, StageFailed):
                    await task

    async def _read(self) -> None:
        """Fold the log as it comes. A log that cannot be read is noted: other evidence may do."""
        if self.log_problem:
            return
        try:
            await self._fold(self._service.batches(cursor=self._cursor, invocation_id=self._invocation))
        except HostError as error:
            self.log_problem = str(error)

    async def _fold(self, batches: AsyncIterator[tuple[LogLine, ...]]) -> None:
        async for batch in batches:
            for begin in range(0, len(batch), 400):
                part = batch[begin : begin + 400]
                self.log = self.log.add_all(part)
                self.unseen = self.unseen or next((line.text.strip("[]") for line in part if line.origin == "unseen"), "")
                self.lines = [*self.lines, *part][-STORED_LINES:]
                self._moved.set()
                await asyncio.sleep(0)

    def _ready(self, config: ServiceConfig) -> bool:
        """Whether the server has answered. The question runs beside the loop: something that accepts the connection and says
        nothing must not hide that the process died."""
        if self._probe is None:
            self._probe = asyncio.create_task(self._ask(config))
        if not self._probe.done():
            return False
        info, self._probe = self._probe.result(), None
        if info is None:
            return False
        self.server = info
        return True

    async def _ask(self, config: ServiceConfig) -> ServerInfo | None:
        try:
            argv = await self._engines_words(config)
            if argv is None:
                return None
            http = await self._link.open(config, argv=argv)
            info = parse_server_info(await http.server_info())
        except EngineHttpError as error:
            if error.failure is HttpFailure.KEY and not await self._answered_by_another(config):
                raise StageFailed(Verdict.NOT_READY, str(error)) from error
            return None
        except HostUnreachable:
            return None
        except HostError as error:
            # The way to the port is barred (no forwarding): waiting would not open it.
            raise StageFailed(Verdict.NOT_READY, str(error)) from error
        return None if info.problem or await self._answered_by_another(config) else info

    async def _engines_words(self, config: ServiceConfig) -> tuple[str, ...] | None:
        """The command line of this start's engine, where the unit's does not name one; ``None`` while a wrapper may still start
        it."""
        if engine_address(config.command) is not None:
            return ()
        argv = await engine_argv(self._transport, self._main_pid)
        return argv if engine_address(argv) is not None or time.monotonic() - self._begun >= WRAPPER_S else None

    async def _answered_by_another(self, config: ServiceConfig) -> bool:
        """Whether the answer came from a program that this start did not bring."""
        self._stranger = await answered_by_another(self._transport, config, self._main_pid)
        return bool(self._stranger)

    async def _catch_up(self, reader: asyncio.Task[None]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                while not self.log.ready and not reader.done():
                    self._moved.clear()
                    await self._moved.wait()
        if self.log.ready or self.log_problem:
            return
        # Following may lag behind, as after a cut. What is stored by now is complete up to here.
        stored = await self._patience.ask(lambda: start_lines(self._service, self._invocation, limit=STORED_LINES))
        log = StartLog().add_all(stored)
        if log.ready or len(log.phases) > len(self.log.phases):
            self.log, self.lines = log, list(stored)

    async def _still_alive(self, until: float) -> None:
        state = await self._patience.ask(self._service.state, until=until)
        if state.invocation_id == self._invocation and state.state in (RunState.RUNNING, RunState.STARTING):
            return
        await asyncio.sleep(0.2)
        lines = await self._patience.ask(lambda: start_lines(self._service, self._invocation), until=until)
        log = StartLog().add_all(lines)
        waited = self._waiting_for()
        if await self._patience.ask(lambda: rebooted(self._transport, self._before), until=until):
            now = f"the unit is {state.state.value}" + (" (started at boot)" if state.main_pid is not None else "")
            reason = f"the host was rebooted while this waited for {waited}, and the start ended with it; {now}"
        elif state.invocation_id != self._invocation:
            reason = f"the process died and the manager started it again ({(state.invocation_id or '')[:8]}…): a crash loop"
        else:
            reason = f"the process died while waiting for {waited} ({how_it_ended(state)})"
        said, shown = last_words(lines, log)
        reason = f"{reason}: {said}" if said else reason
        raise StageFailed(Verdict.PROCESS_DIED, f"{reason}; {self._stranger}" if self._stranger else reason, shown)

    def _timed_out(self) -> None:
        waited = self._waiting_for()
        last = next((line.text for line in reversed(self.lines) if line.origin == "engine" and line.text.strip()), "")
        reason = f"timed out after {self._timeouts.ready:g} s while waiting for {waited}; the process still runs"
        reason += f", its last line: {shown_text(last)}" if last else " and has printed nothing"
        if self._stranger:
            reason += f"; {self._stranger}"
        raise StageFailed(Verdict.TIMED_OUT, reason, tuple(self.lines[-LAST_LINES:]))

    def _waiting_for(self) -> str:
        # Graphs are captured by GPU engines only, so nothing waits for them by name.
        for name, phases in MILESTONES:
            if name not in self._closed and name != "graphs" and phases[0] not in self.log.phases:
                return name
        return "ready"

    def _milestones(self, operation: Operation, *, ended: bool) -> None:
        """Close the stages whose lines have come; with ``ended``, note those that will not come any more."""
        for name, phases in MILESTONES:
            if name in self._closed:
                continue
            mark = next((self.log.phases[phase] for phase in phases if phase in self.log.phases), None)
            # The target's weights close the stage only when no drafter's can come any more.
            target_only = mark is not None and mark.phase is Phase.TARGET_WEIGHTS and Phase.KV_POOL not in self.log.phases
            if mark is not None and (ended or not target_only):
                self._closed.add(name)
                operation.reached(name, mark.text, mark.number)
            elif ended or (mark is None and self._past_any(name)):
                self._closed.add(name)
                operation.skip(name, "not printed by this start")
            else:
                break
        if not ended:
            operation.wait_for(self._waiting_for())
            if self.log.progress is not None:
                bar = self.log.progress
                operation.move(bar.label, (bar.done, bar.total))

    def _past_any(self, name: str) -> bool:
        names = [milestone for milestone, _ in MILESTONES]
        later = MILESTONES[names.index(name) + 1 :]
        return any(phase in self.log.phases for _, phases in later for phase in phases) or self.log.ready
