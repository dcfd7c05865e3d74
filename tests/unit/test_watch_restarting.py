"""An engine that is stopped or started anew while it is being asked: that it does not answer then is no fault of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest

from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.metrics import MetricsSample
from dflash_console.evidence.process import ProcessEvidence
from dflash_console.evidence.server import Loads, ServerInfo, parse_server_info
from dflash_console.hosts.gpus import NoGpuTool
from dflash_console.hosts.http import EngineHttp, EngineHttpError, HttpFailure
from dflash_console.hosts.service import ConfigSource, RunState, ServiceConfig, ServiceState
from dflash_console.watch import Watcher
from dflash_console.watch.sources import Sources

COMMAND = ("python", "-m", "engine_launch", "serve", "--port", "30000")
RUNNING = ServiceState("engine", RunState.RUNNING, invocation_id="a" * 32, main_pid=7)
STARTED_ANEW = replace(RUNNING, invocation_id="b" * 32, main_pid=9)
AUTO_RESTART = replace(RUNNING, state=RunState.FAILED, main_pid=None, result="signal")


class ScriptedHost:
    """A unit and its engine: the engine answers until it is told not to."""

    unit = "engine"

    def __init__(self) -> None:
        self.service = self
        self.now = RUNNING
        self.failure: HttpFailure | None = None
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens on the host when the engine is asked and does not answer."""
        self.configurations = 0
        self.log_comes = asyncio.Event()
        self.log_comes.set()

    # The unit

    async def state(self) -> ServiceState:
        return self.now

    async def configuration(self) -> ServiceConfig:
        self.configurations += 1
        return ServiceConfig((ConfigSource("/etc/engine.service", ""),), COMMAND, COMMAND)

    async def log_start(self) -> str:
        return "start"

    async def batches(self, *, cursor: str) -> AsyncIterator[tuple[LogLine, ...]]:
        await self.log_comes.wait()
        yield (LogLine("The server is fired up and ready to roll!", invocation_id="a" * 32, number=1),)
        yield ()
        await asyncio.Event().wait()

    # What is asked

    async def changed_since(self, config: ServiceConfig) -> bool:
        return False

    async def process(self, pid: int) -> ProcessEvidence:
        return ProcessEvidence(pid, COMMAND)

    async def gpus(self) -> tuple[()]:
        raise NoGpuTool("no nvidia-smi")

    async def drafter(self, command: object, info: object) -> None:
        return None

    async def stranger(self, config: ServiceConfig, service: ServiceState) -> None:
        return None

    async def http(self, config: ServiceConfig, argv: object = ()) -> EngineHttp:
        return EngineHttp("http://127.0.0.1:30000")

    def _answer(self) -> None:
        if self.failure is not None:
            self.meanwhile()
            raise EngineHttpError(self.failure, "nothing listens: the engine is down or still loading")

    async def server(self, http: EngineHttp) -> ServerInfo:
        self._answer()
        return parse_server_info(b'{"version": "0.5.17"}')

    async def metrics(self, http: EngineHttp) -> MetricsSample:
        self._answer()
        return MetricsSample()

    async def loads(self, http: EngineHttp) -> Loads:
        self._answer()
        return Loads()

    def stops_answering(self, failure: HttpFailure, then: ServiceState) -> None:
        """From now on no question is answered; by the time the first one is not, the unit's state is ``then``."""
        self.failure = failure
        self.meanwhile = lambda: setattr(self, "now", then)


@asynccontextmanager
async def watched(host: ScriptedHost) -> AsyncIterator[Watcher]:
    """A watcher that looks when it is told to."""
    watcher = Watcher("here", cast(Sources, host), interval_s=3600.0)
    await watcher.start()
    try:
        yield watcher
    finally:
        await watcher.close()


ENDS = {
    "being stopped": replace(RUNNING, state=RunState.STOPPING),
    "stopped": replace(RUNNING, state=RunState.STOPPED, main_pid=None),
    "waiting for its restart": AUTO_RESTART,
    "being started": replace(STARTED_ANEW, state=RunState.STARTING, main_pid=None),
    "started anew": STARTED_ANEW,
}


@pytest.mark.parametrize("then", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("failure", [HttpFailure.NOT_LISTENING, HttpFailure.BROKEN, HttpFailure.SILENT])
async def test_an_engine_that_is_ended_while_it_is_asked_is_not_called_silent(failure: HttpFailure, then: ServiceState) -> None:
    host = ScriptedHost()
    async with watched(host) as watcher:
        assert (await watcher.settled()).ready
        host.stops_answering(failure, then)
        state = await watcher.refresh()
        assert state.service is not None
        assert state.service.value == then
        assert (state.ready, state.silent) == (False, False)
        assert not {"server", "metrics", "loads"} & set(state.problems)


async def test_so_it_is_when_only_its_figures_were_asked_for() -> None:
    host = ScriptedHost()
    async with watched(host) as watcher:
        assert (await watcher.settled()).ready
        host.stops_answering(HttpFailure.NOT_LISTENING, ENDS["being stopped"])
        await watcher._engine.poll()  # refresh() would ask for the report first
        state = watcher._builder.state
        assert state.service is not None
        assert state.service.value.state is RunState.STOPPING
        assert not {"server", "metrics", "loads"} & set(watcher._builder.problems)


async def test_one_that_runs_on_and_does_not_answer_is_silent() -> None:
    host = ScriptedHost()
    async with watched(host) as watcher:
        assert (await watcher.settled()).ready
        host.stops_answering(HttpFailure.NOT_LISTENING, RUNNING)
        state = await watcher.refresh()
        assert (state.ready, state.silent) == (False, True)
        assert "nothing listens" in state.problems["server"]


async def test_the_configuration_of_a_start_that_was_noticed_so_is_read_all_the_same() -> None:
    host = ScriptedHost()
    async with watched(host) as watcher:
        await watcher.settled()
        before = host.configurations
        host.stops_answering(HttpFailure.NOT_LISTENING, STARTED_ANEW)
        await watcher.refresh()
        await watcher.refresh()
        assert host.configurations == before + 1


async def test_one_that_was_asked_before_its_log_was_read_is_asked_again() -> None:
    host = ScriptedHost()
    host.log_comes.clear()
    host.stops_answering(HttpFailure.NOT_LISTENING, RUNNING)
    async with watched(host) as watcher:
        asyncio.get_running_loop().call_later(0.2, host.log_comes.set)
        state = await watcher.settled()
        assert state.silent
    host = ScriptedHost()
    host.log_comes.clear()
    host.stops_answering(HttpFailure.NOT_LISTENING, RUNNING)
    async with watched(host) as watcher:
        asyncio.get_running_loop().call_later(0.2, host.log_comes.set)
        asyncio.get_running_loop().call_later(0.1, host.stops_answering, HttpFailure.NOT_LISTENING, ENDS["being stopped"])
        state = await watcher.settled()
        assert not state.silent
        assert state.service is not None
        assert state.service.value.state is RunState.STOPPING
