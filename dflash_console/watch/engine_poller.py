"""Polling the engine's HTTP API: its report, metrics and loads, and whether it is the unit's own engine that answers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ..hosts.service import RunState
from ..knobs import PLAIN
from ..state import Aged, HostState, Rates
from .builder import SnapshotBuilder, aged
from .strangers import StrangerWatch

if TYPE_CHECKING:
    from ..hosts.http import EngineHttp
    from ..hosts.service import ServiceConfig, ServiceState
    from .log_fold import LogFold
    from .meters import Meters
    from .notes import Notes
    from .sources import Sources

SLOW_EVERY_S = 5.0
"""How often what seldom changes is read again (server_info, loads beside metrics)."""


class EnginePoller:
    """Asks when it is told to, and puts the answers into ``builder``.

    Args:
        fold: the log so far: which lines a report must know, and the newest decode line's figures.
        read_drafter: reads the drafter of a configuration again, for a report may name one that the files do not.
        look_again: reads the service's state anew into ``builder``.
    """

    def __init__(
        self,
        sources: Sources,
        builder: SnapshotBuilder,
        fold: LogFold,
        notes: Notes,
        read_drafter: Callable[[ServiceConfig], Awaitable[None]],
        look_again: Callable[[], Awaitable[None]],
    ) -> None:
        self._sources = sources
        self._builder = builder
        self._fold = fold
        self._notes = notes
        self._read_drafter = read_drafter
        self._look_again = look_again
        self._strangers = StrangerWatch(sources.stranger)
        self._made_meters: Meters | None = None
        self._slow_at = 0.0
        self._changes = 0

    def ask_all(self) -> None:
        """Let the next :meth:`poll` read what seldom changes too."""
        self._slow_at = 0.0

    def settings_changed(self) -> None:
        """The running engine took another setting: what verifies brought before it is not mixed with what they bring now, and
        what the server reports of itself is old."""
        self._changes += 1
        if self._made_meters is not None:
            self._made_meters.rates.begin_anew()
            self._builder.set(rates=self._made_meters.rates.rates)
        self.ask_all()

    def forget_start(self) -> None:
        """Another start: no rate goes on from the one before, and its report is to be read."""
        if self._made_meters is not None:
            self._made_meters.rates.restart()
        self._builder.set(silent=False)
        self.ask_all()

    async def poll(self) -> None:
        """Ask for the report, the metrics and the loads, where the unit runs; the report seldom, see :data:`SLOW_EVERY_S`."""
        state = self._builder.state
        if state.service is None or state.config is None or state.service.value.state is not RunState.RUNNING:
            self._forget_answers()
            if state.service is not None and state.config is not None:
                await self._look_for_stranger(state.config.value, state.service.value)
            return
        http = await self._builder.read(
            "server", self._sources.http(state.config.value, state.process.value.argv if state.process is not None else ())
        )
        if http is None:
            if not await self._ended_meanwhile(state):
                self._builder.set(silent=state.said_ready)
            return
        slow = time.monotonic() - self._slow_at >= SLOW_EVERY_S or not state.ready
        if slow and not await self._poll_server(http):
            return
        asked = self._builder.state
        given = await self._poll_metrics(http)
        if not given and self._unanswered and await self._ended_meanwhile(asked):
            return
        if slow or not given:
            loads = await self._builder.read("loads", self._sources.loads(http))
            self._builder.set(loads=aged(loads) if loads is not None else None)

    async def _poll_server(self, http: EngineHttp) -> bool:
        """Read ``/server_info``; whether the engine answers at all."""
        from ..hosts.http import HttpFailure

        asked = self._builder.state
        invocation, said_ready = self._builder.invocation, asked.said_ready
        read_before = self._fold.lines_of(invocation)
        info = await self._builder.read("server", self._sources.server(http))
        if info is None:
            if self._unanswered and await self._ended_meanwhile(asked):
                return False
            self._builder.set(silent=said_ready and invocation == self._builder.invocation)
            if self._builder.failure is HttpFailure.NOT_LISTENING:
                self._strangers.doubt()
                self._builder.set(ready=False, stranger=None)
                return False
            if await self._answered_by_stranger():
                return False
            # An engine that answers, if only to refuse the key, is up.
            up = self._builder.failure is not HttpFailure.SILENT
            self._builder.set(ready=up, silent=self._builder.state.silent and not up)
            return up
        if await self._answered_by_stranger() or invocation != self._builder.invocation:
            return False
        known = self._builder.state.server
        self._slow_at = time.monotonic()
        self._builder.set(server=aged(info), report_after=read_before, ready=True, silent=False)
        if known is None and self._builder.state.config is not None and "drafter" in self._builder.problems:
            await self._read_drafter(self._builder.state.config.value)
        return True

    @property
    def _unanswered(self) -> bool:
        """Whether the newest question brought no answer at all, not even a refusal."""
        from ..hosts.http import HttpFailure

        return self._builder.failure in (HttpFailure.NOT_LISTENING, HttpFailure.SILENT, HttpFailure.BROKEN)

    async def _ended_meanwhile(self, asked: HostState) -> bool:
        """Whether the start that was asked something (``asked`` is the snapshot before that) is being ended, or has been: then
        it is no fault that it did not answer. Looked at only where an answer was to be expected."""
        failure, before = self._builder.failure, asked.service
        if before is None or not asked.been_ready:
            return False
        await self._look_again()
        self._builder.failure = failure
        now = self._builder.state.service
        runs_on = now is not None and now.value.state is RunState.RUNNING and now.value.main_pid == before.value.main_pid
        if runs_on and self._builder.invocation == before.value.invocation_id:
            return False
        self._forget_answers()
        return True

    def _forget_answers(self) -> None:
        """Nothing runs that could be asked."""
        for source in ("server", "metrics", "loads"):
            self._builder.problems.pop(source, None)
        self._builder.set(ready=False, silent=False)

    async def _answered_by_stranger(self) -> bool:
        """Whether the answer that just came, or the silence, is another program's: then it is not taken for the engine's."""
        state = self._builder.state
        if state.service is None or state.config is None:
            return False
        failure = self._builder.failure
        found = await self._look_for_stranger(state.config.value, state.service.value)
        self._builder.failure = failure
        if found:
            for source in ("server", "metrics", "loads"):
                self._builder.problems.pop(source, None)
            self._meters.rates.restart()
            self._builder.set(ready=False, server=None, loads=None, metrics=None, rates=Rates())
        return found

    async def _look_for_stranger(self, config: ServiceConfig, service: ServiceState) -> bool:
        """Whether another program listens where the engine should; noted either way."""
        found = await self._strangers.ask(config, service)
        self._builder.set(stranger=None if found is None else aged(found))
        return found is not None

    async def _poll_metrics(self, http: EngineHttp) -> bool:
        """Read ``/metrics`` and what follows from it; False when there were none."""
        about = (self._builder.invocation, self._changes)
        sample = await self._builder.read("metrics", self._sources.metrics(http))
        if sample is None or about != (self._builder.invocation, self._changes):
            # One that was asked for before a start or a change may count what came before it.
            return sample is not None
        moment = time.monotonic()
        rates = self._meters.rates.add(sample, moment, self._fold.new_decode_line(), time_of_day=time.time())
        self._builder.set(metrics=Aged(sample, moment), rates=rates)
        server = self._builder.state.server.value if self._builder.state.server else None
        plain = server is not None and server.algorithm == PLAIN
        self._notes.note_rates(rates, self._meters.baseline, plain=plain)
        return True

    @property
    def _meters(self) -> Meters:
        if self._made_meters is None:
            from .meters import Meters

            self._made_meters = Meters()
        return self._made_meters
