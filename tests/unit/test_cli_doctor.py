"""``doctor``: each thing that can be wrong is found, and its sentence says what to do."""

from __future__ import annotations

import asyncio
import importlib.metadata
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_console import doctor
from dflash_console.commands.doctor import _looks
from dflash_console.config import LoadedConfig, load_config
from dflash_console.doctor import Check, CheckStatus
from dflash_console.evidence.command import find_engine
from dflash_console.evidence.engine_log import StartLog
from dflash_console.evidence.journal import LogLine
from dflash_console.host_checks import (
    check_configuration,
    check_launcher,
    check_metrics,
    check_server,
    check_service,
    check_strays,
    is_engine,
)
from dflash_console.hosts.local import LocalTransport
from dflash_console.hosts.service import ConfigSource, RunState, ServiceConfig, ServiceState
from dflash_console.hosts.stranger import Stranger
from dflash_console.paths import Paths
from dflash_console.state import Aged, HostState
from engine_launch.spec.installing import install_command

UTF8_TERMINAL = {"TERM": "xterm-256color"}


def paths(folder: Path) -> Paths:
    return Paths(folder / "config", folder / "state", folder / "cache")


class TestLooks:
    def test_what_the_screens_would_say_of_theme_and_keys_is_a_warning_with_all_of_it(self, tmp_path: Path) -> None:
        here = paths(tmp_path)
        here.themes.mkdir(parents=True)
        (here.themes / "mine.toml").write_text("dark = true\n", encoding="utf-8")
        here.config_file.write_text(
            'theme = "mine"\n[keymap]\n"no.such" = "x"\n"app.help" = "f99"\n"operation.restart" = "1"\n"plan.apply" = "escape"\n',
            encoding="utf-8",
        )
        check = doctor.check_config(load_config(here.config_file), here, _looks(here))
        assert check.status is CheckStatus.WARNING
        for said in (
            "mine.toml: a theme needs a name",
            "there is no theme mine; known: dark",
            "there is no action no.such",
            "app.help: no terminal sends a key called f99",
            "1 is the key of screen.dashboard and of operation.restart",
            "esc is the key of plan.apply and of dialog.leave",
        ):
            assert said in check.message

    def test_good_ones_are_fine_and_a_file_without_any_imports_no_screens(self, tmp_path: Path) -> None:
        here = paths(tmp_path)
        here.config.mkdir()
        here.config_file.write_text('theme = "nord"\n[keymap]\n"app.help" = "f2"\n', encoding="utf-8")
        assert doctor.check_config(load_config(here.config_file), here, _looks(here)).status is CheckStatus.OK
        here.config_file.write_text("read_only = true\n", encoding="utf-8")
        script = (
            "import pathlib, sys; from dflash_console.commands.doctor import _looks; from dflash_console.paths import Paths\n"
            "folder = pathlib.Path(sys.argv[1]); "
            "print(_looks(Paths(folder / 'config', folder, folder)), 'textual' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
        assert done.stdout == "() False\n"


class TestMachine:
    def test_an_old_python_is_refused_with_the_version_to_install(self) -> None:
        check = doctor.check_python((3, 9, 2))
        assert check.status is CheckStatus.FAILED
        assert "3.11" in check.message

    def test_missing_engine_packages_are_a_warning_with_the_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(doctor, "ENGINE_MODULES", ("torch", "no_such_module"))
        check = doctor.check_engine_packages()
        assert check.status is CheckStatus.WARNING
        assert "no_such_module" in check.message
        assert check.message.endswith(f"needs: {install_command('embedded', importlib.metadata.distribution)}")

    def test_a_missing_console_package_is_a_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(doctor, "CONSOLE_PACKAGES", ("textual", "no-such-package"))
        check = doctor.check_packages()
        assert check.status is CheckStatus.FAILED
        assert check.message == f"no-such-package missing: {install_command('', importlib.metadata.distribution)}"

    @pytest.mark.parametrize(
        ("environment", "size", "status", "said"),
        [
            (UTF8_TERMINAL, (120, 40), CheckStatus.OK, "256 colours"),
            ({"TERM": "xterm", "COLORTERM": "truecolor"}, (120, 40), CheckStatus.OK, "true colour"),
            ({"TERM": "xterm", "NO_COLOR": "1"}, (120, 40), CheckStatus.OK, "NO_COLOR"),
            (UTF8_TERMINAL, (79, 40), CheckStatus.WARNING, "smaller than 80×24"),
            ({"TERM": "dumb"}, (120, 40), CheckStatus.FAILED, "TERM is dumb"),
            ({}, (120, 40), CheckStatus.FAILED, "TERM is not set"),
            (UTF8_TERMINAL, None, CheckStatus.UNKNOWN, "no terminal"),
        ],
    )
    def test_the_terminal(
        self,
        monkeypatch: pytest.MonkeyPatch,
        environment: dict[str, str],
        size: tuple[int, int] | None,
        status: CheckStatus,
        said: str,
    ) -> None:
        monkeypatch.setattr("locale.getpreferredencoding", lambda _: "UTF-8")
        check = doctor.check_terminal(environment, size)
        assert check.status is status
        assert said in check.message

    def test_a_locale_without_utf8_is_a_warning(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("locale.getpreferredencoding", lambda _: "ANSI_X3.4-1968")
        assert "LANG=C.UTF-8" in doctor.check_terminal(UTF8_TERMINAL, (120, 40)).message

    def test_a_broken_configuration_is_a_failure_with_its_line(self, tmp_path: Path) -> None:
        here = paths(tmp_path)
        here.config.mkdir()
        here.config_file.write_text('theme = "dark"\nread_only = maybe\n')
        check = doctor.check_config(load_config(here.config_file), here)
        assert check.status is CheckStatus.FAILED
        assert "line 2" in check.message

    async def test_a_state_folder_that_takes_no_file_is_a_failure(self, tmp_path: Path) -> None:
        (tmp_path / "state").write_text("a file where the folder should be")
        check = await doctor.check_state_folder(LocalTransport(), paths(tmp_path))
        assert check.status is CheckStatus.FAILED

    async def test_the_probe_in_the_state_folder_is_removed_again(self, tmp_path: Path) -> None:
        check = await doctor.check_state_folder(LocalTransport(), paths(tmp_path))
        assert check.status is CheckStatus.OK
        assert list((tmp_path / "state").iterdir()) == []

    async def test_tmux_with_a_foreign_term_is_a_warning(self) -> None:
        check = await doctor.check_tmux(LocalTransport(), {"TMUX": "/tmp/x", "TERM": "xterm"})
        assert check.status is CheckStatus.WARNING

    async def test_every_machine_check_ends_in_one_sentence(self, tmp_path: Path) -> None:
        from dflash_console.config import Config

        checks = await doctor.check_machine(LocalTransport(), paths(tmp_path), LoadedConfig(Config()), UTF8_TERMINAL, (120, 40))
        assert len({check.name for check in checks}) == len(checks) == 7
        assert all(check.message and "\n" not in check.message for check in checks)


def snapshot(
    run_state: RunState, *, detail: str = "", problems: dict[str, str] | None = None, pid: int | None = None
) -> HostState:
    service = ServiceState("engine", run_state, main_pid=pid, result="exit-code", detail=detail)
    return HostState("here", "engine", service=Aged(service, 0.0), problems=problems or {})


def said(line: str) -> StartLog:
    """The log of a start that has printed one line."""
    return StartLog().add_all([LogLine(line, invocation_id="a" * 32, number=1)])


def one_line(check: Check) -> tuple[CheckStatus, str]:
    assert "\n" not in check.message
    return check.status, check.message


class TestHost:
    def test_a_failed_service_points_to_its_log(self) -> None:
        status, message = one_line(check_service(snapshot(RunState.FAILED, detail="exited with status 1")))
        assert status is CheckStatus.FAILED
        assert "exited with status 1" in message
        assert "logs --this-start" in message

    def test_one_that_ended_well_and_is_started_again_has_no_result_that_explains_it(self) -> None:
        ended = snapshot(RunState.FAILED, detail="it ended with status 0, and systemd restarts it")
        assert ended.service is not None
        ended = replace(ended, service=Aged(replace(ended.service.value, result="success"), 0.0))
        assert one_line(check_service(ended))[1].startswith("engine failed: it ended with status 0, and systemd restarts it; ")

    def test_a_stopped_service_is_in_order(self) -> None:
        assert check_service(snapshot(RunState.STOPPED)).status is CheckStatus.OK
        assert check_server(snapshot(RunState.STOPPED)).status is CheckStatus.OK

    def test_an_engine_that_said_that_it_is_ready_and_does_not_answer_is_a_failure(self) -> None:
        state = replace(snapshot(RunState.RUNNING), log=Aged(said("The server is fired up and ready to roll!"), 0.0))
        silent = replace(state, silent=True)
        assert one_line(check_server(silent))[0] is CheckStatus.FAILED
        assert "does not answer: it hangs" in check_server(silent).message
        silent = replace(silent, problems={"server": "nothing answers at http://127.0.0.1:1"})
        assert one_line(check_server(silent)) == (CheckStatus.FAILED, "nothing answers at http://127.0.0.1:1")
        assert one_line(check_server(state)) == (CheckStatus.UNKNOWN, "it said that it was ready, and has not answered yet")
        assert check_metrics(state).status is CheckStatus.UNKNOWN

    @pytest.mark.parametrize(
        ("log", "problems", "words"),
        [
            (None, {}, "it is still loading, and has not said how far it is"),
            ("Load weight begin. avail mem=12.10 GB", {}, "it is still loading (process up)"),
            (None, {"log": "no journal"}, "whether it is still loading is not known: no journal"),
        ],
    )
    def test_an_engine_that_loads_is_no_failure(self, log: str | None, problems: dict[str, str], words: str) -> None:
        refused = {"server": "nothing listens at http://127.0.0.1:1"}
        state = snapshot(RunState.RUNNING, problems={**refused, **problems})
        state = state if log is None else replace(state, log=Aged(said(log), 0.0))
        status, message = one_line(check_server(state))
        assert status is CheckStatus.UNKNOWN
        assert message.startswith("it does not answer")
        assert words in message

    @pytest.mark.parametrize("run", [RunState.STARTING, RunState.STOPPING])
    def test_a_unit_that_is_just_starting_or_stopping_has_no_server_that_fails(self, run: RunState) -> None:
        expected = (CheckStatus.OK, f"it is just {run.value}, so nothing was asked")
        assert one_line(check_server(snapshot(run))) == expected
        assert one_line(check_metrics(snapshot(run))) == expected

    @pytest.mark.parametrize(("run", "status"), [(RunState.STOPPED, CheckStatus.WARNING), (RunState.FAILED, CheckStatus.FAILED)])
    def test_another_program_on_the_port_of_a_stopped_unit_is_a_warning(self, run: RunState, status: CheckStatus) -> None:
        taken = replace(snapshot(run), stranger=Aged(Stranger(30000, (8,), "pid 8 (nc)", beside=False), 0.0))
        found, message = one_line(check_server(taken))
        assert found is status
        assert message.startswith("another program listens on port 30000, which is this unit's: pid 8 (nc); end it, or give ")

    def test_a_launcher_that_breaks_is_quoted(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        broken = tmp_path / "python"
        broken.write_text("#!/bin/sh\necho 'ImportError: no torch' >&2; exit 1\n")
        broken.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(broken))
        (check,) = asyncio.run(check_launcher(LocalTransport()))
        assert check.status is CheckStatus.UNKNOWN
        assert "exit status 1); its last words: ImportError: no torch" in check.message

    def test_metrics_that_are_off_name_the_flag(self) -> None:
        from dflash_console.evidence.server import ServerInfo

        state = HostState(
            "here",
            "engine",
            service=Aged(ServiceState("engine", RunState.RUNNING), 0.0),
            server=Aged(ServerInfo(version="0.5.17"), 0.0),
            problems={"metrics": "the engine has no /metrics"},
        )
        status, message = one_line(check_metrics(state))
        assert status is CheckStatus.WARNING
        assert "--enable-metrics" in message

    def test_a_command_that_hides_its_engine_is_said(self) -> None:
        config = ServiceConfig((ConfigSource("/etc/u", "x"),), ("bash", "start.sh"), None)
        state = HostState("here", "engine", config=Aged(config, 0.0))
        assert check_configuration(state).status is CheckStatus.WARNING

    async def test_an_engine_outside_the_unit_is_found_and_the_units_own_is_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Other engines may run on the machine, more than are listed; this one is what matters.
        monkeypatch.setattr("dflash_console.host_checks.LISTED", 1000)
        # A process that has an engine's command line and does nothing; its line says when it is up.
        launcher = tmp_path / "ddtree-launch"
        launcher.write_text("import time; print('up', flush=True); time.sleep(60)")
        words = (sys.executable, str(launcher), "serve", "--port", "1")
        stray = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        try:
            assert stray.stdout is not None
            await stray.stdout.readline()
            found = await check_strays(LocalTransport(), snapshot(RunState.STOPPED))
            mine = await check_strays(LocalTransport(), snapshot(RunState.RUNNING, pid=stray.pid))
        finally:
            stray.kill()
            await stray.wait()
        assert f"pid {stray.pid} (" in found.message
        assert "ddtree-launch serve" in found.message
        assert f"pid {stray.pid} " not in mine.message

    @pytest.mark.parametrize("words", [("grep", "ddtree-launch", "serve"), ("bash", "-c", "ddtree-launch serve --port 1")])
    def test_a_process_that_only_names_an_engine_is_none(self, words: tuple[str, ...]) -> None:
        command = find_engine(words)
        assert command is not None
        assert not is_engine(command)
