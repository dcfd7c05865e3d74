"""The command line: what is accepted, what is refused and in which words; no command is run here."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence

import pytest

from dflash_console import cli
from dflash_console.command_line import COMMANDS, Options
from dflash_console.commands.options import (
    ApplyMode,
    ApplyOptions,
    CommonOptions,
    ConsoleOptions,
    LifecycleOptions,
    LogsOptions,
    PlanOptions,
    PromptOptions,
    StatusOptions,
)
from dflash_console.commands.outcome import CommandError, ExitCode, UsageError
from dflash_console.commands.output import ReaderGone
from dflash_console.knobs import KNOBS


class Asked:
    """What would have been run."""

    name = ""
    module = ""
    common = CommonOptions()
    options: Options = ConsoleOptions()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    seen = Asked()

    def remember(name: str, module: str, common: CommonOptions, options: Options) -> int:
        seen.name, seen.module, seen.common, seen.options = name, module, common, options
        return 0

    monkeypatch.setattr(cli, "run_command", remember)
    return seen


@pytest.mark.parametrize(
    ("words", "module", "options"),
    [
        ([], "console", ConsoleOptions()),
        (["status"], "status", StatusOptions()),
        (
            ["plan", "--set", "draft_window=512", "--set", "tree_budget=16"],
            "change",
            PlanOptions(("draft_window=512", "tree_budget=16")),
        ),
        (["apply", "--set", "a=1", "--restart", "--yes"], "change", ApplyOptions(("a=1",), mode=ApplyMode.RESTART, yes=True)),
        (["apply", "--hot", "--profile", "long", "-y"], "change", ApplyOptions(profile="long", mode=ApplyMode.HOT, yes=True)),
        (["restart", "--drain", "--rollback-on-failure"], "lifecycle", LifecycleOptions(drain=True, rollback_on_failure=True)),
        (["logs", "--follow", "--this-start", "-n", "5"], "logs", LogsOptions(True, True, 5)),
        (["prompt", "hi", "--n", "4", "--temperature", "0.5"], "prompt", PromptOptions("hi", copies=4, temperature=0.5)),
        (
            ["prompt", "--suite", "coding", "--set", "tree_budget=4"],
            "prompt",
            PromptOptions(suite="coding", settings=("tree_budget=4",)),
        ),
    ],
)
def test_a_command_line_becomes_its_record(asked: Asked, words: Sequence[str], module: str, options: Options) -> None:
    assert cli.main(words) == ExitCode.FINE
    assert (asked.module, asked.options) == (module, options)


@pytest.mark.parametrize("words", [["--host", "gpu-a", "status", "--json"], ["status", "--json", "--host", "gpu-a"]])
def test_common_options_stand_before_or_after_the_command(asked: Asked, words: Sequence[str]) -> None:
    cli.main(words)
    assert asked.common == CommonOptions(json=True, host="gpu-a")


def test_a_host_alone_opens_the_screens_on_it(asked: Asked) -> None:
    cli.main(["--host", "root@gpu-a", "--read-only"])
    assert asked.module == "console"
    assert asked.common == CommonOptions(host="root@gpu-a", read_only=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["statsu"], "there is no command called statsu; did you mean status?"),
        (["--host", "a", "frobnicate"], "the commands are status, drift"),
        (["stat"], "did you mean status?"),
        (["bogus"], "there is no command called bogus; the commands are status, drift"),
        (
            ["status", "--hsot", "a"],
            "ddtree-console status: has no option --hsot; did you mean --host? (see ddtree-console st",
        ),
        (["--hsot", "a", "status"], "ddtree-console: has no option --hsot; did you mean --host?"),
        (["logs", "-x"], "ddtree-console logs: has no option -x (see"),
        (["start", "--set", "tree_budget=8"], "start: has no option --set: it belongs to plan, apply, prompt"),
        (["--set", "tree_budget=8"], "ddtree-console: has no option --set: it belongs to plan, apply, prompt"),
        (["--json=1", "status"], "--json: takes no value, not '1'"),
        (["prompt", "hi", "--n", "0"], "must be at least 1"),
        (["prompt", "hi", "--n", "two"], "takes a whole number, not two"),
        (["prompt", "hi", "--temperature", "nan"], "must be at least 0"),
        (["apply", "--hot", "--restart"], "not allowed with"),
        (["plan", "--set"], "expected one argument"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_2(
    asked: Asked, capsys: pytest.CaptureFixture[str], words: Sequence[str], said: str
) -> None:
    assert cli.main(words) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert asked.module == ""


def test_a_hosts_name_may_be_that_of_no_command(asked: Asked) -> None:
    assert cli.main(["--host", "statsu", "status"]) == ExitCode.FINE
    assert asked.common.host == "statsu"


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS)])
def test_help_fits_80_columns_and_leaves_no_option_unexplained(
    words: Sequence[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main([*words, "--help"]) == ExitCode.FINE
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    options = lines.index("options:")
    for line, following in itertools.pairwise([*lines[options + 1 :], ""]):
        if line.startswith("  -"):
            explained = len(line.strip().split("  ")) > 1 or following.startswith(" " * 8)
            assert explained, line


@pytest.mark.parametrize("command", ["plan", "apply"])
def test_help_of_a_change_names_every_setting(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main([command, "--help"])
    said = capsys.readouterr().out
    assert [name for name in KNOBS if name not in said] == []


def test_help_lists_every_command_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == ExitCode.FINE
    text = capsys.readouterr().out
    for command in (
        "status",
        "drift",
        "plan",
        "apply",
        "start",
        "stop",
        "restart",
        "rollback",
        "logs",
        "prompt",
        "hosts",
        "doctor",
    ):
        assert f"    {command} " in text
    assert "4 not confirmed" in text


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == ExitCode.FINE
    assert capsys.readouterr().out.startswith("ddtree-console 0.")


class TestEndings:
    """However a command's module ends, what the user sees is a sentence and an exit code."""

    def run(self, monkeypatch: pytest.MonkeyPatch, problem: BaseException, *, json: bool = False) -> int:
        def fail(*_: object) -> None:
            raise problem

        monkeypatch.setattr(cli, "import_module", fail)
        return cli.run_command("status", "status", CommonOptions(json=json), StatusOptions())

    @pytest.mark.parametrize(
        ("problem", "code"),
        [
            (CommandError("the host is gone"), 1),
            (UsageError("the host is gone"), 2),
            (CommandError("the host is gone", ExitCode.NOT_CONFIRMED), 4),
        ],
    )
    def test_a_commands_error_is_its_sentence_and_its_code(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], problem: CommandError, code: int
    ) -> None:
        assert self.run(monkeypatch, problem) == code
        assert capsys.readouterr().err == "ddtree-console: the host is gone\n"

    def test_with_json_the_error_is_a_document_too(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.run(monkeypatch, CommandError("the host is gone"), json=True)
        assert capsys.readouterr().out == '{\n  "error": "the host is gone"\n}\n'

    def test_a_mistake_of_ours_shows_no_traceback(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.delenv(cli.TRACEBACK_VARIABLE, raising=False)
        assert self.run(monkeypatch, ZeroDivisionError("division by zero")) == ExitCode.FAILED
        error = capsys.readouterr().err
        assert "internal error (ZeroDivisionError" in error
        assert "Traceback" not in error

    def test_a_problem_of_a_task_is_told_as_its_own(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.run(monkeypatch, ExceptionGroup("tasks", [ReaderGone(), ReaderGone()])) == ExitCode.FINE
        assert self.run(monkeypatch, ExceptionGroup("tasks", [UsageError("the host is gone")])) == ExitCode.USAGE
        assert capsys.readouterr().err == "ddtree-console: the host is gone\n"

    def test_ctrl_c_is_said(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.run(monkeypatch, KeyboardInterrupt()) == ExitCode.FAILED
        assert "interrupted" in capsys.readouterr().err


def test_importing_the_command_line_imports_little() -> None:
    """A script that asks for the status should not wait for what it does not use."""
    import subprocess

    code = "import sys; import dflash_console.cli; print(*sorted(m for m in sys.modules if '.' not in m))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"textual", "rich", "httpx", "pydantic", "sqlite3", "asyncio", "plotext", "torch"} & set(modules)
