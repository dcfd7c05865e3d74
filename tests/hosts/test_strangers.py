"""Another program on a unit's port: no prompt is sent to it, and it is named. What cannot be seen is not called a stranger."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from dflash_console.apply import Verdict, restart_service, start_service, stop_service
from dflash_console.drift import DriftKind, Severity, drift_items, truth_table
from dflash_console.drift.verdicts import PORT
from dflash_console.effective import in_effect
from dflash_console.evidence.rates import Rates
from dflash_console.evidence.secrets import MASK
from dflash_console.firing import fire, own_engine
from dflash_console.hosts.local import LocalTransport
from dflash_console.hosts.service import RunState, ServiceConfig, ServiceState
from dflash_console.hosts.stranger import Stranger, find_stranger
from dflash_console.hosts.transport import HostError
from dflash_console.load.request import Endpoint, PromptRequest
from dflash_console.plan import Change, Mode
from dflash_console.session import HostSession
from dflash_console.state import HostState
from dflash_console.watch import strangers
from dflash_console.watch.strangers import StrangerWatch

from .commands import Console, console
from .conftest import STAND_IN, MakeUnit
from .other_engines import another_engine, give_up_port, main_pid
from .remote_rig import UNIT, Remote, remote
from .sessions import FAST, session_on, started
from .waiting import settled

__all__ = ["console", "remote"]

HELLO = PromptRequest.of("Hello", endpoint=Endpoint.GENERATE, max_tokens=16)


def answered(port: int) -> int:
    """Prompts that the engine on ``port`` has answered."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    return int(float(next(line for line in text.splitlines() if line.startswith("sglang:num_requests_total")).split()[-1]))


async def test_a_prompt_is_not_sent_to_another_engine_beside_a_unit_that_failed(make_unit: MakeUnit, console: Console) -> None:
    unit = make_unit(faults="*=exit")
    await unit.service.start()
    await settled(unit, RunState.FAILED)
    with another_engine(unit.port, 8):
        for words in (("prompt", "Hello"), ("prompt", "Hello", "--set", "tree_budget=4"), ("prompt", "Hello", "--json")):
            ended = await console(*words)
            assert ended.code == 1, ended
            assert f"engine is failed, and another program listens on port {unit.port}, which is this unit's: pid " in ended.err
            assert "started as: " in ended.err
            assert f"serve --port {unit.port} --speculative-ddtree-budget 8" in ended.err
            assert "give engine another port (flag:--port)" in ended.err
            assert "Traceback" not in ended.err
        assert answered(unit.port) == 0


async def test_a_prompt_is_not_sent_to_another_engine_that_took_the_port_of_one_that_runs(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        before = answered(unit.port)
        await fire(session, [HELLO])
        assert answered(unit.port) == before + 1
        give_up_port(await main_pid(session), unit.port)
        with another_engine(unit.port, 8):
            with pytest.raises(HostError, match=r"answers in the engine's place: pid \d+ .*, started as: .*serve --port"):
                await fire(session, [HELLO])
            assert answered(unit.port) == 0


async def test_where_nothing_of_the_unit_runs_and_nobody_listens_a_prompt_says_that(
    make_unit: MakeUnit, console: Console
) -> None:
    make_unit()
    ended = await console("prompt", "Hello")
    assert (ended.code, ended.err) == (
        1,
        "ddtree-console: engine is stopped, so there is no engine to ask; start it first\n",
    )


async def test_keys_on_the_strangers_command_line_are_masked(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    words = (sys.executable, "-I", str(STAND_IN), "serve", "--port", str(unit.port), "--api-key", "sk-12345678")
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        while b"fired up" not in await process.stdout.readline():
            pass
        async with session_on(tmp_path) as session:
            with pytest.raises(HostError) as caught:
                await own_engine(session)
        assert f"--api-key {MASK}" in str(caught.value)
        assert f"pid {process.pid} " in str(caught.value)
        assert "sk-12345678" not in str(caught.value)
    finally:
        process.terminate()
        await process.wait()


async def test_a_stranger_whose_argument_is_a_script_is_named_in_one_line(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    script = f"import socket\nheld = socket.create_server(('127.0.0.1', {unit.port}))\nprint('up', flush=True)\ninput()"
    words = (sys.executable, "-c", script, "\x1b]0;title\x07\x1b[2J")
    process = await asyncio.create_subprocess_exec(*words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"up\n"
        async with session_on(tmp_path) as session:
            with pytest.raises(HostError) as caught:
                await own_engine(session)
        assert "-c import socket⏎ held" in str(caught.value)
        assert str(caught.value).isprintable()
    finally:
        process.terminate()
        await process.wait()


async def test_the_engine_of_the_unit_is_asked_whatever_wrapper_it_was_started_by(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    text = unit.file.read_text()
    words = f"{sys.executable} -I {tmp_path / 'ddtree-launch'} serve --speculative-algorithm DDTREE --port {unit.port}"
    head, tail = text[: text.index("command = [")], text[text.index("]\n") + 2 :]
    # Something follows in the line, so the shell stays as the parent.
    unit.file.write_text(f'{head}command = ["/bin/sh", "-c", "{words}; exit 1"]\n{tail}')
    async with session_on(tmp_path) as session:
        await started(session)
        before = answered(unit.port)
        await fire(session, [HELLO])
        assert answered(unit.port) == before + 1
        await stop_service(session, timeouts=FAST)


async def when(session: HostSession, check: Callable[[HostState], bool]) -> HostState:
    async with asyncio.timeout(60):
        async for state in session.watcher.states():
            if check(state):
                return state
    raise AssertionError


async def test_another_engine_in_the_place_of_one_that_runs_is_drift_and_nothing_that_it_says_is_shown(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        await when(session, lambda state: state.ready and state.metrics is not None)
        give_up_port(await main_pid(session), unit.port)
        await when(session, lambda state: not state.ready)
        with another_engine(unit.port, 16):
            state = await when(session, lambda state: state.stranger is not None)
            assert (state.ready, state.server, state.metrics, state.loads, state.rates) == (False, None, None, None, Rates())
            (row,) = drift_items(truth_table(state))
            assert (row.knob, row.kind, row.severity) == (PORT, DriftKind.STRANGER, Severity.ERROR)
            assert row.message.startswith(f"another program listens on port {unit.port} and answers in the engine's place: pid ")
            assert in_effect(state, "tree_budget").value == 8, "by the unit's own log"
            result = await start_service(session, timeouts=FAST)
            assert result.verdict is Verdict.REFUSED
            assert "another program listens on port" in result.reason
            plan = await session.plan(Change({"tree_budget": 4}, Mode.HOT))
            assert "another program answers on its port" in plan.errors[0].message
        state = await when(session, lambda state: state.stranger is None)
        assert truth_table(state).row(PORT) is None


async def test_an_engine_of_its_own_that_comes_back_to_its_port_is_shown_again(
    make_unit: MakeUnit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The port may change hands between two polls, so that nothing is doubted: who has it is then seen when it is asked again.
    monkeypatch.setattr(strangers, "OWN_FOR_S", 2.0)
    unit = make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        give_up_port(await main_pid(session), unit.port)
        with another_engine(unit.port, 16):
            await when(session, lambda state: state.stranger is not None)
        assert (await restart_service(session, timeouts=FAST)).confirmed
        state = await when(session, lambda state: state.ready)
        assert (state.stranger, state.server is not None) == (None, True)


async def test_status_drift_and_doctor_name_who_has_the_port_of_a_unit_that_failed(make_unit: MakeUnit, console: Console) -> None:
    unit = make_unit(faults="*=exit")
    await unit.service.start()
    await settled(unit, RunState.FAILED)
    with another_engine(unit.port, 8):
        said = (await console("status")).out
        assert f"✗ {unit.port} is another program's: pid " in said
        assert "drift: 1" in said
        document = (await console("status", "--json")).document
        stranger = document["stranger"]
        assert isinstance(stranger, dict)
        assert (stranger["port"], len(stranger["pids"])) == (unit.port, 1)
        assert f"serve --port {unit.port} --speculative-ddtree-budget 8" in stranger["command"]
        drift = await console("drift")
        assert drift.code == 3
        assert f"✗ another program listens on port {unit.port}, which is this unit's: pid " in drift.out
        checks = (await console("doctor", "--json")).document["checks"]
        assert isinstance(checks, list)
        (server,) = (check for check in checks if check["name"] == "server")
        assert server["status"] == "failed"
        assert f"another program listens on port {unit.port}" in server["message"]


async def test_beside_a_unit_that_was_stopped_another_program_is_something_to_know_and_no_drift(
    make_unit: MakeUnit, console: Console
) -> None:
    unit = make_unit()
    assert (await console("status", "--json")).document["stranger"] is None
    with another_engine(unit.port, 8):
        drift = await console("drift")
        assert drift.code == 0
        assert f"! another program listens on port {unit.port}, which is this unit's: pid " in drift.out
        assert f"! {unit.port} is another program's: pid " in (await console("status")).out
        document = (await console("status", "--json")).document
        assert (document["drift"], document["stranger"] is None) == ({"count": 0, "items": []}, False)
        checks = (await console("doctor", "--json")).document["checks"]
        assert isinstance(checks, list)
        assert [check["status"] for check in checks if check["name"] == "server"] == ["warning"]


async def test_an_own_engine_is_asked_about_seldom_and_again_when_it_was_silent() -> None:
    asked: list[ServiceState] = []
    found: list[Stranger | None] = [None]

    async def look(config: ServiceConfig, service: ServiceState) -> Stranger | None:
        asked.append(service)
        return found[0]

    watch = StrangerWatch(look)
    config, first = config_of("ddtree-launch", "serve"), ServiceState("engine", RunState.RUNNING, "one", 7)
    for _ in range(3):
        assert await watch.ask(config, first) is None
    assert len(asked) == 1
    watch.doubt()
    found[0] = Stranger(30000, (8,), "pid 8 (nc)")
    assert await watch.ask(config, first) is found[0]
    assert await watch.ask(config, ServiceState("engine", RunState.RUNNING, "two", 9)) is found[0]
    assert len(asked) == 3


def config_of(*command: str) -> ServiceConfig:
    return ServiceConfig((), command, None)


async def test_what_is_not_known_to_be_a_stranger_is_not_called_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = str(held.getsockname()[1])
        launcher = ("ddtree-launch", "serve", "--port", port)
        stopped, failed = ServiceState("engine", RunState.STOPPED), ServiceState("engine", RunState.FAILED)
        transport = LocalTransport()
        found = await find_stranger(transport, config_of(*launcher), failed)
        assert found is not None
        assert (found.port, found.pids, found.beside) == (int(port), (os.getpid(),), False)
        # An engine in a container is none of the unit's processes, and goes on when its client has ended.
        assert await find_stranger(transport, config_of("docker", "run", "image", *launcher), stopped) is None
        # A wrapper may start its engine on any port.
        assert await find_stranger(transport, config_of("/opt/start.sh"), stopped) is None
        # Active without a process of its own (RemainAfterExit=), and a state that cannot be read.
        for unseen in (RunState.RUNNING, RunState.STARTING, RunState.UNKNOWN):
            assert await find_stranger(transport, config_of(*launcher), ServiceState("engine", unseen)) is None
        # The supervisor was killed, and the engine lives on without it: it is the unit's all the same.
        left = ServiceState("engine", RunState.FAILED, main_pid=os.getpid())
        assert await find_stranger(transport, config_of(*launcher), left) is None
    assert await find_stranger(transport, config_of(*launcher), stopped) is None


@pytest.mark.slow
async def test_on_a_host_over_ssh_the_unit_of_the_stranger_is_named(remote: Remote) -> None:
    remote.install(faults="*=exit")
    command = f"{sys.executable} -I {STAND_IN} serve --port {remote.port} --api-key sk-12345678"
    remote.host.install_unit("other.service", f"[Service]\nExecStart={command}\n")
    for unit in (UNIT, "other.service"):
        remote.host.exec("systemctl", "start", unit)
    try:
        async with remote.session() as session:
            state = await when(session, lambda state: state.stranger is not None)
            assert state.stranger is not None
            pid = remote.host.exec("systemctl", "show", "--value", "--property=MainPID", "other.service").stdout.decode().strip()
            assert state.stranger.value.pids == (int(pid),)
            assert "other.service)" in state.stranger.value.holder
            assert state.stranger.value.command.endswith(f"serve --port {remote.port} --api-key {MASK}")
            with pytest.raises(
                HostError, match=rf"engine.service is failed, and .*: pid {pid} \(.*, other.service\), started as"
            ):
                await fire(session, [HELLO])
    finally:
        remote.host.exec("systemctl", "stop", "other.service")
