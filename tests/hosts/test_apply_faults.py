"""Every way in which an apply can go wrong, each with the verdict that it must get. Nothing is mocked: engines die, hang, lie."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_console.apply import StageEvent, StageStatus, Verdict, apply_plan, pending_operations, stop_service
from dflash_console.config import Config, Sampling
from dflash_console.hosts.process import ProcessService
from dflash_console.hosts.service import RunState, ServiceState
from dflash_console.hosts.supervisor_state import read_state
from dflash_console.plan import Change, Mode

from .conftest import MakeUnit
from .sessions import FAST, IMPATIENT, NEVER_READY, change, session_on, stage, started


@contextmanager
def port_held(port: int) -> Iterator[None]:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        yield


async def test_an_engine_that_exits_at_once_has_died_and_its_last_words_are_quoted(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit(faults="16=exit")
    async with session_on(tmp_path) as session:
        await started(session)
        result = await change(session, {"tree_budget": 16})
        assert result.verdict is Verdict.PROCESS_DIED
        assert "RuntimeError: no kernel image" in result.reason
        assert any("RuntimeError" in line.text for line in result.lines)
        assert (result.confirmed, result.rolled_back) == (False, False)


async def test_an_engine_that_ignores_the_flag_runs_with_another_value(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit(faults="16=ignore-flag;16=hang")
    async with session_on(tmp_path) as session:
        result = await change(session, {"tree_budget": 16, "draft_window": 512})
        assert result.verdict is Verdict.OTHER_VALUE
        assert "compact draft cache is off, not 512" in result.reason
        assert [line.text.partition("draft runner")[1] for line in result.lines] == ["draft runner"]
        # It hangs before it is ready, so the verdict came from the log alone, without waiting for the rest of the start.
        assert stage(result, "KV pool").status is StageStatus.FAILED or result.stages[-1].status is StageStatus.FAILED


async def test_an_engine_that_prints_one_value_and_computes_another_is_not_confirmed(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit(faults="16=server-differs")
    async with session_on(tmp_path) as session:
        result = await change(session, {"tree_budget": 16, "draft_window": 512})
        assert result.verdict is Verdict.OTHER_VALUE
        assert stage(result, "truth").status is StageStatus.FAILED
        assert "compact draft cache is off, not 512 (/server_info" in result.reason


async def test_a_port_that_was_taken_meanwhile_ends_the_engine_and_is_named(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        with port_held(unit.port):
            result = await apply_plan(session, plan, timeouts=FAST)
        assert result.verdict is Verdict.PROCESS_DIED
        assert f"port {unit.port} is in use" in result.reason


async def test_a_port_that_is_taken_blocks_the_plan(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        with port_held(unit.port):
            plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
            result = await apply_plan(session, plan, timeouts=FAST)
        assert [finding.code for finding in plan.errors] == ["port_busy"]
        assert result.verdict is Verdict.REFUSED
        assert (await session.service.state()).state is RunState.STOPPED


async def test_an_engine_that_hangs_before_it_is_ready_times_out_with_the_stage_and_its_last_line(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit(faults="16=hang")
    async with session_on(tmp_path) as session:
        result = await change(session, {"tree_budget": 16}, timeouts=NEVER_READY)
        assert result.verdict is Verdict.TIMED_OUT
        assert "while waiting for ready" in result.reason
        assert "max_total_num_tokens=8192" in result.reason


class LazyService(ProcessService):
    """A service manager that takes a restart and does nothing: exit status 0, as the script in a cron job would see it."""

    async def restart(self) -> None:
        pass


async def test_a_restart_that_does_not_restart_is_known_by_the_invocation_id(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        first = await started(session)
        session.service = LazyService(unit.transport, unit.folder)
        result = await change(session, {"tree_budget": 16}, timeouts=IMPATIENT)
        assert result.verdict is Verdict.NO_RESTART
        assert "the invocation id did not change" in result.reason
        assert result.invocation_id is None
        assert (await session.service.state()).invocation_id == first.invocation_id


class LyingService(ProcessService):
    """A service manager that shows a new start while the old process goes on: a wrapper that forked, a PID file that lies."""

    asked = False

    async def restart(self) -> None:
        self.asked = True

    async def state(self) -> ServiceState:
        found = await super().state()
        return replace(found, invocation_id="f" * 32) if self.asked else found


async def test_a_new_invocation_id_with_the_old_process_still_there_is_no_restart(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        session.service = LyingService(unit.transport, unit.folder)
        result = await change(session, {"tree_budget": 16}, timeouts=IMPATIENT)
        assert result.verdict is Verdict.NO_RESTART
        assert "the old process" in result.reason


async def test_a_line_that_the_old_start_prints_after_the_restart_was_asked_for_confirms_nothing(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit("--speculative-ddtree-budget", "8", faults="8=parting-line;16=foreign;16=no-line")
    async with session_on(tmp_path) as session:
        await started(session)
        result = await change(session, {"tree_budget": 16, "draft_window": 512})
        lines = await session.service.lines()
        assert any("draft_window_size=512" in line.text for line in lines), "the line is there, of the wrong start"
        assert result.verdict is Verdict.NO_LINE


async def test_a_service_manager_that_hangs_is_no_restart_and_its_own_words_are_quoted(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        session.service = ProcessService(unit.transport, unit.folder, job_timeout=1.0)
        recorded = read_state(unit.folder)
        assert recorded is not None
        os.kill(recorded.supervisor.pid, signal.SIGSTOP)
        try:
            result = await change(session, {"tree_budget": 16}, timeouts=IMPATIENT)
        finally:
            os.kill(recorded.supervisor.pid, signal.SIGCONT)
        assert result.verdict is Verdict.NO_RESTART
        assert "did not stop the engine within 1 s" in result.reason


async def test_a_broken_drafter_ends_the_engine_and_the_reason_is_its_own_sentence(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit(faults="16=broken-drafter")
    async with session_on(tmp_path) as session:
        result = await change(session, {"tree_budget": 16})
        assert result.verdict is Verdict.PROCESS_DIED
        assert "config.json has no block_size" in result.reason
        # An engine that ends within a moment is found dead at the first look or while its weights are waited for.
        failed = [found.name for found in result.stages if found.status is StageStatus.FAILED]
        assert failed in (["process up"], ["weights"])


async def test_a_drafter_that_is_not_there_blocks_the_plan(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        plan = await session.plan(Change({"drafter": str(tmp_path / "nothing")}, Mode.RESTART))
        assert [finding.code for finding in plan.errors] == ["drafter_broken"]


async def test_a_full_disk_at_the_write_changes_nothing(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        first = await started(session)
        text = unit.file.read_text()
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

        def fill(event: StageEvent) -> None:
            if event.stage.name == "write":
                full = event.stage.status is StageStatus.RUNNING
                resource.setrlimit(resource.RLIMIT_FSIZE, (0 if full else soft, hard))

        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        try:
            result = await apply_plan(session, plan, timeouts=FAST, on_event=fill)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert result.verdict is Verdict.WRITE_FAILED
        assert unit.file.read_text() == text
        assert sorted(path.name for path in unit.folder.iterdir() if path.name.startswith(".")) == [], "no half file is left"
        assert (await session.service.state()).invocation_id == first.invocation_id


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=False, capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs root on this machine")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


async def test_a_really_full_file_system_is_said_to_be_full(make_unit: MakeUnit, tmp_path: Path, small_disk: Path) -> None:
    unit = make_unit()
    (small_disk / "service.toml").write_text(unit.file.read_text())
    (small_disk / "kept").symlink_to(tmp_path)
    (small_disk / "fill").write_bytes(b"x" * 61_440)
    unit.folder.rename(tmp_path / "elsewhere")
    unit.folder.symlink_to(small_disk)
    async with session_on(tmp_path) as session:
        result = await change(session, {"tree_budget": 16})
    assert result.verdict is Verdict.WRITE_FAILED
    assert "no space left" in result.reason
    assert "ddtree-budget" not in (small_disk / "service.toml").read_text()


async def test_a_full_disk_stops_no_stop(make_unit: MakeUnit, tmp_path: Path, small_disk: Path) -> None:
    make_unit()
    (small_disk / "fill").write_bytes(b"x" * 65_536)
    async with session_on(tmp_path) as session:
        await session.service.start()
        session.paths.operations.parent.mkdir(parents=True, exist_ok=True)
        session.paths.operations.symlink_to(small_disk)
        result = await stop_service(session, timeouts=FAST)
        assert result.confirmed, result.reason
        assert "journal" in result.reason
        assert "no space left" in result.reason.lower()
        assert "done without" in result.reason
        assert pending_operations(session.paths) == ()
        assert (await session.service.state()).state is RunState.STOPPED


async def test_an_engine_that_dies_right_after_it_was_ready_is_not_confirmed(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit(faults="16=die-after-ready")
    async with session_on(tmp_path) as session:
        result = await change(session, {"tree_budget": 16})
        assert result.verdict in (Verdict.PROCESS_DIED, Verdict.BAD_ANSWER)
        assert not result.confirmed


async def test_an_engine_that_cannot_answer_a_prompt_is_not_confirmed(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit(faults="16=bad-answer")
    async with session_on(tmp_path) as session:
        result = await change(session, {"tree_budget": 16})
        assert result.verdict is Verdict.BAD_ANSWER
        assert "illegal memory access" in result.reason


async def test_a_foreign_engine_without_a_confirmation_line_is_not_confirmed(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit(faults="*=foreign;*=no-line")
    async with session_on(tmp_path) as session:
        result = await change(session, {"draft_window": 512})
        assert result.verdict is Verdict.NO_LINE
        assert "no line of this start confirms compact draft cache 512" in result.reason


async def test_a_foreign_engine_is_confirmed_by_its_log_and_not_by_the_flags_that_it_echoes(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit(faults="*=foreign")
    async with session_on(tmp_path) as session:
        result = await change(session, {"draft_window": 512})
        assert result.verdict is Verdict.CONFIRMED
        assert "log line" in result.reason


async def test_a_foreign_engine_with_a_quiet_log_is_unknown_and_not_confirmed(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit("--log-level", "warning", faults="*=foreign")
    async with session_on(tmp_path) as session:
        result = await change(session, {"draft_window": 512})
        assert result.verdict is Verdict.UNKNOWN
        assert not result.confirmed
        assert "not confirmable" in result.reason


async def test_an_embedded_engine_with_a_quiet_log_is_confirmed_by_what_it_computed(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit("--log-level", "warning")
    async with session_on(tmp_path) as session:
        result = await change(session, {"draft_window": 512})
        assert result.verdict is Verdict.CONFIRMED, result.reason
        hot = await change(session, {"tree_budget": 16}, Mode.HOT)
        assert hot.verdict is Verdict.CONFIRMED, hot.reason
        assert stage(hot, "log line").status is StageStatus.SKIPPED


async def test_a_hot_change_that_the_engine_refuses_is_refused(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit(faults="*=refuse-hot")
    async with session_on(tmp_path) as session:
        await started(session)
        result = await change(session, {"tree_budget": 16}, Mode.HOT)
        assert (result.verdict, result.confirmed) == (Verdict.REFUSED, False)
        assert result.reason == "the engine refused speculative_ddtree_budget=16: at most 12 nodes are possible"


async def test_a_refusal_without_a_word_points_to_the_log_and_leaves_nothing_to_take_back(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit(faults="*=refuse-hot;*=silently")
    async with session_on(tmp_path) as session:
        await started(session)
        result = await change(session, {"tree_budget": 16}, Mode.HOT, rollback=True, timeouts=IMPATIENT)
        assert (result.verdict, result.rolled_back) == (Verdict.REFUSED, False)
        assert result.reason == "the engine refused speculative_ddtree_budget=16; see its log for the reason"


async def test_a_hot_change_that_is_only_said_to_be_done_is_not_confirmed(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit(faults="*=pretend-hot")
    async with session_on(tmp_path) as session:
        await started(session)
        result = await change(session, {"tree_budget": 16}, Mode.HOT, timeouts=IMPATIENT)
        assert result.verdict is Verdict.NO_LINE
        assert "speculative_ddtree_budget" in result.reason


async def test_read_only_refuses(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    text = unit.file.read_text()
    async with session_on(tmp_path, config=Config(read_only=True, sampling=Sampling(0.2))) as session:
        result = await change(session, {"tree_budget": 16})
        assert result.verdict is Verdict.REFUSED
    assert unit.file.read_text() == text
