"""Units on a real systemd 252: what is read, what is said of it, and what the verbs do."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import find, settings
from hypothesis import strategies as st

from dflash_console.evidence.command import set_flag
from dflash_console.hosts.service import RunState
from dflash_console.hosts.transport import HostError
from dflash_console.knobs import KNOBS

from .systemd_rig import Rig, names, unit_text

pytestmark = pytest.mark.slow
EXEC = "ExecStart=/usr/local/bin/ddtree-launch serve"


async def test_a_unit_that_is_not_there_is_missing_and_says_so(rig: Rig) -> None:
    state = await rig.service("nowhere").state()
    assert (state.state, state.detail) == (RunState.MISSING, "there is no unit nowhere.service")
    with pytest.raises(HostError, match=r"there is no unit nowhere\.service on"):
        await rig.service("nowhere").configuration()


@pytest.mark.parametrize("name", ["", "a b", "../x", "x@", "-x", "a/b", ".x", "ü"])
def test_what_is_no_service_name_is_refused_before_anything_is_asked(rig: Rig, name: str) -> None:
    with pytest.raises(HostError, match="is no service's name"):
        rig.service(name)


async def test_a_start_and_a_stop_are_seen_with_their_invocation(rig: Rig) -> None:
    rig.unit("b2-run.service", unit_text("b2run"))
    service = rig.service("b2-run")
    state = await service.state()
    assert (state.state, state.detail) == (RunState.STOPPED, "")
    await service.start()
    first = await service.state()
    assert (first.state, first.detail, first.exit_status) == (RunState.RUNNING, "", None)
    assert first.main_pid is not None
    assert first.started_at is not None
    assert abs(first.started_at - float(rig.host.exec("date", "+%s.%N").stdout)) < 20
    await service.restart()
    second = await service.state()
    assert second.invocation_id not in (None, first.invocation_id)
    await service.stop()
    assert (await service.state()).state is RunState.STOPPED


async def test_a_masked_unit_is_named_and_its_start_refused_with_the_reason(rig: Rig) -> None:
    rig.unit("b2-mask.service", unit_text("b2mask"))
    rig.host.exec("systemctl", "mask", "--runtime", "b2-mask.service", check=False)
    rig.host.exec("sh", "-c", "mv /etc/systemd/system/b2-mask.service /etc/b2-mask.kept; systemctl mask b2-mask.service")
    service = rig.service("b2-mask")
    state = await service.state()
    assert state.result == "masked"
    assert "masked" in state.detail
    with pytest.raises(HostError, match="is masked"):
        await service.start()
    rig.host.exec("sh", "-c", "systemctl unmask b2-mask.service; systemctl unmask --runtime b2-mask.service")


async def test_a_unit_that_systemd_refuses_is_failed_with_its_words(rig: Rig) -> None:
    rig.unit("b2-bad.service", unit_text("b2bad"), oops="[Service]\nExecStart=/bin/true\n")
    service = rig.service("b2-bad")
    state = await service.state()
    assert (state.state, state.result) == (RunState.FAILED, "bad-setting")
    config = await service.configuration()
    assert "more than one ExecStart=" in " ".join(config.problems)
    assert any("more than one ExecStart=" in line for line in await service.check())
    with pytest.raises(HostError, match="has a bad unit file"):
        await service.start()


async def test_a_crash_loop_is_no_running_engine_and_is_counted(rig: Rig) -> None:
    rig.unit(
        "b2-loop.service", "[Service]\nExecStart=/bin/sh -c 'exit 7'\nRestart=always\nRestartSec=2\nStartLimitIntervalSec=0\n"
    )
    service = rig.service("b2-loop")
    await service.start()
    await asyncio.sleep(3.0)
    state = await service.state()
    assert state.state is RunState.FAILED
    assert state.restarts >= 1
    assert "crash loop: it ended with status 7, restarted" in state.detail
    await service.stop()
    assert (await service.state()).state in (RunState.STOPPED, RunState.FAILED)


async def test_in_the_middle_of_a_restart_a_unit_is_stopping_or_starting_and_never_stopped_or_failed(rig: Rig) -> None:
    rig.unit("b2-slow.service", "[Service]\nExecStartPre=/bin/sleep 1\nExecStart=/bin/sleep 1000\nExecStopPost=/bin/sleep 1\n")
    service = rig.service("b2-slow")
    await service.start()
    seen: list[RunState] = []

    async def until_it_runs() -> str | None:
        while True:
            state = await service.state()
            seen.append(state.state)
            if state.state is RunState.RUNNING and state.invocation_id != before:
                return state.invocation_id

    before: str | None = None
    before = await until_it_runs()
    seen.clear()
    restart = asyncio.create_task(service.restart())
    await until_it_runs()
    await restart
    assert set(seen) == {RunState.RUNNING, RunState.STOPPING, RunState.STARTING}


async def test_a_process_that_ended_for_the_first_time_is_said_to_be_restarted(rig: Rig) -> None:
    rig.unit("b2-once.service", "[Service]\nExecStart=/bin/sleep 1000\nRestart=always\nRestartSec=30\n")
    service = rig.service("b2-once")
    await service.start()
    rig.host.exec("systemctl", "kill", "--signal=KILL", "b2-once.service")
    for _ in range(100):
        state = await service.state()
        if state.state is not RunState.RUNNING:
            break
        await asyncio.sleep(0.1)
    assert state.state is RunState.FAILED
    assert state.detail == "it was killed by SIGKILL, and systemd restarts it after a pause of 30s"


async def test_a_start_that_the_limit_refuses_is_a_refusal_with_its_reason_and_the_next_one_is_tried_anew(rig: Rig) -> None:
    text = "[Unit]\nStartLimitIntervalSec=600\nStartLimitBurst=2\n" + unit_text("b2limit")
    rig.unit("b2-limit.service", text)
    service = rig.service("b2-limit")
    await service.start()
    await service.restart()
    with pytest.raises(HostError, match=r"systemd did not restart b2-limit\.service: it was started too often"):
        await service.restart()
    state = await service.state()
    assert (state.state, state.result) == (RunState.FAILED, "start-limit-hit")
    await service.start()
    assert (await service.state()).state is RunState.RUNNING


async def test_a_condition_that_is_not_met_is_the_reason_of_a_refusal(rig: Rig) -> None:
    rig.unit("b2-cond.service", "[Unit]\nConditionPathExists=/nowhere\n" + unit_text("b2cond"))
    with pytest.raises(HostError, match=r"did not start .*(Condition…= of the unit is not met|it ended at once)"):
        await rig.service("b2-cond").start()


async def test_a_drop_in_that_systemd_has_not_read_is_read_here_and_told_from_what_is_loaded(rig: Rig) -> None:
    rig.unit("b2-new.service", unit_text("b2new", "--port 31001"))
    service = rig.service("b2-new")
    # A unit that is not in memory would be read anew when it is asked about.
    await service.start()
    before = await service.configuration()
    rig.write("/etc/systemd/system/b2-new.service.d/a.conf", f"[Service]\nExecStart=\n{EXEC} b2new --port 2\n")
    config = await service.configuration()
    assert config.folders != before.folders, "systemd's own NeedDaemonReload does not see a new folder"
    assert config.command[-1] == "2"
    assert config.loaded is not None
    assert config.loaded[-1] == "31001"
    await service.reload()
    config = await service.configuration()
    assert config.loaded == config.command


async def test_a_unit_that_was_edited_and_not_read_says_that_a_restart_runs_the_old_command(rig: Rig) -> None:
    rig.unit("b2-edit.service", unit_text("b2edit", "--port 31001"))
    service = rig.service("b2-edit")
    await service.start()
    mark = (await service.state()).config_mark
    rig.write("/etc/systemd/system/b2-edit.service", unit_text("b2edit", "--port 31002"))
    state = await service.state()
    assert "systemd has not read them" in state.detail
    assert state.config_mark != mark
    await service.reload()
    assert (await service.state()).detail == ""


async def test_files_are_found_in_the_order_in_which_systemd_reads_them(rig: Rig) -> None:
    rig.unit("b2-a-b@.service", unit_text("%i"))
    for folder, name in (
        *(("/etc/systemd/system/b2-a-b@x.service.d", each) for each in ("20-own", "zz-late")),
        *(("/etc/systemd/system/b2-a-b@.service.d", each) for each in ("10-template", "20-own")),
        *(("/run/systemd/system/b2-a-b@x.service.d", each) for each in ("30-run", "20-own")),
        ("/etc/systemd/system/b2-a-.service.d", "15-prefix"),
        ("/etc/systemd/system/b2-.service.d", "05-short"),
        ("/etc/systemd/system/service.d", "12-all"),
    ):
        rig.write(f"{folder}/{name}.conf", f"[Service]\nEnvironment=X_{name.replace('-', '_')}={folder.count('/')}\n")
    rig.host.exec("ln", "-s", "/dev/null", "/etc/systemd/system/b2-a-b@x.service.d/05-short.conf")
    rig.reload()
    try:
        service = rig.service("b2-a-b@x")
        config = await service.configuration()
        shown = (
            rig.host.exec("systemctl", "show", "b2-a-b@x", "-p", "FragmentPath,DropInPaths", "--value").stdout.decode().split()
        )
        assert names(shown).count("20-own.conf") == 1
        # systemd names the link that hides a drop-in too; there is nothing in it.
        assert [source.path for source in config.sources] == [path for path in shown if "05-short" not in path]
    finally:
        folders = "b2-a-b@x.service.d b2-a-b@.service.d b2-a-.service.d b2-.service.d service.d"
        rig.host.exec("sh", "-c", f"cd /etc/systemd/system; rm -rf {folders} /run/systemd/system/b2-a-b@x.service.d")


async def test_a_change_is_what_systemd_loads_and_the_process_gets(rig: Rig) -> None:
    rig.unit("b2-set.service", unit_text("b2set", "--speculative-ddtree-budget 8", "--port 31001"))
    service = rig.service("b2-set")
    config = await service.configuration()
    wanted = set_flag(config.command, KNOBS["tree_budget"], 16)
    edits = service.edits(config, wanted)
    assert names([edit.path for edit in edits]) == ["zz-ddtree-console.conf"]
    await service.write(edits)
    await service.reload()
    config = await service.configuration()
    assert config.loaded == config.command == wanted
    await service.start()
    await asyncio.sleep(0.3)
    assert rig.argv("b2set")[1:] == wanted[1:]
    await service.write(service.release())
    await service.reload()
    config = await service.configuration()
    assert config.loaded == config.command != wanted


VARIABLES = {
    "unset": ("x${A}x $B", "Environment=A=1 B=2\nUnsetEnvironment=A\n"),
    "unset with one value": ("${A} ${B}x", "Environment=A=1 B=2\nUnsetEnvironment=A=9 B=2\n"),
    "unset and not any more": ("$A", "Environment=A=1\nUnsetEnvironment=A\nUnsetEnvironment=\n"),
    "folders": (
        "--log=${STATE_DIRECTORY} ${RUNTIME_DIRECTORY} ${LOGS_DIRECTORY}",
        "StateDirectory=%p\nRuntimeDirectory=v-b v-a\nLogsDirectory=v-x\nLogsDirectory=\nLogsDirectory=v-y\n",
    ),
    "credentials": ("${CREDENTIALS_DIRECTORY}", "SetCredential=key:value\n"),
    "a shell's default": ("${A:-8} ${B:-${A}}", "Environment=A=1\n"),
    "from a file, then unset": ("x${A}x $B", "EnvironmentFile=/etc/v-file.env\nUnsetEnvironment=A\n"),
}


@pytest.mark.parametrize("case", VARIABLES)
async def test_the_command_is_what_the_process_gets_whatever_sets_its_variables(rig: Rig, case: str) -> None:
    words, lines = VARIABLES[case]
    rig.write("/etc/v-file.env", "A=3\nB='4 5'\n")
    rig.unit("v-vars.service", unit_text("vvars", words, extra=lines))
    service = rig.service("v-vars")
    config = await service.configuration()
    assert config.loaded == config.command
    await service.start()
    await asyncio.sleep(0.3)
    assert rig.argv("vvars")[1:] == config.command[1:]


async def test_a_variable_that_only_the_manager_knows_stays_as_it_is_written_and_a_change_goes_on(rig: Rig) -> None:
    rig.unit("v-own.service", unit_text("vown", "--id=${INVOCATION_ID} ${PASSED}", extra="PassEnvironment=PASSED\n"))
    service = rig.service("v-own")
    config = await service.configuration()
    assert config.command[3:] == ("--id=${INVOCATION_ID}", "${PASSED}")
    wanted = (*config.command, "--more")
    await service.write(service.edits(config, wanted))
    await service.reload()
    config = await service.configuration()
    assert config.loaded == config.command == wanted


async def test_a_quote_that_is_not_closed_is_said_as_the_reason_why_systemd_refuses_the_unit(rig: Rig) -> None:
    rig.unit("v-quote.service", unit_text("vquote", "'open --port 31001"))
    service = rig.service("v-quote")
    assert (await service.state()).state is RunState.FAILED
    assert "a quote in it is not closed" in " ".join((await service.configuration()).problems).lower()


NASTY = st.text(st.sampled_from("$%{}\\\"' ;#aA\t\né~!`&|<>*?[](),@-=\x01\x7f\u200b𝛼"), max_size=12)
FIXED = (
    '{"a": "b c", "d": [1, 2]}',
    "100%",
    "%i",
    "%%",
    "$HOME",
    "$$",
    "${PATH}",
    "\\",
    "\\n",
    ";",
    "a;b",
    "",
    " ",
    "é ü 𝛼",
    "'",
    '"',
    "#x",
    "$(id)",
)


async def test_real_systemd_gets_exactly_the_planned_arguments(rig: Rig) -> None:
    """The property that a change rests on, with the real reader of units: read back over D-Bus, and from the process."""
    batches: list[list[str]] = [list(FIXED)]
    strategy = st.lists(NASTY, min_size=6, max_size=6)
    seen: list[list[str]] = []

    def collect(words: list[str]) -> bool:
        seen.append(words)
        return False

    with contextlib.suppress(Exception):
        find(strategy, collect, settings=settings(max_examples=25, database=None))
    batches += seen[:25]
    rig.unit("b2-nasty@.service", unit_text("%i"))
    for number, words in enumerate(batches):
        service = rig.service(f"b2-nasty@n{number}")
        config = await service.configuration()
        wanted = (*config.command, *words)
        await service.write(service.edits(config, wanted))
    await service.reload()
    for number, words in enumerate(batches):
        service = rig.service(f"b2-nasty@n{number}")
        config = await service.configuration()
        assert config.command[3:] == tuple(words)
        assert config.loaded == config.command
    await asyncio.gather(*(rig.service(f"b2-nasty@n{number}").start() for number in range(0, len(batches), 6)))
    await asyncio.sleep(0.5)
    for number in range(0, len(batches), 6):
        assert rig.argv(f"n{number}")[3:] == tuple(batches[number])
    rig.host.exec("sh", "-c", "systemctl stop 'b2-nasty@*'; rm -rf /etc/systemd/system/b2-nasty@n*.d")


async def test_one_operation_at_a_time_and_the_holder_is_named(rig: Rig) -> None:
    rig.unit("b2-lock.service", unit_text("b2lock"))
    one, other = rig.service("b2-lock"), rig.service("b2-lock")
    async with one.lock("apply by ada"):
        with pytest.raises(HostError, match=r"b2-lock.service is being changed by apply by ada \(ada@desk\) since 2\d\d\d-"):
            async with other.lock("restart by bob"):
                pass
    async with other.lock("restart by bob"):
        pass


async def test_a_unit_changed_meanwhile_is_not_overwritten_and_nothing_is_left_half_written(rig: Rig) -> None:
    rig.unit("b2-race.service", unit_text("b2race", "$ARGS"), env="[Service]\nEnvironmentFile=/etc/b2-race.env\n")
    rig.write("/etc/b2-race.env", "ARGS='--speculative-ddtree-budget 8 --port 1'\n")
    service = rig.service("b2-race")
    config = await service.configuration()
    edits = service.edits(config, set_flag(config.command, KNOBS["tree_budget"], 4))
    assert [edit.path for edit in edits] == ["/etc/b2-race.env"]
    rig.write("/etc/b2-race.env", "ARGS='--port 2'\n")
    with pytest.raises(HostError, match="changed by someone else"):
        await service.write(edits)
    assert rig.path("/etc/b2-race.env").read_text() == "ARGS='--port 2'\n"
