"""The main job on a real host: a systemd unit over SSH, changed, restarted, confirmed from that very start, or put back."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from dflash_console.apply import (
    ApplyResult,
    StageEvent,
    StageStatus,
    Verdict,
    apply_plan,
    restart_service,
    roll_back,
    start_service,
    stop_service,
)
from dflash_console.drift import DriftKind, TruthRow, truth_table
from dflash_console.knobs import Value
from dflash_console.plan import Change, Mode, Plan
from dflash_console.session import HostSession
from tests.ports import free_port
from tests.testhost.fixtures import BootHost

from .remote_rig import DROP_IN, UNIT, WAITS, Remote, remote
from .sessions import stage
from .ssh_home import SshHome

__all__ = ["remote"]
pytestmark = pytest.mark.slow


async def started(session: HostSession) -> ApplyResult:
    result = await start_service(session, timeouts=WAITS)
    assert result.confirmed, result.reason
    return result


async def planned(session: HostSession, mode: Mode = Mode.RESTART, **settings: Value) -> Plan:
    plan = await session.plan(Change(settings, mode))
    assert not plan.blocked, plan.findings
    return plan


async def row_of(session: HostSession, knob: str, kind: DriftKind, patience: float = 30.0) -> tuple[TruthRow, float]:
    """Wait until the watcher's own snapshots say so; the row, and the seconds it took."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while True:
        row = truth_table(session.watcher.state).row(knob)
        if row is not None and row.kind is kind:
            return row, loop.time() - begun
        assert loop.time() - begun < patience, row
        await asyncio.sleep(0.05)


async def test_the_story_a_flag_that_was_written_and_never_started_is_named_and_a_restart_mends_it(remote: Remote) -> None:
    remote.install()
    async with remote.session() as session:
        await started(session)
        await session.watcher.settled()
        remote.edit_unit("--host", "--speculative-draft-window-size 2048 --host")
        row, seconds = await row_of(session, "draft_window", DriftKind.PROCESS_OLDER)
        assert "the process is older than the unit file" in row.message
        assert "no restart happened since it was written" in row.message
        assert "(the manager has not loaded it yet)" in row.message
        assert seconds < 10, "three seconds on a machine of one's own"
        # A plain restart would start the old command: nothing has told systemd. The console's own tells it.
        before = remote.shown("InvocationID")
        plan = await planned(session, draft_window=2048)
        assert not plan.writes
        result = await restart_service(session, timeouts=WAITS)
        assert result.confirmed, result.reason
        assert "compact draft cache 2048 (log line" in result.reason
        assert result.invocation_id == remote.shown("InvocationID") != before
        assert truth_table(await session.watcher.refresh()).drifted == ()


async def test_a_change_is_a_drop_in_that_is_loaded_started_and_confirmed_and_a_roll_back_removes_it(remote: Remote) -> None:
    remote.install()
    async with remote.session() as session:
        first = await started(session)
        plan = await planned(session, tree_budget=16, draft_window=512)
        assert plan.target == DROP_IN
        result = await apply_plan(session, plan, timeouts=WAITS, why="a test")
        assert result.confirmed, result.reason
        assert stage(result, "reload").evidence == "the manager has loaded exactly the planned command"
        assert result.invocation_id == remote.shown("InvocationID") != first.invocation_id
        lines = remote.text("/var/log/ddtree-console/audit.jsonl")
        assert lines is not None
        audit = json.loads(lines.splitlines()[-1])
        assert (audit["what"], audit["verdict"], audit["why"]) == ("apply", "confirmed", "a test")
        assert "tree_budget=16" in audit["settings"]
        assert audit["who"]
        back = await roll_back(session, timeouts=WAITS)
        assert back.confirmed, back.reason
        assert back.rolled_back
        assert remote.text(DROP_IN) is None
        assert back.invocation_id == remote.shown("InvocationID") != result.invocation_id
        assert (await stop_service(session, timeouts=WAITS)).confirmed
        assert remote.shown("ActiveState") == "inactive"


async def test_three_changes_of_a_real_engine_are_confirmed(remote: Remote) -> None:
    unit = remote.host.install_engine(port=free_port(), unit=UNIT)
    assert unit == UNIT
    async with remote.session() as session:
        await started(session)
        for budget in (16, 12, 24):
            result = await apply_plan(session, await planned(session, tree_budget=budget), timeouts=WAITS)
            assert result.confirmed, result.reason
            assert f"tree budget {budget} (log line" in result.reason


async def test_a_change_through_a_jump_host_is_confirmed(
    boot_host: BootHost,
    remote: Remote,
    ssh_home: SshHome,
) -> None:
    ssh_home.add_host("bastion", boot_host("bastion"))
    ssh_home.add_host("behind", remote.host, "ProxyJump bastion")
    remote.install()
    async with remote.session(alias="behind") as session:
        await started(session)
        result = await apply_plan(session, await planned(session, tree_budget=16), timeouts=WAITS)
        assert result.confirmed, result.reason


async def test_a_start_that_dies_is_told_with_its_cause_and_the_old_configuration_comes_back_confirmed(remote: Remote) -> None:
    remote.install(faults="16=exit")
    async with remote.session() as session:
        await started(session)
        result = await apply_plan(session, await planned(session, tree_budget=16), rollback_on_failure=True, timeouts=WAITS)
        assert result.verdict is Verdict.PROCESS_DIED
        assert "no kernel image" in result.reason
        assert result.rolled_back
        assert remote.text(DROP_IN) is None
        assert result.invocation_id == remote.shown("InvocationID")


async def test_a_hot_change_takes_no_restart(remote: Remote) -> None:
    remote.install()
    async with remote.session() as session:
        first = await started(session)
        result = await apply_plan(session, await planned(session, Mode.AUTO, tree_budget=16), timeouts=WAITS)
        assert result.confirmed, result.reason
        assert remote.shown("InvocationID") == first.invocation_id
        row, _ = await row_of(session, "tree_budget", DriftKind.HOT_NOT_WRITTEN)
        assert "16 now, 8 in the unit file" in row.message


async def test_of_two_consoles_one_is_told_who_is_at_work(remote: Remote) -> None:
    remote.install(faults="16=slow")
    async with remote.session("one") as one, remote.session("two") as two:
        await started(one)
        running = asyncio.Event()

        def note(event: StageEvent) -> None:
            if event.stage.name == "write" and event.stage.status is StageStatus.DONE:
                running.set()

        other = await planned(two, tree_budget=32)
        plan = await planned(one, tree_budget=16)
        first = asyncio.create_task(apply_plan(one, plan, timeouts=WAITS, on_event=note))
        await asyncio.wait_for(running.wait(), 60)
        refused = await apply_plan(two, other, timeouts=WAITS)
        assert refused.verdict is Verdict.REFUSED
        assert "is being changed by apply by" in refused.reason
        assert (await first).confirmed
        late = await apply_plan(two, other, timeouts=WAITS)
        assert late.verdict is Verdict.REFUSED
        assert "since the plan was made" in late.reason


async def test_read_only_changes_nothing(remote: Remote) -> None:
    remote.install()
    async with remote.session(read_only=True) as session:
        for result in (
            await start_service(session, timeouts=WAITS),
            await apply_plan(session, await planned(session, tree_budget=16), timeouts=WAITS),
            await stop_service(session, timeouts=WAITS),
        ):
            assert result.verdict is Verdict.REFUSED
            assert "read-only" in result.reason
    assert remote.shown("ActiveState") == "inactive"
    assert remote.text(DROP_IN) is None


async def test_a_plan_whose_unit_was_edited_meanwhile_is_refused(remote: Remote) -> None:
    remote.install()
    async with remote.session() as session:
        plan = await planned(session, tree_budget=16)
        remote.edit_unit("--host", "--log-requests --host")
        result = await apply_plan(session, plan, timeouts=WAITS)
        assert result.verdict is Verdict.REFUSED
        assert "was changed since the plan was made" in result.reason
        plan = await planned(session, tree_budget=16)
        remote.write("/etc/systemd/system/engine.service.d/zzz.conf", "[Service]\nExecStart=\nExecStart=/bin/true\n")
        result = await apply_plan(session, plan, timeouts=WAITS)
        assert result.verdict in (Verdict.REFUSED, Verdict.WRITE_FAILED)
        assert remote.text(DROP_IN) is None


async def test_verify_finds_a_new_complaint_and_nothing_is_left_behind(remote: Remote) -> None:
    remote.install()
    async with remote.session() as session:
        await started(session)
        plan = await planned(session, tree_budget=16)
        (edit,) = plan.edits
        assert edit.new is not None
        broken = replace(edit, new=edit.new.replace("[Service]\n", "[Service]\nNoSuchSetting=1\n"))
        result = await apply_plan(session, replace(plan, edits=(broken,)), timeouts=WAITS)
        assert result.verdict is Verdict.WRITE_FAILED
        assert "NoSuchSetting" in result.reason
        assert remote.text(DROP_IN) is None


async def test_an_environment_file_that_was_edited_and_not_started_is_named(remote: Remote) -> None:
    remote.write("/etc/default/engine", "BUDGET=8\n")
    remote.install(service=("EnvironmentFile=/etc/default/engine",))
    remote.edit_unit("--speculative-ddtree-budget 8", "--speculative-ddtree-budget ${BUDGET}")
    remote.host.exec("systemctl", "daemon-reload")
    async with remote.session() as session:
        await started(session)
        remote.write("/etc/default/engine", "BUDGET=16\n")
        row, _ = await row_of(session, "tree_budget", DriftKind.PROCESS_OLDER)
        assert "the process is older than /etc/default/engine" in row.message
        plan = await planned(session, tree_budget=24)
        assert plan.target == "/etc/default/engine"
        result = await apply_plan(session, plan, timeouts=WAITS)
        assert result.confirmed, result.reason
        assert remote.text("/etc/default/engine") == "BUDGET=24\n"


async def test_an_engine_is_spoken_to_where_it_listens_also_when_systemd_has_read_another_port(remote: Remote) -> None:
    remote.install()
    async with remote.session() as session:
        await started(session)
        await session.watcher.settled()
        remote.edit_unit(f"--port {remote.port}", f"--port {free_port()}")
        remote.host.exec("systemctl", "daemon-reload")
        row, _ = await row_of(session, "flag:--port", DriftKind.PROCESS_OLDER)
        assert "no restart happened since" in row.message
        assert await (await session.engine()).healthy()
        state = await session.watcher.refresh()
        assert state.ready
        assert state.server is not None
        result = await restart_service(session, timeouts=WAITS)
        assert result.confirmed, result.reason
