"""The sampler of one service: polls its sources, follows its log, and publishes what is known as :class:`HostState`.

Three loops run at their own pace: the service manager, its files and the engine's HTTP API (:mod:`engine_poller`); the log; the
GPUs. A source that fails keeps its last value with its age, and the reason stands under ``HostState.problems``. A new invocation
id empties everything that belongs to a start.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from ..evidence.secrets import mask_text
from ..hosts.service import RunState
from ..hosts.transport import HostError
from ..state import HostState, Rates
from .board import OnState
from .builder import SnapshotBuilder, aged
from .engine_poller import EnginePoller
from .log_fold import LogFold
from .notes import Notes

if TYPE_CHECKING:
    from ..evidence.gpu import GpuRow
    from ..evidence.gpu_holders import GpuHolder
    from ..evidence.journal import LogLine
    from ..evidence.process import ProcessEvidence
    from ..history import History
    from ..hosts.service import ServiceConfig, ServiceState
    from .sources import Sources

LONGEST_PAUSE_S = 30.0
"""Between two attempts after an error of the console's own."""
WRAPPER_S = 2.0
"""Before a second look for the engine that a wrapper may have started; each pause is twice the one before, up to the longest."""
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
        self._builder = SnapshotBuilder(HostState(host, sources.service.unit, embedded=embedded))
        self._fold = LogFold()
        self._engine = EnginePoller(sources, self._builder, self._fold, self._notes, self._poll_drafter, self._look_again)
        self._tasks: list[asyncio.Task[None]] = []
        self._polling = asyncio.Lock()
        self._log_read = asyncio.Event()
        self._polled = asyncio.Event()
        self._configured: tuple[str | None, str] | None = None
        """The start and the manager's view of the files when the configuration was read last."""
        self._gpus_read = asyncio.Event()
        self._looked_for_engine = 0.0
        self._wrapper_pause = WRAPPER_S

    @property
    def state(self) -> HostState:
        """The newest snapshot."""
        return self._builder.board.state

    def subscribe(self, callback: OnState) -> Callable[[], None]:
        """Call ``callback`` with every snapshot from now on; the answer ends that."""
        return self._builder.board.subscribe(callback)

    def states(self) -> AsyncIterator[HostState]:
        """The snapshot now, then each newer one; a slow reader gets the newest only."""
        return self._builder.board.states()

    async def look(self) -> HostState:
        """Read the service's state alone, and publish it: what a screen can show before anything else has been read."""
        await self._look_again()
        self._builder.publish()
        return self.state

    async def start(self) -> None:
        """Begin watching. Returns when the service's state, configuration and process have been read once."""
        if not self._tasks:
            await self._poll_service()
            self._builder.publish()
            loops = {"poll": self._poll_loop, "log": self._log_loop, "gpus": self._gpu_loop}
            self._tasks = [asyncio.create_task(self._keep(source, loop)) for source, loop in loops.items()]

    async def settled(self, timeout: float = 3.0) -> HostState:
        """Wait until every source has been asked once and the stored log is read; then the snapshot.

        An engine that was asked before its log was known to say that it is ready is asked again: only then is silence a fault.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._log_read.wait()
                await self._polled.wait()
                if self.state.said_ready and not self.state.ready and not self.state.silent:
                    await self.refresh()
        return self.state

    async def gpus_settled(self, timeout: float = 3.0) -> HostState:
        """Wait until the GPUs have been asked about once; a tool that hangs is a problem of the snapshot, which lacks them."""
        try:
            async with asyncio.timeout(timeout):
                await self._gpus_read.wait()
        except TimeoutError:
            if self._polled.is_set():
                hangs = f"within {timeout:g} s; the GPU driver may hang (dmesg tells)"
                if self._builder.state.gpus is None:
                    self._builder.problems["gpus"] = f"nvidia-smi did not answer {hangs}"
                else:
                    self._builder.problems["gpu processes"] = f"nvidia-smi did not say which processes hold GPU memory {hangs}"
                self._builder.publish()
        return self.state

    async def refresh(self) -> HostState:
        """Ask every source now (the log is followed anyway)."""
        await self._poll_service()
        self._engine.ask_all()
        await self._engine.poll()
        self._builder.publish()
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
                self._builder.problems[source] = f"an error of the console's own ({said}); it is tried again"
                self._log_read.set()
                self._polled.set()
                self._builder.publish()
                # What it stumbled over may be there for long, and reading a long log anew is work.
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE_S, 2 * pause)

    async def _look_again(self) -> None:
        async with self._polling:
            await self._poll_state()

    async def _poll_loop(self) -> None:
        first = True
        while True:
            begun = time.monotonic()
            if not first:
                await self._poll_service()
            first = False
            await self._engine.poll()
            self._builder.problems.pop("poll", None)
            self._builder.publish()
            self._polled.set()
            await asyncio.sleep(max(0.05, self._interval - (time.monotonic() - begun)))

    async def _poll_service(self) -> None:
        async with self._polling:
            before = self._builder.state.service.value if self._builder.state.service else None
            service = await self._poll_state()
            if service is None:
                self._builder.publish()
                return
            # The manager's view may change without a file's: a daemon-reload, a drop-in in a folder that is new.
            seen = (service.invocation_id, service.config_mark)
            await self._poll_config(renewed=self._configured != seen)
            self._configured = seen
            await self._poll_process(service.main_pid)
            if before != service:
                # The engine may be slow to answer now; that it was started or stopped must not wait for that.
                self._builder.publish()

    async def _poll_state(self) -> ServiceState | None:
        before = self._builder.state.service.value if self._builder.state.service else None
        service = await self._builder.read("service", self._sources.service.state())
        if service is None:
            return None
        if before is None or before.invocation_id != service.invocation_id:
            self._forget_start(service)
        running = service.state is RunState.RUNNING
        self._builder.set(
            service=aged(service),
            ready=self._builder.state.ready and running,
            server=self._builder.state.server if running else None,
        )
        if not running:
            self._builder.set(gpu_holders=None)
        return service

    async def _poll_config(self, *, renewed: bool) -> None:
        """Read the configuration when a file of it changed, or when what is loaded may have (a new start)."""
        known = self._builder.state.config
        try:
            stale = (
                known is None or renewed or "config" in self._builder.problems or await self._sources.changed_since(known.value)
            )
        except HostError as error:
            # The link broke in the middle: what was read stays, with its age, and is read again when the host answers.
            self._builder.problems["config"] = str(error)
            return
        if known is None or stale:
            config = await self._builder.read("config", self._sources.service.configuration())
            if config is not None:
                await self._poll_drafter(config)
                self._builder.set(config=aged(config))
        else:
            self._builder.set(config=aged(known.value))

    async def _poll_drafter(self, config: ServiceConfig) -> None:
        info = self._builder.state.server.value if self._builder.state.server else None
        if config.problems and not config.command and self._sources.drafter_config_path((), info) is None:
            # Which drafter the configuration names is not known; that it cannot be read is said once, of the configuration.
            self._builder.problems.pop("drafter", None)
            self._builder.set(drafter=None)
            return
        drafter = await self._builder.read("drafter", self._sources.drafter(config.command, info))
        self._builder.set(drafter=aged(drafter) if drafter is not None else None)

    async def _poll_process(self, pid: int | None) -> None:
        known = self._builder.state.process
        if pid is None:
            self._builder.problems.pop("process", None)
            self._builder.set(process=None)
        elif known is not None and known.value.pid == pid and known.value.argv and not self._may_begin(known.value):
            self._builder.set(process=aged(known.value))
        else:
            again = known is not None and known.value.pid == pid
            self._wrapper_pause = min(2 * self._wrapper_pause, LONGEST_PAUSE_S) if again else WRAPPER_S
            self._looked_for_engine = time.monotonic()
            process = await self._builder.read("process", self._sources.process(pid))
            self._builder.set(process=aged(process) if process is not None else None)

    def _may_begin(self, process: ProcessEvidence) -> bool:
        """Whether a wrapper may have started the engine by now, or become it, since it was looked at."""
        from ..evidence.command import find_engine

        return find_engine(process.argv) is None and time.monotonic() - self._looked_for_engine >= self._wrapper_pause

    async def _gpu_loop(self) -> None:
        """Beside the others, because the tool that is asked may take seconds or hang."""
        await self._polled.wait()
        from ..hosts.gpus import NoGpuTool
        from .gpus import GpuPoller

        poller = GpuPoller(self._sources.gpus, self._gpu_holders, self._take_gpus)
        while True:
            try:
                look = await poller.poll()
                if look.holders is not None:
                    self._builder.set(gpu_holders=aged(look.holders))
                if look.problem:
                    self._builder.problems["gpu processes"] = look.problem
                else:
                    self._builder.problems.pop("gpu processes", None)
            except NoGpuTool as error:
                self._builder.set(gpus=aged(()))
                if not self._builder.state.embedded:
                    self._builder.problems["gpus"] = str(error)
            except HostError as error:
                self._builder.problems["gpus"] = str(error)
            self._builder.publish()
            self._gpus_read.set()
            await asyncio.sleep(poller.pause)

    def _take_gpus(self, rows: tuple[GpuRow, ...]) -> None:
        """Raises: HostError: there are none where some should be; mostly the tool fails over that."""
        if not rows and not self._builder.state.embedded:
            raise HostError("nvidia-smi lists no GPU")
        self._builder.set(gpus=aged(rows))
        self._builder.problems.pop("gpus", None)
        self._builder.publish()

    async def _gpu_holders(self) -> tuple[GpuHolder, ...] | None:
        """Who holds GPU memory; ``None`` while the engine loads (its ranks come one by one), and where a start came between."""
        service, process, invocation = self._builder.state.service, self._builder.state.process, self._builder.invocation
        if service is None or not self._builder.state.been_ready:
            return None
        unit = process.value.unit if process is not None else ""
        found = await self._sources.gpu_holders(service.value.main_pid, unit)
        return found if self._builder.state.been_ready and invocation == self._builder.invocation else None

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
                self._builder.problems["log"] = str(error)
                self._log_read.set()
                self._builder.publish()
                await asyncio.sleep(self._interval)

    def _take_lines(self, lines: tuple[LogLine, ...]) -> None:
        self._builder.problems.pop("log", None)
        self._fold.take(lines)
        changes = self._fold.new_changes()
        self._notes.note_changes(changes)
        # What the stored log tells of was changed before anything was counted.
        if self._log_read.is_set() and any(point.change.differs for point in changes):
            self._engine.settings_changed()
        elif changes:
            # Something may be in effect that the server's report does not have yet.
            self._engine.ask_all()
        service = self._builder.state.service
        if service is not None and service.value.invocation_id == self._fold.invocation:
            known = None if self._builder.state.log is None else self._builder.state.log.value
            self._builder.set(log=aged(self._fold.log))
            if known is None or known.told() != self._fold.log.told():
                self._builder.publish()

    def _forget_start(self, service: ServiceState) -> None:
        """Another start: nothing that was said by or about the one before is true of it."""
        self._engine.forget_start()
        self._fold.forget_decode_lines()
        for source in ("server", "metrics", "loads", "process"):
            self._builder.problems.pop(source, None)
        mine = self._fold.invocation == service.invocation_id
        self._builder.set(
            server=None,
            loads=None,
            metrics=None,
            process=None,
            rates=Rates(),
            gpu_holders=None,
            ready=False,
            stranger=None,
            log=aged(self._fold.log) if mine else None,
        )
        self._notes.note_start(service)
