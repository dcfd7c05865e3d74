"""The sampler of one service: polls its sources, follows its log, and publishes what is known as :class:`HostState`.

Three loops run at their own pace: the service manager, its files and the engine's HTTP API; the log; the GPUs. A source that
fails keeps its last value with its age, and the reason stands under ``HostState.problems``. A new invocation id empties
everything that belongs to a start.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ..evidence.secrets import mask_text
from ..hosts.service import RunState
from ..hosts.transport import HostError
from ..knobs import PLAIN
from ..state import Aged, HostState, Rates
from .board import OnState, StateBoard
from .log_fold import LogFold
from .notes import Notes
from .strangers import StrangerWatch

if TYPE_CHECKING:
    from ..evidence.gpu_holders import GpuHolder
    from ..evidence.journal import LogLine
    from ..history import History
    from ..hosts.http import EngineHttp, HttpFailure
    from ..hosts.service import ServiceConfig, ServiceState
    from .meters import Meters
    from .sources import Sources

T = TypeVar("T")

SLOW_EVERY_S = 5.0
"""How often what seldom changes is read again (server_info, loads beside metrics)."""
LONGEST_PAUSE_S = 30.0
"""Between two attempts after an error of the console's own."""
LOG_BATCH = 400
"""Lines folded before other tasks get their turn."""


class Watcher:
    """Watches one service until closed. All methods belong to one event loop."""

    def __init__(
        self,
        host: str,
        sources: Sources,
        *,
        embedded: bool = False,
        interval_s: float = 1.0,
        history: History | None = None,
        history_key: str = "",
    ) -> None:
        self._sources = sources
        self._interval = interval_s
        self._notes = Notes(history, history_key or f"{host}/{sources.service.unit}")
        self._next = self._shown = HostState(host, sources.service.unit, embedded=embedded)
        self._board = StateBoard(self._next)
        self._strangers = StrangerWatch(sources.stranger)
        self._made_meters: Meters | None = None
        self._fold = LogFold()
        self._slow_at = 0.0
        self._problems: dict[str, str] = {}
        self._failure: HttpFailure | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._polling = asyncio.Lock()
        self._log_read = asyncio.Event()
        self._polled = asyncio.Event()
        self._gpus_read = asyncio.Event()

    @property
    def state(self) -> HostState:
        """The newest snapshot."""
        return self._board.state

    def subscribe(self, callback: OnState) -> Callable[[], None]:
        """Call ``callback`` with every snapshot from now on; the answer ends that."""
        return self._board.subscribe(callback)

    def states(self) -> AsyncIterator[HostState]:
        """The snapshot now, then each newer one; a slow reader gets the newest only."""
        return self._board.states()

    async def look(self) -> HostState:
        """Read the service's state alone, and publish it: what a screen can show before anything else has been read."""
        async with self._polling:
            await self._poll_state()
            self._publish()
        return self.state

    async def start(self) -> None:
        """Begin watching. Returns when the service's state, configuration and process have been read once."""
        if not self._tasks:
            await self._poll_service()
            self._publish()
            loops = {"poll": self._poll_loop, "log": self._log_loop, "gpus": self._gpu_loop}
            self._tasks = [asyncio.create_task(self._keep(source, loop)) for source, loop in loops.items()]

    async def settled(self, timeout: float = 3.0) -> HostState:
        """Wait until every source has been asked once and the stored log is read; then the snapshot."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._log_read.wait()
                await self._polled.wait()
        return self.state

    async def gpus_settled(self, timeout: float = 3.0) -> HostState:
        """Wait until the GPUs have been asked about once; the tool may hang, and then the snapshot is without them."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._gpus_read.wait()
        return self.state

    async def refresh(self) -> HostState:
        """Ask every source now (the log is followed anyway)."""
        await self._poll_service()
        self._slow_at = 0.0
        await self._poll_engine()
        self._publish()
        return self.state

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            # How watching ended must not take the place of what the caller has to say.
            with contextlib.suppress(asyncio.CancelledError, HostError):
                await task
        self._tasks.clear()

    async def _keep(self, source: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop until cancelled. An error of the console's own in it is shown as that source's problem: a loop that ended
        unseen would leave old figures on the screen for ever."""
        pause = self._interval
        while True:
            try:
                await loop()
            except Exception as error:
                said = mask_text(f"{type(error).__name__}: {error}")
                self._problems[source] = f"an error of the console's own ({said}); it is tried again"
                self._log_read.set()
                self._polled.set()
                self._publish()
                # What it stumbled over may be there for long, and reading a long log anew is work.
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE_S, 2 * pause)

    async def _poll_loop(self) -> None:
        first = True
        while True:
            begun = time.monotonic()
            if not first:
                await self._poll_service()
            first = False
            await self._poll_engine()
            self._problems.pop("poll", None)
            self._publish()
            self._polled.set()
            await asyncio.sleep(max(0.05, self._interval - (time.monotonic() - begun)))

    async def _poll_service(self) -> None:
        async with self._polling:
            before = self._next.service.value if self._next.service else None
            service = await self._poll_state()
            if service is None:
                self._publish()
                return
            # The manager's view may change without a file's: a daemon-reload, a drop-in in a folder that is new.
            known = (before.invocation_id, before.config_mark) if before is not None else None
            await self._poll_config(renewed=known != (service.invocation_id, service.config_mark))
            await self._poll_process(service.main_pid)
            if before != service:
                # The engine may be slow to answer now; that it was started or stopped must not wait for that.
                self._publish()

    async def _poll_state(self) -> ServiceState | None:
        before = self._next.service.value if self._next.service else None
        service = await self._read("service", self._sources.service.state())
        if service is None:
            return None
        if before is None or before.invocation_id != service.invocation_id:
            self._forget_start(service)
        running = service.state is RunState.RUNNING
        self._set(service=_now(service), ready=self._next.ready and running, server=self._next.server if running else None)
        if not running:
            self._set(gpu_holders=None)
        return service

    async def _poll_config(self, *, renewed: bool) -> None:
        """Read the configuration when a file of it changed, or when what is loaded may have (a new start)."""
        known = self._next.config
        try:
            stale = known is None or renewed or "config" in self._problems or await self._sources.changed_since(known.value)
        except HostError as error:
            # The link broke in the middle: what was read stays, with its age, and is read again when the host answers.
            self._problems["config"] = str(error)
            return
        if known is None or stale:
            config = await self._read("config", self._sources.service.configuration())
            if config is not None:
                await self._poll_drafter(config)
                self._set(config=_now(config))
        else:
            self._set(config=_now(known.value))

    async def _poll_drafter(self, config: ServiceConfig) -> None:
        info = self._next.server.value if self._next.server else None
        drafter = await self._read("drafter", self._sources.drafter(config.command, info))
        self._set(drafter=_now(drafter) if drafter is not None else None)

    async def _poll_process(self, pid: int | None) -> None:
        known = self._next.process
        if pid is None:
            self._problems.pop("process", None)
            self._set(process=None)
        elif known is not None and known.value.pid == pid and known.value.argv:
            self._set(process=_now(known.value))
        else:
            process = await self._read("process", self._sources.process(pid))
            self._set(process=_now(process) if process is not None else None)

    async def _poll_engine(self) -> None:
        state = self._next
        if state.service is None or state.config is None or state.service.value.state is not RunState.RUNNING:
            for source in ("server", "metrics", "loads"):
                self._problems.pop(source, None)
            self._set(ready=False)
            if state.service is not None and state.config is not None:
                await self._look_for_stranger(state.config.value, state.service.value)
            return
        http = await self._read(
            "server", self._sources.http(state.config.value, state.process.value.argv if state.process is not None else ())
        )
        if http is None:
            return
        slow = time.monotonic() - self._slow_at >= SLOW_EVERY_S or not state.ready
        if slow and not await self._poll_server(http):
            return
        if await self._poll_metrics(http) is False or slow:
            loads = await self._read("loads", self._sources.loads(http))
            self._set(loads=_now(loads) if loads is not None else None)

    async def _poll_server(self, http: EngineHttp) -> bool:
        """Read ``/server_info``; whether the engine answers at all."""
        from ..hosts.http import HttpFailure

        invocation = self._invocation()
        read_before = self._fold.lines_of(invocation)
        info = await self._read("server", self._sources.server(http))
        if info is None:
            if self._failure is HttpFailure.NOT_LISTENING:
                self._strangers.doubt()
                self._set(ready=False, stranger=None)
                return False
            if await self._answered_by_stranger():
                return False
            # An engine that answers, if only to refuse the key, is up.
            up = self._failure is not HttpFailure.SILENT
            self._set(ready=up)
            return up
        if await self._answered_by_stranger() or invocation != self._invocation():
            return False
        known = self._next.server
        self._slow_at = time.monotonic()
        self._set(server=_now(info), report_after=read_before, ready=True)
        if known is None and self._next.config is not None and "drafter" in self._problems:
            await self._poll_drafter(self._next.config.value)
        return True

    async def _answered_by_stranger(self) -> bool:
        """Whether the answer that just came, or the silence, is another program's: then it is not taken for the engine's."""
        state = self._next
        if state.service is None or state.config is None:
            return False
        failure = self._failure
        found = await self._look_for_stranger(state.config.value, state.service.value)
        self._failure = failure
        if found:
            for source in ("server", "metrics", "loads"):
                self._problems.pop(source, None)
            self._meters.rates.restart()
            self._set(ready=False, server=None, loads=None, metrics=None, rates=Rates())
        return found

    async def _look_for_stranger(self, config: ServiceConfig, service: ServiceState) -> bool:
        """Whether another program listens where the engine should; noted either way."""
        found = await self._strangers.ask(config, service)
        self._set(stranger=None if found is None else _now(found))
        return found is not None

    async def _poll_metrics(self, http: EngineHttp) -> bool:
        """Read ``/metrics`` and what follows from it; False when the engine has none."""
        invocation = self._invocation()
        sample = await self._read("metrics", self._sources.metrics(http))
        if sample is None or invocation != self._invocation():
            return sample is not None
        moment = time.monotonic()
        rates = self._meters.rates.add(sample, moment, self._fold.new_decode_line())
        self._set(metrics=Aged(sample, moment), rates=rates)
        server = self._next.server.value if self._next.server else None
        plain = server is not None and server.algorithm == PLAIN
        self._notes.note_rates(rates, self._meters.baseline, plain=plain)
        return True

    async def _gpu_loop(self) -> None:
        """Beside the others, because the tool that is asked may take seconds or hang."""
        await self._polled.wait()
        from ..hosts.gpus import NoGpuTool
        from .gpus import GpuPoller

        poller = GpuPoller(self._sources.gpus, self._gpu_holders)
        while True:
            try:
                look = await poller.poll()
                self._set(gpus=_now(look.rows))
                if look.holders is not None:
                    self._set(gpu_holders=_now(look.holders))
                self._problems.pop("gpus", None)
                if look.problem:
                    self._problems["gpu processes"] = look.problem
                else:
                    self._problems.pop("gpu processes", None)
            except NoGpuTool as error:
                self._set(gpus=_now(()))
                if not self._next.embedded:
                    self._problems["gpus"] = str(error)
            except HostError as error:
                self._problems["gpus"] = str(error)
            self._publish()
            self._gpus_read.set()
            await asyncio.sleep(poller.pause)

    async def _gpu_holders(self) -> tuple[GpuHolder, ...] | None:
        """Who holds GPU memory; ``None`` while the engine loads (its ranks come one by one), and where a start came between."""
        service, process, invocation = self._next.service, self._next.process, self._invocation()
        if service is None or not self._next.been_ready:
            return None
        unit = process.value.unit if process is not None else ""
        found = await self._sources.gpu_holders(service.value.main_pid, unit)
        return found if self._next.been_ready and invocation == self._invocation() else None

    async def _log_loop(self) -> None:
        while True:
            # From the start's first line on, so that nothing is counted twice when this is not the first time.
            self._fold.begin_again()
            try:
                cursor = await self._sources.service.log_start()
                async for batch in self._sources.service.batches(cursor=cursor):
                    if not batch:
                        self._log_read.set()
                        continue
                    for begin in range(0, len(batch), LOG_BATCH):
                        self._take_lines(batch[begin : begin + LOG_BATCH])
                        await asyncio.sleep(0)
            except HostError as error:
                self._problems["log"] = str(error)
                self._log_read.set()
                self._publish()
                await asyncio.sleep(self._interval)

    def _take_lines(self, lines: tuple[LogLine, ...]) -> None:
        self._problems.pop("log", None)
        self._fold.take(lines)
        changes = self._fold.new_changes()
        self._notes.note_changes(changes)
        if changes:
            # What is in effect changed, so what the server says of it is old.
            self._slow_at = 0.0
        service = self._next.service
        if service is not None and service.value.invocation_id == self._fold.invocation:
            known = None if self._next.log is None else self._next.log.value
            self._set(log=_now(self._fold.log))
            if known is None or known.told() != self._fold.log.told():
                self._publish()

    def _forget_start(self, service: ServiceState) -> None:
        """Another start: nothing that was said by or about the one before is true of it."""
        if self._made_meters is not None:
            self._made_meters.rates.restart()
        self._slow_at = 0.0
        self._fold.forget_decode_lines()
        for source in ("server", "metrics", "loads", "process"):
            self._problems.pop(source, None)
        mine = self._fold.invocation == service.invocation_id
        self._set(
            server=None,
            loads=None,
            metrics=None,
            process=None,
            rates=Rates(),
            gpu_holders=None,
            ready=False,
            stranger=None,
            log=_now(self._fold.log) if mine else None,
        )
        self._notes.note_start(service)

    @property
    def _meters(self) -> Meters:
        if self._made_meters is None:
            from .meters import Meters

            self._made_meters = Meters()
        return self._made_meters

    async def _read(self, source: str, reading: Awaitable[T]) -> T | None:
        """The answer of one source; ``None`` when it failed, with the reason noted."""
        self._failure = None
        try:
            found = await reading
        except HostError as error:
            from ..hosts.http import EngineHttpError

            self._failure = error.failure if isinstance(error, EngineHttpError) else None
            self._problems[source] = str(error)
            return None
        self._problems.pop(source, None)
        return found

    def _set(self, **parts: object) -> None:
        """Note the parts that were read; :meth:`_publish` shows them. Other loops may have set others meanwhile, so only these
        are replaced."""
        # dataclasses.replace cannot check keywords that are collected; a wrong name fails the first test that polls.
        self._next = replace(self._next, **parts)  # type: ignore[arg-type]

    def _publish(self) -> None:
        if self._next.problems != self._problems:
            self._set(problems=dict(self._problems))
        if self._next != self._shown:
            self._shown = self._next
            self._board.put(self._next)

    def _invocation(self) -> str | None:
        return self._next.service.value.invocation_id if self._next.service else None


def _now(value: T) -> Aged[T]:
    return Aged(value, time.monotonic())
