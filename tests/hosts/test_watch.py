"""The watcher against a running engine: what it reads, what it forgets at a restart, what it says when a source fails."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from dflash_console.evidence.metrics import MetricsSample
from dflash_console.evidence.server import in_effect_reading
from dflash_console.history import MarkKind
from dflash_console.hosts.http import EngineHttp
from dflash_console.hosts.link import EngineLink
from dflash_console.hosts.service import RunState
from dflash_console.knobs import KNOBS
from dflash_console.state import HostState
from dflash_console.watch import Watcher
from dflash_console.watch.sources import Sources

from .conftest import MakeUnit
from .waiting import until
from .watching import Watching, watching, when

__all__ = ["watching"]


def is_ready(state: HostState) -> bool:
    answers = state.ready and state.server is not None and state.metrics is not None
    return answers and state.process is not None and state.log is not None and state.log.value.ready


async def test_a_stopped_service_is_known_before_start_returns(make_unit: MakeUnit, watching: Watching) -> None:
    begun = time.monotonic()
    watcher = await watching.start(make_unit("--speculative-draft-window-size", "512"))
    assert time.monotonic() - begun < 10.0, "a bound for a busy machine; a benchmark measures the second"
    state = watcher.state
    assert state.service is not None
    assert state.service.value.state is RunState.STOPPED
    assert state.config is not None
    assert state.config.value.command[-1] == "512"
    assert (state.process, state.server, state.ready) == (None, None, False)


async def test_a_running_engine_is_read_from_every_source(make_unit: MakeUnit, watching: Watching) -> None:
    unit = make_unit("--speculative-draft-window-size", "512")
    watcher = await watching.start(unit)
    await unit.service.start()
    state = await when(watcher, is_ready)
    assert state.service is not None
    assert state.process is not None
    assert state.process.value.pid == state.service.value.main_pid
    assert state.log is not None
    assert state.log.value.values["draft_window_size"].text == "512"
    assert state.server is not None
    assert in_effect_reading(state.server.value, KNOBS["draft_window"]).value == 512
    assert state.rates.running == 0
    assert not {"service", "config", "process", "server", "metrics", "log"} & set(state.problems)


async def test_a_restart_empties_what_was_known_of_the_start_before(make_unit: MakeUnit, watching: Watching) -> None:
    unit = make_unit()
    watcher = await watching.start(unit)
    await unit.service.start()
    before = await when(watcher, is_ready)
    seen: list[HostState] = []
    unsubscribe = watcher.subscribe(seen.append)
    await unit.service.restart()
    assert before.service is not None
    old = before.service.value.invocation_id
    after = await when(
        watcher, lambda state: is_ready(state) and state.service is not None and state.service.value.invocation_id != old
    )
    unsubscribe()
    assert not [state for state in seen if state.silent], "no question went unanswered after a start had said that it was ready"
    first = next(state for state in seen if state.service is not None and state.service.value.invocation_id != old)
    assert (first.server, first.metrics, first.loads, first.ready) == (None, None, None, False)
    assert first.rates.running is None
    assert before.process is not None
    assert after.process is not None
    assert after.process.value.pid != before.process.value.pid
    marks = await watching.history.marks("k", 0, time.time() + 10)
    assert [mark.kind for mark in marks] == [MarkKind.RESTART, MarkKind.RESTART]


async def test_a_hot_change_is_seen_in_the_log_and_in_what_the_server_says(make_unit: MakeUnit, watching: Watching) -> None:
    unit = make_unit()
    watcher = await watching.start(unit)
    await unit.service.start()
    await when(watcher, is_ready)
    http = await EngineLink(unit.transport).open(await unit.service.configuration())
    assert await http.set_internal_state({"speculative_ddtree_budget": 32}) == (True,)
    await http.close()

    def changed(state: HostState) -> bool:
        # The log and the report are read one after the other.
        reported = state.server is not None and in_effect_reading(state.server.value, KNOBS["tree_budget"]).value == 32
        return reported and state.log is not None and bool(state.log.value.hot_changes)

    state = await when(watcher, changed)
    assert state.log is not None
    counted = await when(watcher, lambda state: state.rates.changed and state.rates.accept_since is not None)
    assert abs((counted.rates.accept_since or 0.0) - time.time()) < 60.0, "verifies are counted anew"
    assert [point.change.new for point in state.log.value.hot_changes] == ["32"]
    http = await EngineLink(unit.transport).open(await unit.service.configuration())
    assert await http.set_internal_state({"speculative_ddtree_budget": 32}) == (True,)
    await http.close()
    again = await when(watcher, lambda state: state.log is not None and len(state.log.value.hot_changes) == 2)
    assert again.rates.accept_since == counted.rates.accept_since, "the same value again begins nothing anew"
    assert MarkKind.HOT in [mark.kind for mark in await watching.history.marks("k", 0, time.time() + 10)]


async def test_a_change_of_the_file_is_noticed_while_the_loaded_command_stays(make_unit: MakeUnit, watching: Watching) -> None:
    unit = make_unit()
    watcher = await watching.start(unit)
    await unit.service.start()
    await when(watcher, is_ready)
    unit.file.write_text(unit.file.read_text().replace('"serve",', '"serve", "--speculative-ddtree-budget", "64",'))
    state = await when(watcher, lambda state: state.config is not None and "64" in state.config.value.command)
    assert state.config is not None
    assert state.config.value.loaded is not None
    assert "64" not in state.config.value.loaded


async def test_an_engine_that_loads_is_running_but_not_ready_and_the_reason_is_said(
    make_unit: MakeUnit, watching: Watching
) -> None:
    unit = make_unit(faults="*=hang")
    watcher = await watching.start(unit)
    await unit.service.start()
    state = await when(watcher, lambda state: state.log is not None and "server" in state.problems)
    assert state.service is not None
    assert (state.service.value.state, state.ready) == (RunState.RUNNING, False)
    assert "down or still loading" in state.problems["server"]


async def test_a_wrong_key_is_a_problem_of_the_key_not_an_engine_that_is_down(make_unit: MakeUnit, watching: Watching) -> None:
    unit = make_unit("--api-key", "sk-right")
    watcher = await watching.start(unit)
    await unit.service.start()
    await when(watcher, is_ready)
    # The file is read for the key only when a start loads it: the running engine's own key goes on being used.
    unit.file.write_text(unit.file.read_text().replace("sk-right", "sk-other"))
    await asyncio.sleep(0.5)
    assert watcher.state.ready
    assert "sk-right" not in repr(watcher.state.problems)


@pytest.mark.slow
async def test_an_engine_that_hangs_after_it_was_ready_is_silent(make_unit: MakeUnit, watching: Watching) -> None:
    unit = make_unit()
    watcher = await watching.start(unit)
    await unit.service.start()
    state = await when(watcher, is_ready)
    assert state.service is not None
    assert state.service.value.main_pid is not None
    os.kill(state.service.value.main_pid, signal.SIGSTOP)
    try:
        hanging = await when(watcher, lambda state: state.silent)
    finally:
        os.kill(state.service.value.main_pid, signal.SIGCONT)
    assert (hanging.ready, "server" in hanging.problems) == (False, True)
    assert not (await when(watcher, lambda state: state.ready)).silent


async def test_a_slow_reader_gets_the_newest_snapshot_only(make_unit: MakeUnit, watching: Watching) -> None:
    unit = make_unit()
    watcher = await watching.start(unit, interval_s=0.02)
    states = watcher.states()
    first = await anext(states)

    async def moved_on() -> bool:
        return watcher.state.revision > first.revision + 3

    await until(moved_on)
    second = await anext(states)
    assert second.revision > first.revision + 3
    assert second is watcher.state
    await states.aclose()  # type: ignore[attr-defined]


async def test_samples_go_to_history(make_unit: MakeUnit, watching: Watching) -> None:
    unit = make_unit()
    watcher = await watching.start(unit, interval_s=0.05)
    await unit.service.start()
    await when(watcher, is_ready)
    begun = time.time()

    async def sampled() -> bool:
        samples = await watching.history.samples("k", begun, time.time() + 1)
        return len(samples) >= 3 and samples[-1].running == 0

    await until(sampled)


class Stumbling(Sources):
    """Sources whose reader of metrics fails as only a mistake of the console's own would."""

    broken = True

    async def metrics(self, http: EngineHttp) -> MetricsSample:
        if self.broken:
            raise KeyError("--api-key sk-verysecret")
        return await super().metrics(http)


async def test_an_error_of_the_consoles_own_is_said_and_ends_nothing(make_unit: MakeUnit) -> None:
    unit = make_unit()
    link = EngineLink(unit.transport)
    sources = Stumbling(unit.transport, unit.service, link)
    watcher = Watcher("here", sources, interval_s=0.05)
    await watcher.start()
    try:
        await unit.service.start()
        state = await when(watcher, lambda state: "poll" in state.problems)
        assert "error of the console's own (KeyError" in state.problems["poll"]
        assert "sk-verysecret" not in state.problems["poll"]
        sources.broken = False
        state = await when(watcher, lambda state: state.metrics is not None and "poll" not in state.problems)
        assert state.ready
    finally:
        await watcher.close()
        await link.close()
