"""systemd's properties of a service in words: each state that looks like another is told apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.unit_order import drop_in_folders, drop_in_names, lay_out, object_path, unit_candidates
from dflash_console.evidence.unit_specifiers import UnitName, replace_specifiers
from dflash_console.hosts.service import RunState
from dflash_console.hosts.systemd_state import parse_show, parse_time, service_state

LIMIT = """Type=simple
Restart=always
ActiveState=failed
SubState=failed
Result=start-limit-hit
NRestarts=5
ExecMainCode=1
ExecMainStatus=1
ExecMainStartTimestamp=Sat 2026-05-02 09:11:03 UTC
NeedDaemonReload=no"""
LOOP = """Restart=always
ActiveState=activating
SubState=auto-restart
Result=exit-code
NRestarts=37
ExecMainCode=1
ExecMainStatus=1
MainPID=0"""


def state_of(text: str) -> tuple[RunState, str]:
    state = service_state("e.service", parse_show(text.encode()))
    return state.state, state.detail


def test_a_start_limit_is_a_failure_that_says_why_nothing_starts() -> None:
    state = service_state("e.service", parse_show(LIMIT.encode()))
    assert (state.state, state.result, state.restarts, state.exit_status) == (RunState.FAILED, "start-limit-hit", 5, 1)
    assert "started too often in a short time" in state.detail
    assert state.started_at == 1777713063.0


def test_a_crash_loop_is_not_starting() -> None:
    state, detail = state_of(LOOP)
    assert state is RunState.FAILED
    assert detail.startswith("crash loop: it ended with status 1, restarted 37 times so far")


def test_the_first_end_of_a_process_is_no_crash_loop_yet() -> None:
    state, detail = state_of(LOOP.replace("NRestarts=37", "NRestarts=0\nRestartUSec=2s"))
    assert state is RunState.FAILED
    assert detail == "it ended with status 1, and systemd restarts it after a pause of 2s"


@pytest.mark.parametrize(
    ("text", "state", "words"),
    [
        ("LoadState=not-found\nActiveState=inactive", RunState.MISSING, "there is no unit e.service"),
        ("LoadState=not-found\nActiveState=active\nSubState=running\nMainPID=7", RunState.RUNNING, "its unit file is gone"),
        ("LoadState=masked\nActiveState=inactive", RunState.STOPPED, "it is masked"),
        ('LoadState=bad-setting\nLoadError=x "why"\nActiveState=inactive', RunState.FAILED, "systemd refuses the unit: why"),
        ("ActiveState=active\nSubState=running\nMainPID=7\nNeedDaemonReload=yes", RunState.RUNNING, "until daemon-reload"),
        ("ActiveState=active\nSubState=running\nMainPID=7\nNRestarts=2", RunState.RUNNING, "restarted it 2 times by itself"),
        ("ActiveState=activating\nSubState=start\nMainPID=7", RunState.RUNNING, "not yet told systemd"),
        ("ActiveState=activating\nSubState=start-pre\nMainPID=0", RunState.STARTING, ""),
        ("ActiveState=inactive\nSubState=dead\nJob=412\nMainPID=0", RunState.STARTING, ""),
        ("ActiveState=inactive\nSubState=dead\nJob=\nMainPID=0", RunState.STOPPED, ""),
        ("ActiveState=deactivating\nSubState=stop-sigterm\nMainPID=7", RunState.STOPPING, ""),
        (
            "ActiveState=failed\nExecMainCode=2\nExecMainStatus=9\nResult=signal",
            RunState.FAILED,
            "was killed by SIGKILL (signal)",
        ),
        ("ActiveState=inactive\nConditionResult=no\nConditionTimestampMonotonic=5", RunState.STOPPED, "Condition"),
        ("ActiveState=inactive\nConditionResult=no\nConditionTimestampMonotonic=0", RunState.STOPPED, ""),
        ("ActiveState=active\nSubState=exited\nMainPID=0", RunState.RUNNING, "RemainAfterExit"),
        ("ActiveState=maintenance", RunState.UNKNOWN, ""),
        ("", RunState.UNKNOWN, ""),
    ],
)
def test_each_state_has_its_word_and_its_reason(text: str, state: RunState, words: str) -> None:
    found, detail = state_of(text)
    assert found is state
    assert words in detail
    assert bool(words) == bool(detail)


def test_a_process_that_a_signal_ended_has_no_exit_status() -> None:
    state = service_state("e", parse_show(b"ActiveState=failed\nExecMainCode=2\nExecMainStatus=9\nResult=signal\nMainPID=0"))
    assert state.exit_status is None


def test_the_mark_changes_with_the_managers_view_of_the_files_and_with_nothing_else() -> None:
    base = service_state("e", parse_show(b"NeedDaemonReload=no\nDropInPaths=/a\nMainPID=1"))
    assert base.config_mark == service_state("e", parse_show(b"NeedDaemonReload=no\nDropInPaths=/a\nMainPID=2")).config_mark
    assert base.config_mark != service_state("e", parse_show(b"NeedDaemonReload=yes\nDropInPaths=/a")).config_mark
    assert base.config_mark != service_state("e", parse_show(b"NeedDaemonReload=no\nDropInPaths=/a /b")).config_mark


@given(st.binary(max_size=200))
def test_no_answer_makes_the_reader_fail(data: bytes) -> None:
    service_state("e.service", parse_show(data))
    parse_time(data.decode("utf-8", "replace"))


def test_folders_and_files_come_in_systemds_order() -> None:
    assert drop_in_names("a-b-c@x.service") == (
        *("a-b-c@x.service.d", "a-b-c@.service.d", "a-b-.service.d", "a-.service.d", "service.d"),
    )
    folders = drop_in_folders(["e.service"], ["/etc", "/lib"])
    assert folders == ("/etc/e.service.d", "/lib/e.service.d", "/etc/service.d", "/lib/service.d")
    kinds = {
        "/lib/e.service": "f",
        "/lib/e.service.d/10.conf": "f",
        "/etc/e.service.d/20.conf": "c",
        "/lib/e.service.d/20.conf": "f",
        "/etc/service.d/05.conf": "f",
        "/etc/e.service.d/10.conf": "f",
    }
    layout = lay_out(unit_candidates("e.service", ["/etc", "/lib"]), folders, kinds)
    assert layout.fragment == "/lib/e.service"
    assert layout.drop_ins == ("/etc/service.d/05.conf", "/etc/e.service.d/10.conf")


def test_the_bus_path_of_a_unit_is_systemds() -> None:
    assert object_path("eng@a.service") == "/org/freedesktop/systemd1/unit/eng_40a_2eservice"
    assert object_path("9-x.service").endswith("/_39_2dx_2eservice")


def test_specifiers_of_a_name_are_filled_in_and_unknown_ones_named() -> None:
    values = UnitName(r"sgl-q@a-b\x2dc.service").specifiers()
    assert replace_specifiers("%n %p %i %I %j %%", values).value == r"sgl-q@a-b\x2dc.service sgl-q a-b\x2dc a/b-c q %"
    found = replace_specifiers("%h/%i%", values)
    assert (found.value, found.unknown) == (r"%h/a-b\x2dc%", "h")
    assert len(found.places) == len(found.value)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ({"ExecMainCode": "exited", "ExecMainStatus": "1"}, "it ended with status 1 (exit-code)"),
        ({"ExecMainCode": "1", "ExecMainStatus": "203"}, "status 203: its program is missing or cannot be executed"),
        (
            {"ExecMainCode": "1", "ExecMainStatus": "\u00b2", "MainPID": "\u00b2", "NRestarts": "[not set]"},
            "it failed (exit-code)",
        ),
        (
            {"ActiveState": "activating", "SubState": "start-pre", "NRestarts": "7", "ExecMainCode": "1", "ExecMainStatus": "1"},
            "systemd restarted it 7 times by itself",
        ),
    ],
)
def test_how_it_ended_and_how_often_is_told_in_words(shown: dict[str, str], said: str) -> None:
    failed = {"LoadState": "loaded", "ActiveState": "failed", "SubState": "failed", "Result": "exit-code"}
    assert said in service_state("u.service", {**failed, **shown}).detail


def test_a_unit_that_systemd_run_made_is_said_to_be_gone_once_it_stops() -> None:
    state, detail = state_of("ActiveState=active\nSubState=running\nMainPID=7\nFragmentPath=/run/systemd/transient/e.service")
    assert state is RunState.RUNNING
    assert detail == "it was made by systemd-run: once it stops it is gone, and its configuration with it"
    assert state_of("ActiveState=active\nMainPID=7\nFragmentPath=/run/systemd/system/e.service")[1] == ""


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (
            "Result=oom-kill\nExecMainCode=2\nExecMainStatus=9",
            "it was killed by SIGKILL (oom-kill: memory ran out, the host's",
        ),
        ("Result=resources\nExecMainCode=0\nExecMainStatus=0", "it failed (resources: systemd could not prepare its start"),
        ("Result=timeout\nExecMainCode=2\nExecMainStatus=15", "it was killed by SIGTERM (timeout: TimeoutStartSec= or"),
        (
            "Result=exit-code\nExecMainCode=1\nExecMainStatus=137",
            "it ended with status 137: a signal ended it, SIGKILL (exit",
        ),
        (
            "Result=exit-code\nExecMainCode=1\nExecMainStatus=203",
            "it ended with status 203: its program is missing",
        ),
        ("Result=exit-code\nExecMainCode=1\nExecMainStatus=255", "it ended with status 255 (exit-code)"),
        ("Result=signal\nExecMainCode=2\nExecMainStatus=37", "it was killed by signal 37 (signal)"),
    ],
)
def test_how_a_unit_failed_is_said_in_words(shown: str, said: str) -> None:
    state, detail = state_of(f"ActiveState=failed\nSubState=failed\n{shown}")
    assert state is RunState.FAILED
    assert detail.startswith(said)


def test_a_start_that_its_own_condition_skipped_is_no_silence() -> None:
    state, detail = state_of("ActiveState=inactive\nSubState=dead\nResult=exec-condition\nExecMainCode=0")
    assert (state, detail) == (RunState.STOPPED, "its last start was skipped: its ExecCondition= said no")
