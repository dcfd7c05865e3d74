"""A port that the console chose: of several engines that want it one gets it, and each other one another, noted in its file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import httpx
import pytest

from dflash_console.apply import Verdict, apply_plan, restart_service, start_service, stop_service
from dflash_console.config import Config, Sampling
from dflash_console.drift import truth_table
from dflash_console.firing import own_engine
from dflash_console.hosts import chosen_port
from dflash_console.hosts.chosen_port import PortTaken, own_port, reserve, take_port
from dflash_console.hosts.service import RunState
from dflash_console.hosts.transport import HostError
from dflash_console.hosts.unit_file import UnitFile, new_unit_file, parse_unit_file
from dflash_console.plan import Change, Mode
from dflash_console.session import EMBEDDED_UNIT, HostSession, open_session
from tests.ports import free_port

from .conftest import STAND_IN
from .sessions import FAST, paths_under, stage
from .waiting import until

ROOT = Path(__file__).parents[2]


def unit_of(home: Path) -> Path:
    """The file of the embedded unit in a home."""
    return paths_under(home).service(EMBEDDED_UNIT) / "service.toml"


def write_unit(home: Path, port: int, *, chosen: int | None = 0, restart: str = "no", faults: str = "") -> Path:
    """A home whose embedded unit runs the stand-in engine. ``chosen``: as noted, 0 = the port itself."""
    launcher = home / "ddtree-launch"
    home.mkdir(exist_ok=True)
    launcher.symlink_to(STAND_IN)
    flags = ("--engine", "embedded", "--speculative-algorithm", "DDTREE", "--port", str(port))
    command = [sys.executable, "-I", str(launcher), "serve", *flags]
    environment = {"STAND_IN_FAULTS": faults} if faults else None
    chosen = port if chosen == 0 else chosen
    text = new_unit_file(command, description="stand-in", environment=environment, chosen_port=chosen)
    file = unit_of(home)
    file.parent.mkdir(parents=True)
    file.write_text(text.replace('restart = "no"', f'restart = "{restart}"\nrestart_delay_s = 0.1'))
    return file


@contextlib.asynccontextmanager
async def console(home: Path) -> AsyncIterator[HostSession]:
    """A console of its own on its embedded unit, whose engine is stopped in the end."""
    session = await open_session(config=Config(sampling=Sampling(interval_s=0.2)), paths=paths_under(home))
    try:
        yield session
    finally:
        await session.service.stop()
        await session.close()


def port_in(file: Path) -> int:
    """The port in a unit's file, which its command and its note agree on."""
    unit = parse_unit_file(file.read_text())
    own = own_port(unit)
    assert own is not None, unit
    return own[1]


def listens_on(state: Mapping[str, object]) -> str:
    command = state["command"]
    assert isinstance(command, list)
    return str(command[command.index("--port") + 1])


def failed(session: HostSession) -> Callable[[], Awaitable[bool]]:
    async def reached() -> bool:
        return (await session.service.state()).state is RunState.FAILED

    return reached


async def test_four_consoles_that_are_started_at_once_all_get_an_engine_of_their_own(tmp_path: Path) -> None:
    port = free_port()
    homes = [tmp_path / str(number) for number in range(4)]
    files = [write_unit(home, port) for home in homes]
    async with contextlib.AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(console(home)) for home in homes]
        results = await asyncio.gather(*(start_service(session, timeouts=FAST) for session in sessions))
        assert all(result.confirmed for result in results), [result.reason for result in results]
        ports = [port_in(file) for file in files]
        assert len(set(ports)) == 4
        assert port in ports
        for session, home, own in zip(sessions, homes, ports, strict=True):
            engine = await own_engine(session)
            assert engine.base_url == f"http://127.0.0.1:{own}"
            assert truth_table(await session.watcher.refresh()).drifted == ()
            state = json.loads((paths_under(home).service(EMBEDDED_UNIT) / "state.json").read_bytes())
            assert listens_on(state) == str(own)


async def test_a_start_leaves_a_port_that_is_taken_and_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        file = write_unit(tmp_path, port)
        before = file.read_text()
        async with console(tmp_path) as session:
            plan = await session.plan(Change({}, Mode.RESTART))
            assert [finding.code for finding in plan.findings if finding.code.startswith("port")] == ["port_moves"]
            result = await start_service(session, timeouts=FAST)
            assert result.confirmed, result.reason
            moved = port_in(file)
            assert moved != port
            assert stage(result, "process up").evidence.endswith(f" on port {moved}, since {port} is another program's")
            lines = await session.service.lines(invocation_id=result.invocation_id)
            said = f"Port {port} is another program's: the engine gets port {moved}, noted in service.toml"
            assert said in [line.text for line in lines]
    assert file.read_text() == before.replace(str(port), str(moved))
    assert file.stat().st_mode & 0o777 == 0o644


async def test_nobody_can_take_the_port_between_the_start_and_the_engine(tmp_path: Path) -> None:
    port = free_port()
    # The engine needs seconds before it would bind a port of its own.
    write_unit(tmp_path, port, faults="*=slow")
    async with console(tmp_path) as session:
        await session.service.start(another_port=True)
        with pytest.raises(PortTaken):
            reserve("127.0.0.1", port)

        async def answers() -> bool:
            with contextlib.suppress(HostError):
                return await (await own_engine(session)).healthy()
            return False

        await until(answers)


async def test_a_stop_and_a_start_keep_the_port(tmp_path: Path) -> None:
    port = free_port()
    file = write_unit(tmp_path, port)
    async with console(tmp_path) as session:
        for _ in range(2):
            assert (await start_service(session, timeouts=FAST)).confirmed
            # Its side closes first, and the connection lingers.
            async with httpx.AsyncClient(trust_env=False) as client:
                await client.get(f"http://127.0.0.1:{port}/health", headers={"Connection": "close"})
            assert (await restart_service(session, timeouts=FAST)).confirmed
            assert (await stop_service(session, timeouts=FAST)).confirmed
    assert port_in(file) == port


@pytest.mark.parametrize("chosen", [None, 1])
async def test_a_port_that_a_person_set_is_never_changed(tmp_path: Path, chosen: int | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        file = write_unit(tmp_path, other.getsockname()[1], chosen=chosen)
        before = file.read_text()
        async with console(tmp_path) as session:
            result = await start_service(session, timeouts=FAST)
            assert result.verdict is Verdict.REFUSED
            assert "the port is held by pid" in result.reason
            await session.service.start(another_port=True)
            await until(failed(session))
            assert any("in use by another program" in line.text for line in await session.service.lines())
    assert file.read_text() == before


async def test_a_change_does_not_take_another_port_so_that_it_can_be_rolled_back(tmp_path: Path) -> None:
    port = free_port()
    file = write_unit(tmp_path, port)
    before = file.read_text()
    async with console(tmp_path) as session:
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        with socket.create_server(("127.0.0.1", port)):
            result = await apply_plan(session, plan, rollback_on_failure=True, timeouts=FAST)
        assert (result.confirmed, result.rolled_back) == (False, True), result.reason
        assert "in use by another program" in result.reason
    assert file.read_text() == before


async def test_a_file_that_cannot_be_edited_keeps_its_port_and_the_engine_says_that_it_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        file = write_unit(tmp_path, port)
        head = file.read_text().partition("[service]")[0]
        file.write_text(f"service = {{ chosen_port = {port} }}\n{head}")
        before = file.read_text()
        async with console(tmp_path) as session:
            result = await start_service(session, timeouts=FAST)
            assert result.verdict is Verdict.PROCESS_DIED, result.reason
            assert f"port {port} is in use by another program" in result.reason
    assert file.read_text() == before


async def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        file = write_unit(tmp_path, port)
        kept = tmp_path / "dotfiles.toml"
        file.rename(kept)
        file.symlink_to(kept)
        async with console(tmp_path) as session:
            assert (await start_service(session, timeouts=FAST)).confirmed
    assert file.is_symlink()
    assert port_in(kept) != port


async def test_an_engine_that_is_started_again_by_itself_has_its_port_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        file = write_unit(tmp_path, other.getsockname()[1], restart="on-failure")
        async with console(tmp_path) as session:
            assert (await start_service(session, timeouts=FAST)).confirmed
            before = await session.service.state()
            assert before.main_pid is not None
            os.kill(before.main_pid, 9)

            async def again() -> bool:
                state = await session.service.state()
                if state.state is not RunState.RUNNING or state.main_pid == before.main_pid:
                    return False
                with contextlib.suppress(HostError):
                    return await (await own_engine(session)).healthy()
                return False

            await until(again)
            assert (await own_engine(session)).base_url.endswith(f":{port_in(file)}")


def test_a_reserved_port_is_nobody_elses_and_a_port_that_is_being_taken_is_left() -> None:
    port = free_port()
    with reserve("127.0.0.1", port):
        with pytest.raises(PortTaken):
            reserve("127.0.0.1", port)
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
    # As another supervisor does between its binding and its closing the door.
    with chosen_port._claim(port), pytest.raises(PortTaken):
        reserve("127.0.0.1", port)
    reserve("127.0.0.1", port).close()
    with pytest.raises(OSError, match="annot assign"):
        reserve("192.0.2.1", port)


@pytest.mark.parametrize("host", ["a..b", "x" * 70, "no-such-host.invalid"])
def test_what_is_no_host_is_left_for_the_engine_to_name(host: str, tmp_path: Path) -> None:
    unit = UnitFile(("engine", "--host", host, "--port", "30000", "--engine", "embedded"), chosen_port=30_000)
    assert take_port(tmp_path / "service.toml", unit, move=True) == (unit, None)


def test_of_many_processes_that_want_a_port_at_once_one_gets_it() -> None:
    code = (
        "import sys, time; from dflash_console.hosts.chosen_port import PortTaken, reserve\n"
        "ports = [int(word) for word in sys.argv[2:]]; held = []\n"
        "while time.time() < float(sys.argv[1]): pass\n"
        "for port in ports:\n"
        "    try: held.append((port, reserve('127.0.0.1', port)))\n"
        "    except PortTaken: pass\n"
        "print(*(port for port, _ in held), flush=True); sys.stdin.read()\n"
    )
    ports = [str(free_port()) for _ in range(50)]
    begin = str(time.time() + 2)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", code, begin, *ports], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        for _ in range(4)
    ]
    try:
        won = [port for racer in racers if racer.stdout is not None for port in racer.stdout.readline().split()]
    finally:
        for racer in racers:
            racer.communicate("")
    assert len(won) == len(set(won)), "two have the same port"
    assert set(won) <= set(ports)


@pytest.mark.parametrize(
    ("command", "chosen", "own"),
    [
        (("e", "--engine", "embedded", "--port", "7"), 7, ("127.0.0.1", 7)),
        (("e", "--engine=embedded", "--port=7", "--host", "::1"), 7, ("::1", 7)),
        (("e", "--port", "6", "--engine", "embedded", "--port", "7"), 7, ("127.0.0.1", 7)),
        (("e", "--engine", "embedded", "--port", "7", "--port", "8"), 7, None),
        (("e", "--engine", "embedded", "--port", "8"), 7, None),
        (("e", "--engine", "embedded", "--port"), 7, None),
        (("e", "--engine", "embedded", "--port", "7"), None, None),
        # It would not take the socket, and could not bind the port beside it.
        (("e", "--engine", "sglang", "--port", "7"), 7, None),
        (("e", "--port", "7"), 7, None),
    ],
)
def test_a_port_may_move_where_the_console_chose_it_for_the_embedded_engine(
    command: tuple[str, ...], chosen: int | None, own: tuple[str, int] | None
) -> None:
    assert own_port(UnitFile(command, chosen_port=chosen)) == own


@pytest.mark.slow
async def test_four_programs_started_at_once_in_homes_of_their_own_all_get_their_own_real_engine(tmp_path: Path) -> None:
    async def run(home: str, *words: str) -> tuple[int, str]:
        environment = {**os.environ, "DDTREE_HOME": str(tmp_path / home)}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dflash_console", *words),
            env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()

    homes = ["one", "two", "three", "four"]
    # Each home is made while nothing listens yet, so all of them choose the same port.
    await asyncio.gather(*(run(home, "status") for home in homes))
    assert len({port_in(unit_of(tmp_path / home)) for home in homes}) == 1
    try:
        for code, out in await asyncio.gather(*(run(home, "start") for home in homes)):
            assert code == 0, out
        assert len({port_in(unit_of(tmp_path / home)) for home in homes}) == 4
        for home in homes:
            code, out = await run(home, "prompt", "Say hello.", "--max-tokens", "4", "--json")
            assert code == 0, out
    finally:
        await asyncio.gather(*(run(home, "stop", "--yes") for home in homes))
