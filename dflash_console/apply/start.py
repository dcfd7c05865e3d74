"""Following one start from the request to a server that answers: what proves the restart, and how far it has come.

Only lines of the new invocation count. The loop looks at three things at once: the log, the service manager, and the engine's
HTTP port, since an engine with a quiet log still gets ready and a dying one may say nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from ..evidence.engine_log import Phase, StartLog
from ..evidence.journal import LogLine
from ..evidence.process import parse_process
from ..evidence.server import ServerInfo, parse_server_info
from ..hosts import proc
from ..hosts.http import EngineHttpError, HttpFailure
from ..hosts.link import EngineLink
from ..hosts.service import RunState, Service, ServiceConfig, ServiceState
from ..hosts.transport import HostError, HostFileError, Transport
from .answering import answered_by_another
from .judge import shown_text
from .operation import Operation
from .records import StageFailed, StageStatus, Timeouts, Verdict

MILESTONES = (
    ("weights", (Phase.DRAFT_WEIGHTS, Phase.TARGET_WEIGHTS)),
    ("draft runner", (Phase.DRAFT_RUNNER,)),
    ("KV pool", (Phase.KV_POOL,)),
    ("graphs", (Phase.GRAPHS,)),
)
"""Stages that the log marks, in order, each with the phases of which the first that can come closes it."""
POLL_S = 0.15
_ERROR = re.compile(r"\berror\b|Error\b|fatal|cannot|failed", re.IGNORECASE)
LAST_LINES = 6
STORED_LOG_S = 5.0
"""For reading what the service manager said; a failure is told without its words rather than late."""


@dataclass(frozen=True)
class Before:
    """The service before the restart was asked for."""

    invocation_id: str | None
    main: proc.ProcessId | None
    cursor: str


async def look_before(transport: Transport, service: Service) -> Before:
    """Note what a restart must change. Raises: HostError."""
    state = await service.state()
    main = await identify(transport, state.main_pid) if state.main_pid is not None else None
    return Before(state.invocation_id, main, await service.cursor())


async def identify(transport: Transport, pid: int) -> proc.ProcessId | None:
    """The identity of a process on the host; ``None`` when it is gone."""
    try:
        stat = proc.parse_stat(await transport.read(f"/proc/{pid}/stat"))
    except HostFileError:
        return None
    return None if stat is None or stat.gone else proc.ProcessId(stat.pid, stat.ticks)


async def await_restart(transport: Transport, service: Service, before: Before, timeout: float) -> ServiceState:
    """Wait until the manager shows another invocation *and* the old process is gone.

    Raises:
        StageFailed: neither happened in time; what the manager said since is quoted.
    """
    until = time.monotonic() + timeout
    while True:
        state = await service.state()
        renewed = state.invocation_id is not None and state.invocation_id != before.invocation_id
        gone = before.main is None or await identify(transport, before.main.pid) != before.main
        if renewed and gone and state.state in (RunState.RUNNING, RunState.FAILED, RunState.STOPPED):
            return state
        if time.monotonic() >= until:
            break
        await asyncio.sleep(POLL_S / 2)
    said = await _manager_lines(service, before)
    if not renewed:
        shown = (before.invocation_id or "none")[:8]
        reason = f"the invocation id did not change (it is still {shown}…): no restart happened"
    else:
        assert before.main is not None
        reason = (
            f"a new start was recorded, but the old process {before.main.pid} still runs: nothing of the new one can be trusted"
        )
    if said:
        reason += f"; the service manager says: {shown_text(said[-1].text)}"
    raise StageFailed(Verdict.NO_RESTART, reason, said)


async def _manager_lines(service: Service, before: Before) -> tuple[LogLine, ...]:
    """What the service manager said since ``before``. Cursors are not compared: those of a journal have no order as texts."""
    said: deque[LogLine] = deque(maxlen=LAST_LINES)
    with contextlib.suppress(HostError, TimeoutError):
        async with asyncio.timeout(STORED_LOG_S):
            async for batch in service.batches(cursor=before.cursor):
                said.extend(line for line in batch if line.origin == "manager")
                if not batch:
                    break
    return tuple(said)


class StartFollower:
    """Waits for one invocation to become ready, and keeps what it said."""

    def __init__(
        self,
        transport: Transport,
        service: Service,
        link: EngineLink,
        invocation_id: str,
        cursor: str,
        timeouts: Timeouts,
        main_pid: int,
    ) -> None:
        self._transport = transport
        self._main_pid = main_pid
        self._service = service
        self._link = link
        self._invocation = invocation_id
        self._cursor = cursor
        self._timeouts = timeouts
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
        batches = self._service.batches(cursor=self._cursor, invocation_id=self._invocation)
        reader = asyncio.create_task(self._read(batches))
        failed_before = len(operation.stages)
        try:
            while not self._ready(config):
                self._milestones(operation, ended=False)
                check_early(self.log)
                if reader.done() and (problem := reader.exception()) is not None:
                    raise problem
                await self._still_alive()
                if time.monotonic() >= until:
                    self._timed_out()
                await asyncio.sleep(POLL_S)
            # The ready line is printed when the port opens; let the lines before it arrive.
            await self._catch_up()
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

    async def _read(self, batches: AsyncIterator[tuple[LogLine, ...]]) -> None:
        async for batch in batches:
            for begin in range(0, len(batch), 400):
                part = batch[begin : begin + 400]
                self.log = self.log.add_all(part)
                self.lines = [*self.lines, *part][-5_000:]
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
            http = await self._link.open(config)
            info = parse_server_info(await http.server_info())
        except EngineHttpError as error:
            if error.failure is HttpFailure.KEY and not await self._answered_by_another(config):
                raise StageFailed(Verdict.NOT_READY, str(error)) from error
            return None
        return None if info.problem or await self._answered_by_another(config) else info

    async def _answered_by_another(self, config: ServiceConfig) -> bool:
        """Whether the answer came from a program that this start did not bring."""
        self._stranger = await answered_by_another(self._transport, config, self._main_pid)
        return bool(self._stranger)

    async def _catch_up(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while not self.log.ready:
                    self._moved.clear()
                    await self._moved.wait()

    async def _still_alive(self) -> None:
        state = await self._service.state()
        if state.invocation_id == self._invocation and state.state in (RunState.RUNNING, RunState.STARTING):
            return
        await asyncio.sleep(0.2)
        lines = await self._service.lines(invocation_id=self._invocation, limit=400)
        log = StartLog().add_all(lines)
        waited = self._waiting_for()
        if state.invocation_id != self._invocation:
            reason = f"the process died and the manager started it again ({(state.invocation_id or '')[:8]}…): a crash loop"
        else:
            how = f"status {state.exit_status}" if state.exit_status is not None else state.result or "unknown"
            reason = f"the process died while waiting for {waited} ({how})"
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


async def read_argv(transport: Transport, pid: int) -> tuple[str, ...]:
    """The command line of a process as the kernel has it; empty when it cannot be read."""
    try:
        return parse_process(pid, cmdline=await transport.read(f"/proc/{pid}/cmdline")).argv
    except HostFileError:
        return ()


def last_words(lines: Sequence[LogLine], log: StartLog) -> tuple[str, tuple[LogLine, ...]]:
    """What a start that ended said of the reason, and the lines to show: the exception that was raised, else the last line that
    speaks of an error, else the last line (which alone may be a farewell)."""
    engine = [line for line in lines if line.origin == "engine" and line.text.strip()]
    errors = [line for line in engine if _ERROR.search(line.text)]
    said = log.raised or (errors or engine or [LogLine("")])[-1].text
    shown = engine[-LAST_LINES:]
    if errors and errors[-1] not in shown:
        shown = [errors[-1], *shown[1:]]
    return shown_text(said), tuple(shown)
