"""Ways in which an apply could look confirmed and must not be: the answer, the command or the line is not this start's own."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from dflash_console.apply import ApplyResult, StageEvent, StageStatus, Verdict, apply_plan, start_service, stop_service
from dflash_console.drift import DriftKind, TruthRow, truth_table
from dflash_console.drift import Verdict as RowVerdict
from dflash_console.hosts.listener import Listener, listener_of, look_at_port, parse_listeners
from dflash_console.hosts.local import LocalTransport
from dflash_console.plan import Change, Mode
from dflash_console.session import HostSession
from tests.ports import free_port

from .conftest import MakeUnit
from .other_engines import another_engine, give_up_port, main_pid
from .sessions import FAST, change, session_on, stage, started

BRIEF = replace(FAST, hot=3)
"""For a hot change that never comes: time for the engine's line on a busy machine, and then it is over."""


async def test_another_engine_that_answers_on_the_port_confirms_nothing(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit(faults="16=slow")
    async with session_on(tmp_path) as session:
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        with another_engine(unit.port, 16):
            result = await apply_plan(session, plan, timeouts=FAST)
        assert result.verdict is Verdict.PROCESS_DIED, result.reason
        assert "another program listens on port" in result.reason


def budget_of(port: int) -> int:
    info = httpx.get(f"http://127.0.0.1:{port}/server_info", trust_env=False).json()
    return int(info["internal_states"][0]["speculative_ddtree_budget"])


async def test_a_hot_change_is_not_sent_to_another_engine_on_the_port(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        plan = await session.plan(Change({"tree_budget": 16}, Mode.HOT))
        give_up_port(await main_pid(session), unit.port)
        with another_engine(unit.port, 4):
            result = await apply_plan(session, plan, timeouts=FAST, rollback_on_failure=True)
            assert budget_of(unit.port) == 4
        assert (result.verdict, result.rolled_back) == (Verdict.REFUSED, False), result.reason
        assert "another program listens on port" in result.reason


@pytest.mark.parametrize("last", ["log line", "server"])
async def test_a_hot_change_that_only_another_engine_reports_is_not_confirmed(
    make_unit: MakeUnit, tmp_path: Path, last: str
) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        plan = await session.plan(Change({"tree_budget": 16}, Mode.HOT))
        pid = await main_pid(session)
        with ExitStack() as others:

            def swap(event: StageEvent) -> None:
                # The engine printed its line, and loses its port to one that reports just what is wanted.
                if event.stage.name == last and event.stage.status is StageStatus.DONE:
                    give_up_port(pid, unit.port)
                    others.enter_context(another_engine(unit.port, 16))

            result = await apply_plan(session, plan, timeouts=FAST, on_event=swap, rollback_on_failure=True)
            assert budget_of(unit.port) == 16, "taking it back is no business of the other engine's either"
        assert (result.confirmed, result.verdict) == (False, Verdict.ROLLBACK_FAILED), result.reason
        assert stage(result, "prompt").status is StageStatus.FAILED
        assert result.reason.count("another program listens on port") == 2


async def test_a_start_whose_prompt_another_engine_answered_is_not_confirmed(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        with ExitStack() as others:

            def swap(event: StageEvent) -> None:
                if event.stage.name == "ready" and event.stage.status is StageStatus.DONE:
                    pid = json.loads((unit.folder / "state.json").read_bytes())["main"]["pid"]
                    give_up_port(pid, unit.port)
                    others.enter_context(another_engine(unit.port, 8))

            result = await start_service(session, timeouts=FAST, on_event=swap)
        assert (result.confirmed, result.verdict) == (False, Verdict.BAD_ANSWER), result.reason
        assert "another program listens on port" in result.reason


async def test_the_requests_of_another_engine_on_the_port_are_not_waited_for(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        give_up_port(await main_pid(session), unit.port)
        with another_engine(unit.port, 8):
            result = await stop_service(session, drain=True, timeouts=FAST)
        assert (result.confirmed, result.verdict) == (False, Verdict.NOT_READY), result.reason
        assert "running requests cannot be counted, so not drained: another program listens on port" in result.reason


async def test_a_start_with_another_command_than_the_planned_one_is_not_confirmed(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-ddtree-topk", "4")
    async with session_on(tmp_path) as session:
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))

        def edit(event: StageEvent) -> None:
            # A colleague's editor saves between the write and the restart.
            if event.stage.name == "reload" and event.stage.status is StageStatus.DONE:
                unit.file.write_text(unit.file.read_text().replace('"4"', '"2"'))

        result = await apply_plan(session, plan, timeouts=FAST, on_event=edit)
        assert result.verdict is Verdict.OTHER_VALUE, result.reason
        assert "another command than the planned one" in result.reason
        assert stage(result, "process up").status is StageStatus.FAILED


async def test_a_hot_change_that_the_log_denies_is_not_confirmed_whatever_the_engine_answers(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit(faults="8=deny-hot")
    async with session_on(tmp_path) as session:
        await started(session)
        result = await change(session, {"tree_budget": 16}, Mode.HOT)
        assert result.verdict is Verdict.OTHER_VALUE, result.reason
        assert "no graph of that width" in result.reason


async def test_a_hot_change_whose_line_says_another_value_is_not_confirmed(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit(faults="8=clamp-hot")
    async with session_on(tmp_path) as session:
        await started(session)
        result = await change(session, {"tree_budget": 16}, Mode.HOT, timeouts=BRIEF)
        assert result.verdict is Verdict.NO_LINE, result.reason
        assert any("8 -> 12" in line.text for line in result.lines)


async def test_a_first_line_that_a_second_one_corrects_does_not_end_the_start(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit("--speculative-ddtree-budget", "16", faults="*=tree-worker")
    async with session_on(tmp_path) as session:
        result = await start_service(session, timeouts=FAST)
        assert result.confirmed, result.reason
        assert "algorithm DDTREE" in result.reason
        assert "tree budget 16" in result.reason


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("second-runner", "algorithm is DFLASH, not DDTREE"),
        ("second-budget", "tree budget is 1, not 16"),
        ("late-warning", "compact draft cache is ignored, not 512"),
    ],
)
async def test_a_first_line_that_a_later_one_takes_back_confirms_nothing(
    make_unit: MakeUnit, tmp_path: Path, fault: str, words: str
) -> None:
    make_unit("--speculative-ddtree-budget", "16", "--speculative-draft-window-size", "512", faults=f"*={fault};*=foreign")
    async with session_on(tmp_path) as session:
        result = await start_service(session, timeouts=FAST)
        assert (result.confirmed, result.verdict) == (False, Verdict.OTHER_VALUE), result.reason
        assert words in result.reason


async def contradicted(session: HostSession, knob: str) -> TruthRow:
    async with asyncio.timeout(40):
        async for state in session.watcher.states():
            row = truth_table(state).row(knob)
            if row is not None and row.kind is DriftKind.CONTRADICTION:
                return row
    raise AssertionError


async def test_an_engine_whose_log_tells_of_a_change_that_it_does_not_report_is_said_to_contradict_itself(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit("--speculative-ddtree-budget", "8", faults="8=log-only-hot")
    async with session_on(tmp_path) as session:
        await started(session)
        result = await change(session, {"tree_budget": 16}, Mode.HOT, timeouts=BRIEF)
        assert result.verdict is Verdict.OTHER_VALUE, result.reason
        row = await contradicted(session, "tree_budget")
        # The unit file and the report agree on 8.
        assert row.verdict is RowVerdict.DRIFT
        assert "says 16, /server_info internal_states.speculative_ddtree_budget says 8" in row.message


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
async def test_a_listening_socket_is_known_by_the_process_that_holds_it(address: str) -> None:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as held:
        held.bind((address, 0))
        held.listen()
        port = held.getsockname()[1]
        asked = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(address, address)
        assert await listener_of(LocalTransport(), asked, port, os.getpid()) is Listener.OURS
        sleeper = await asyncio.create_subprocess_exec(sys.executable, "-I", "-c", "import time; time.sleep(60)")
        try:
            assert await listener_of(LocalTransport(), asked, port, sleeper.pid) is Listener.OTHER
        finally:
            sleeper.kill()
            await sleeper.wait()


@asynccontextmanager
async def listens_on(address: str, port: int) -> AsyncIterator[int]:
    """The pid of a process that listens there; of IPv6 as asyncio's servers do, which leaves the port's IPv4 to another."""
    code = (
        "import socket, sys, time; address, port = sys.argv[1:]; six = ':' in address\n"
        "held = socket.socket(socket.AF_INET6 if six else socket.AF_INET)\n"
        "six and held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)\n"
        "held.bind((address, int(port))); held.listen(); print(1, flush=True); time.sleep(60)"
    )
    words = (sys.executable, "-I", "-c", code, address, str(port))
    process = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert await process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize(
    ("own", "other", "asked"),
    [
        ("127.0.0.1", "::", "127.0.0.1"),
        ("0.0.0.0", "::", "127.0.0.1"),
        ("0.0.0.0", "::1", "127.0.0.1"),
        ("::", "0.0.0.0", "::1"),
        ("::1", "0.0.0.0", "::1"),
    ],
)
async def test_a_program_on_the_same_port_of_the_other_family_of_addresses_is_in_nobodys_place(
    own: str, other: str, asked: str
) -> None:
    port = free_port()
    async with listens_on(own, port) as main_pid, listens_on(other, port) as stranger:
        assert await listener_of(LocalTransport(), asked, port, main_pid) is Listener.OURS
        # This name may lead to either of them; only the other one is a stranger.
        found, holder = await look_at_port(LocalTransport(), "localhost", port, main_pid)
        assert found is Listener.OTHER
        assert holder is not None
        assert holder.pids == {stranger}


async def test_a_worker_of_the_main_process_may_be_the_one_that_listens() -> None:
    port = free_port()
    code = f"import socket,time; s=socket.socket(); s.bind(('127.0.0.1',{port})); s.listen(); print(1,flush=True); time.sleep(60)"
    # The shell stays as the parent because something follows in it.
    shell = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", f'{sys.executable} -I -c "{code}"; exit', stdout=subprocess.PIPE, start_new_session=True
    )
    assert shell.stdout is not None
    try:
        await shell.stdout.readline()
        assert await listener_of(LocalTransport(), "127.0.0.1", port, shell.pid) is Listener.OURS
    finally:
        os.killpg(shell.pid, 9)
        await shell.wait()


async def test_nobody_on_a_port_is_nobody_and_broken_tables_are_read_without_harm() -> None:
    assert await listener_of(LocalTransport(), "127.0.0.1", free_port(), os.getpid()) is Listener.UNKNOWN
    junk = b"  sl  local_address\n 0: zz:1 0:0 0A 0 0 0 0 0 0\n 1: 0100007F 0:0 0A\n 2: 0100007F:ZZ 0 0A 0 0 0 0 0 0\n\xff\xfe"
    assert parse_listeners(junk) == ()


async def test_a_roll_back_that_the_engine_cannot_confirm_is_not_said_to_be_confirmed(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit("--log-level", "warning", faults="*=foreign;16=exit")
    async with session_on(tmp_path) as session:
        await start_service(session, timeouts=FAST)
        result = await change(session, {"tree_budget": 16, "draft_window": 512}, rollback=True)
        assert (result.verdict, result.rolled_back) == (Verdict.PROCESS_DIED, False)
        assert result.rollback is not None
        assert result.rollback.verdict is Verdict.UNKNOWN
        assert "cannot confirm all of it" in result.reason


def test_a_result_in_one_sentence_says_its_verdict_once() -> None:
    result = ApplyResult(True, Verdict.CONFIRMED, "tree budget 16 (log line 7)", "x", Mode.HOT, ())
    assert result.words == "confirmed: tree budget 16 (log line 7)"
    died = replace(result, confirmed=False, verdict=Verdict.PROCESS_DIED, reason="the process died at once (status 1)")
    assert died.words == "the process died at once (status 1)"
