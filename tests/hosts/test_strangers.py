"""Another program on a unit's port: no prompt is sent to it, and it is named. What cannot be seen is not called a stranger."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from dflash_console.apply import stop_service
from dflash_console.evidence.secrets import MASK
from dflash_console.firing import fire, own_engine
from dflash_console.hosts.local import LocalTransport
from dflash_console.hosts.service import RunState, ServiceConfig, ServiceState
from dflash_console.hosts.stranger import find_stranger
from dflash_console.hosts.transport import HostError
from dflash_console.load.request import Endpoint, PromptRequest

from .conftest import STAND_IN, MakeUnit
from .sessions import FAST, session_on, started
from .test_cli_real import Console, console
from .test_false_confirmations import another_engine, give_up_port, main_pid

__all__ = ["console"]

HELLO = PromptRequest.of("Hello", endpoint=Endpoint.GENERATE, max_tokens=16)


def answered(port: int) -> int:
    """Prompts that the engine on ``port`` has answered."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    return int(float(next(line for line in text.splitlines() if line.startswith("sglang:num_requests_total")).split()[-1]))


async def test_a_prompt_is_not_sent_to_another_engine_beside_a_unit_that_failed(make_unit: MakeUnit, console: Console) -> None:
    unit = make_unit(faults="*=exit")
    await unit.service.start()
    while (await unit.service.state()).state is not RunState.FAILED:
        await asyncio.sleep(0.05)
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
