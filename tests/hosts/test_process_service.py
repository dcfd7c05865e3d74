"""The process service: starts, stops, restarts, identity, log, and nobody left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

import pytest

from dflash_console.evidence.journal import LogLine
from dflash_console.hosts import proc, process
from dflash_console.hosts.local import LocalTransport
from dflash_console.hosts.process import ProcessService
from dflash_console.hosts.service import FileEdit, RunState, ServiceState
from dflash_console.hosts.supervisor_state import read_state
from dflash_console.hosts.transport import HostError

from .conftest import MakeUnit, Unit
from .waiting import settled, until


async def ready(unit: Unit) -> ServiceState:
    async def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", unit.port)) == 0

    await until(answers)
    return await unit.service.state()


async def test_a_unit_that_was_never_started_is_stopped_and_says_so(make_unit: MakeUnit) -> None:
    state = await make_unit().service.state()
    assert (state.state, state.invocation_id, state.detail) == (RunState.STOPPED, None, "never started")


async def test_a_folder_without_a_unit_file_is_missing(tmp_path: Path) -> None:
    service = ProcessService(LocalTransport(), tmp_path / "nothing")
    assert (await service.state()).state is RunState.MISSING
    with pytest.raises(HostError, match="cannot read"):
        await service.configuration()


async def test_the_supervisor_is_found_where_only_pythonpath_names_the_package(tmp_path: Path) -> None:
    """As where the sources were unpacked and not installed: an interpreter that has no such package of its own."""
    python, *words = process._SUPERVISOR
    # Without `site` there are no installed packages; the supervisor needs the standard library only.
    done = await asyncio.create_subprocess_exec(python, "-S", *words, "stop", str(tmp_path), stderr=asyncio.subprocess.PIPE)
    _, error = await done.communicate()
    assert (done.returncode, error) == (0, b"")


async def test_start_runs_the_engine_under_an_invocation_id_that_it_can_see(make_unit: MakeUnit) -> None:
    unit = make_unit()
    await unit.service.start()
    state = await ready(unit)
    assert state.state is RunState.RUNNING
    assert state.invocation_id is not None
    assert len(state.invocation_id) == 32
    environment = await unit.transport.read(f"/proc/{state.main_pid}/environ")
    assert f"INVOCATION_ID={state.invocation_id}".encode() in environment.split(b"\0")
    assert await unit.service.base_url() == f"http://127.0.0.1:{unit.port}"


async def test_a_second_start_is_refused_and_changes_nothing(make_unit: MakeUnit) -> None:
    unit = make_unit()
    await unit.service.start()
    before = await ready(unit)
    with pytest.raises(HostError, match="runs already"):
        await unit.service.start()
    assert await unit.service.state() == before


async def test_a_restart_is_a_new_invocation_and_the_old_process_is_gone(make_unit: MakeUnit) -> None:
    unit = make_unit()
    await unit.service.start()
    before = await ready(unit)
    await unit.service.restart()

    async def renewed() -> bool:
        state = await unit.service.state()
        return state.invocation_id != before.invocation_id and state.state is RunState.RUNNING

    await until(renewed)
    assert before.main_pid is not None
    assert proc.identify(before.main_pid) is None
    await ready(unit)


async def test_two_restarts_at_once_are_one_which_reads_the_newest_file(make_unit: MakeUnit) -> None:
    """A console that was killed during a restart leaves it going; the one that takes the operation up asks again."""
    unit = make_unit(faults="*=ignore-term")
    # The first restart waits for the engine's end for as long as it takes to ask for the second.
    unit.file.write_text(unit.file.read_text().replace("stop_timeout_s = 1.0", "stop_timeout_s = 120.0"))
    await unit.service.start()
    before = await ready(unit)
    assert before.main_pid is not None

    async def renewed() -> bool:
        state = await unit.service.state()
        return state.invocation_id != before.invocation_id and state.state is RunState.RUNNING

    await unit.service.restart()
    unit.file.write_text(unit.file.read_text().replace("DDTREE", "DFLASH").replace("120.0", "1.0"))
    await unit.service.restart()
    os.kill(before.main_pid, signal.SIGKILL)
    await until(renewed)
    first = await unit.service.state()
    assert "DFLASH" in ((await unit.service.configuration()).loaded or ())
    await asyncio.sleep(1.5)
    assert (await unit.service.state()).invocation_id == first.invocation_id, "a second restart followed"
    before = first
    await unit.service.restart()
    await until(renewed)


async def test_the_engine_outlives_the_console_and_the_next_console_finds_it(make_unit: MakeUnit) -> None:
    unit = make_unit()
    await unit.service.start()
    before = await ready(unit)
    other = ProcessService(LocalTransport(), unit.folder)
    assert await other.state() == before
    assert before.main_pid is not None
    stat = proc.read_stat(before.main_pid)
    assert stat is not None
    assert proc.read_stat(stat.ppid) is not None
    assert stat.ppid != os.getpid(), "the engine must be a child of the supervisor, not of the console"
    await other.stop()
    assert (await unit.service.state()).state is RunState.STOPPED


async def test_stop_kills_an_engine_that_ignores_sigterm(make_unit: MakeUnit) -> None:
    unit = make_unit(faults="*=ignore-term")
    await unit.service.start()
    before = await ready(unit)
    await unit.service.stop(timeout=10)
    state = await unit.service.state()
    assert (state.state, state.result) == (RunState.STOPPED, "timeout")
    assert before.main_pid is not None
    assert proc.identify(before.main_pid) is None


async def test_stop_leaves_no_worker_behind_even_one_in_a_session_of_its_own(make_unit: MakeUnit) -> None:
    unit = make_unit(faults="*=orphan")
    await unit.service.start()
    state = await ready(unit)
    assert state.invocation_id is not None
    assert len(proc.started_with("INVOCATION_ID", state.invocation_id)) == 2
    await unit.service.stop(timeout=10)
    assert proc.started_with("INVOCATION_ID", state.invocation_id) == []


async def test_a_killed_supervisor_takes_the_engine_with_it_and_the_state_says_failed(make_unit: MakeUnit) -> None:
    unit = make_unit()
    await unit.service.start()
    before = await ready(unit)
    recorded = read_state(unit.folder)
    assert recorded is not None
    os.kill(recorded.supervisor.pid, signal.SIGKILL)
    state = await settled(unit, RunState.FAILED)
    assert (state.result, state.detail.startswith("the supervisor was killed")) == ("supervisor-killed", True)

    async def gone() -> bool:
        return before.main_pid is not None and proc.identify(before.main_pid) is None

    await until(gone)
    await unit.service.start()
    assert (await ready(unit)).state is RunState.RUNNING


async def test_a_start_clears_away_workers_of_a_start_whose_supervisor_was_killed(make_unit: MakeUnit) -> None:
    unit = make_unit(faults="*=orphan")
    await unit.service.start()
    before = await ready(unit)
    recorded = read_state(unit.folder)
    assert recorded is not None
    os.kill(recorded.supervisor.pid, signal.SIGKILL)
    await settled(unit, RunState.FAILED)
    assert before.invocation_id is not None
    await unit.service.start()
    assert proc.started_with("INVOCATION_ID", before.invocation_id) == []


async def test_a_recycled_pid_is_never_taken_for_ours(make_unit: MakeUnit) -> None:
    unit = make_unit()
    await unit.service.start()
    await ready(unit)
    await unit.service.stop()
    text = (unit.folder / "state.json").read_text()
    own = proc.identify(os.getpid())
    recorded = read_state(unit.folder)
    assert own is not None
    assert recorded is not None
    # As after a crash: the record says running, and its pids belong to another process by now.
    text = text.replace('"stopped"', '"running"').replace(f'"pid": {recorded.supervisor.pid}', f'"pid": {own.pid}')
    (unit.folder / "state.json").write_text(text)
    assert (await unit.service.state()).state is RunState.FAILED


async def test_an_engine_that_exits_at_once_is_failed_with_its_status(make_unit: MakeUnit) -> None:
    unit = make_unit(faults="*=exit")
    await unit.service.start()
    state = await settled(unit, RunState.FAILED)
    assert (state.exit_status, state.result) == (1, "exit-code")
    lines = await unit.service.lines(invocation_id=state.invocation_id)
    assert "RuntimeError: no kernel image" in [line.text for line in lines if line.origin == "engine"]
    assert "Main process exited, code=exited, status=1" in [line.text for line in lines if line.origin == "manager"]


async def test_a_crash_loop_ends_at_the_start_limit(make_unit: MakeUnit) -> None:
    unit = make_unit(faults="*=exit")
    text = unit.file.read_text().replace('restart = "no"', 'restart = "on-failure"\nrestart_delay_s = 0.0\nrestart_limit = 2')
    unit.file.write_text(text)
    await unit.service.start()

    async def limited() -> bool:
        return (await unit.service.state()).result == "start-limit-hit"

    await until(limited)
    assert (await unit.service.state()).restarts == 2


async def test_a_command_that_does_not_exist_fails_at_once_with_its_name(make_unit: MakeUnit) -> None:
    unit = make_unit()
    unit.file.write_text('command = ["/nonexistent/engine", "serve"]\n')
    assert await unit.service.check() == (f"{unit.file}: /nonexistent/engine does not exist",)
    with pytest.raises(HostError, match="/nonexistent/engine could not be started: No such file"):
        await unit.service.start()
    assert (await unit.service.state()).state is RunState.FAILED


async def test_the_configuration_tells_what_is_written_from_what_was_loaded(make_unit: MakeUnit) -> None:
    unit = make_unit()
    await unit.service.start()
    await ready(unit)
    config = await unit.service.configuration()
    assert config.loaded == config.command
    await unit.service.write(unit.service.edits(config, (*config.command, "--speculative-draft-window-size", "512")))
    changed = await unit.service.configuration()
    assert changed.command[-1] == "512"
    assert changed.loaded == config.command


async def test_a_write_is_refused_when_someone_changed_the_file_meanwhile(make_unit: MakeUnit) -> None:
    unit = make_unit()
    config = await unit.service.configuration()
    unit.file.write_text(unit.file.read_text() + "# by hand\n")
    with pytest.raises(HostError, match="changed by someone else"):
        await unit.service.write(unit.service.edits(config, (*config.command, "x")))
    assert unit.file.read_text().endswith("# by hand\n")


async def test_two_operations_cannot_hold_one_unit(make_unit: MakeUnit) -> None:
    unit = make_unit()
    other = ProcessService(LocalTransport(), unit.folder)
    async with unit.service.lock("apply by ada"):
        with pytest.raises(HostError, match="being changed by apply by ada"):
            async with other.lock("apply by bob"):
                pass
    async with other.lock("apply by bob"):
        pass


async def test_follow_gives_every_line_of_the_start_from_the_cursor_on_and_none_before(make_unit: MakeUnit) -> None:
    unit = make_unit()
    await unit.service.start()
    await ready(unit)
    await unit.service.stop()
    cursor = await unit.service.cursor()
    await unit.service.start()
    state = await ready(unit)
    seen: list[LogLine] = []
    async with asyncio.timeout(60):
        async for line in unit.service.follow(cursor=cursor):
            seen.append(line)
            if "fired up" in line.text:
                break
    assert {line.invocation_id for line in seen} == {state.invocation_id}
    assert [line.number for line in seen] == list(range(1, len(seen) + 1))
    assert any(line.text.endswith("draft_window_size=None, compact_cache=False") for line in seen)
    bar = next(line for line in seen if "100% Completed | 2/2" in line.text)
    loaded = next(line for line in seen if "type=LlamaForCausalLM" in line.text)
    assert bar.number is not None
    assert loaded.number is not None
    assert bar.number < loaded.number, "output and errors stay in the order in which they were written"


async def test_cursors_stay_valid_when_the_log_is_rotated(make_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch) -> None:
    from dflash_console.hosts.supervisor_log import LogWriter

    unit = make_unit()
    writer = LogWriter(unit.folder, limit=2_000)
    cursor = ""
    for number in range(24):
        if number == 12:
            cursor = await unit.service.cursor()
        writer.write([f"line {number}"], invocation="i" * 32, pid=1)
        if number == 18:
            # The next start opens the log anew.
            writer.close()
            writer = LogWriter(unit.folder, limit=2_000)
    writer.close()
    assert (unit.folder / "log.1.jsonl").exists()
    cursors = [line.cursor for line in await unit.service.lines()]
    assert cursors == sorted(set(cursors)), "they order the lines, whoever wrote them"
    seen = []
    async for line in unit.service.follow(cursor=cursor):
        seen.append(line.text)
        if len(seen) == 12:
            break
    assert seen == [f"line {number}" for number in range(12, 24)]
    eighth = (await unit.service.lines())[-8]
    later = []
    async for line in unit.service.follow(cursor=eighth.cursor):
        later.append(line.text)
        if len(later) == 7:
            break
    assert later == [f"line {number}" for number in range(17, 24)], "after the line whose cursor it is, across the rotation"


async def test_a_line_cut_by_a_crash_is_skipped_and_the_next_ones_are_read(make_unit: MakeUnit) -> None:
    from dflash_console.hosts.supervisor_log import LOG_NAME, LogWriter

    unit = make_unit()
    writer = LogWriter(unit.folder)
    writer.write(["before"], invocation="a" * 32, pid=1)
    writer.close()
    with (unit.folder / LOG_NAME).open("ab") as file:
        file.write(b'{"__CURSOR": "o00')
    writer = LogWriter(unit.folder)
    writer.write(["after"], invocation="b" * 32, pid=1)
    writer.close()
    assert [line.text for line in await unit.service.lines()] == ["before", "after"]


async def test_a_damaged_state_is_unknown_and_the_engine_can_still_be_stopped(make_unit: MakeUnit) -> None:
    unit = make_unit()
    await unit.service.start()
    running = await unit.service.state()
    (unit.folder / "state.json").write_text("{")
    found = await unit.service.state()
    assert found.state is RunState.UNKNOWN
    assert "damaged" in found.detail
    await unit.service.stop(timeout=10)
    assert (await unit.service.state()).state is RunState.STOPPED
    assert running.main_pid is not None
    assert proc.identify(running.main_pid) is None


async def test_a_byte_that_is_no_utf8_is_refused_with_its_line_and_stays(make_unit: MakeUnit) -> None:
    unit = make_unit()
    plain = await unit.service.configuration()
    (edit,) = unit.service.edits(plain, (*plain.command, "--added"))
    damaged = unit.file.read_bytes() + b"# \xe9t\xe9\n"
    unit.file.write_bytes(damaged)

    line = damaged.count(b"\n")
    said = rf"service\.toml: line {line} has a byte that is not UTF-8 text \(0xe9\); save the file as UTF-8"
    config = await unit.service.configuration()
    assert config.command == ()
    with pytest.raises(HostError, match=said):
        unit.service.edits(config, (*plain.command, "--added"))
    with pytest.raises(HostError, match=f"{said}; nothing was written"):
        await unit.service.write([FileEdit(edit.path, config.sources[0].text, edit.new)])
    with pytest.raises(HostError, match=said):
        await unit.service.start()
    assert unit.file.read_bytes() == damaged
