"""Wrong use of any command, run for real: one sentence that says what to do, exit code 2, and nothing written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from dflash_console import cli, command_line
from dflash_console.commands.outcome import ExitCode

COMMANDS = (
    ["status"],
    ["drift"],
    ["plan", "--set", "tree_budget=8"],
    ["apply", "--set", "tree_budget=8", "--yes"],
    ["apply", "--resume", "--yes"],
    ["start"],
    ["stop", "--yes"],
    ["restart", "--yes"],
    ["rollback", "--yes"],
    ["rebase", "--yes"],
    ["release", "--yes"],
    ["logs"],
    ["logs", "--follow"],
    ["prompt", "hi"],
    ["hosts", "--host", "embedded"],
    ["doctor"],
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DDTREE_HOME", str(tmp_path))
    return tmp_path


def ends(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code, and the error as JSON says it."""
    code = cli.main([*words, "--json"])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    if not captured.out:
        return code, captured.err
    document = json.loads(captured.out)
    failed = [check["message"] for check in document.get("checks", ()) if check["status"] == "failed"]
    return code, document.get("error") or "; ".join(failed)


def test_every_command_is_in_the_table() -> None:
    assert {words[0] for words in COMMANDS} == set(command_line.COMMANDS)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_unit_that_is_not_there_is_wrong_use(words: list[str], home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ends([*words, "--unit", "nope"], capsys)
    assert code == ExitCode.USAGE, said
    assert "there is no unit called nope on this machine; known: none" in said
    assert not list(home.rglob("service.toml"))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--unit", "../x", "no unit's name"),
        ("--unit", "", "needs a name"),
        ("--host", " ", "needs a name"),
        ("--host", "a b!", ""),
    ],
)
def test_what_is_no_name_is_wrong_use(
    words: list[str], option: str, value: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = ends([*words, option, value], capsys)
    assert code == ExitCode.USAGE, said
    assert expected in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["plan"], "nothing to change"),
        (["apply", "--yes"], "nothing to change"),
        (["plan", "--set", "budget=8"], "there is no setting called budget; known: algorithm"),
        (["apply", "--set", "budget=8"], "there is no setting called budget"),
        (["plan", "--set", "tree_budget"], "write NAME=VALUE"),
        (["plan", "--set", "tree_budget=0"], "tree_budget must be at least 1"),
        (["apply", "--set", "tree_budget=many", "--yes"], "takes a whole number or 'auto', not many"),
        (["plan", "--set", "flag:page-size=1"], "there is no setting called flag:page-size"),
        (["plan", "--profile", "long"], "there is no profile called long"),
        (["apply", "--resume", "--set", "tree_budget=8"], "as it was planned"),
        (["logs", "-n", "-1"], "must be at least 0"),
        (["prompt"], "there is no prompt"),
        (["prompt", "hi", "--suite", "coding"], "not both"),
        (["prompt", "--suite", "nowhere"], "nowhere"),
        (["prompt", "hi", "--algorithm", "DDTREE"], "cannot be set for one request"),
        (["prompt", "hi", "--set", "draft_window=512"], "cannot be set for one request"),
        (["prompt", "hi", "--set", "tree_budget=0"], "must be at least 1"),
        (["prompt", "hi", "--top-p", "0"], "must be above 0"),
        (["prompt", "hi", "--top-p", "1.5"], "at most 1"),
        (["prompt", "hi", "--seed", "x"], "takes a whole number, not x"),
        (["plan", "--set", "=8"], "write NAME=VALUE, not =8"),
        (["status", "now"], "ddtree-console status: takes no further word: now"),
        (["status", "-"], "takes no further word: -"),
        (["prompt", "two", "words"], "takes no further word: words; put a prompt of several words in quotes"),
        (["prompt", "caf\udce9"], "word 2 of the command line, caf?, is not UTF-8"),
        (["--host", "\udcff", "status"], "is not UTF-8"),
        (["hosts", "--unit", "nope"], "say on which host"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_wrong_use(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ends(words, capsys)
    assert code == ExitCode.USAGE, said
    assert expected in said


def test_hosts_says_why_a_host_is_not_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["hosts", "--host", "root@127.0.0.1:1"]) == ExitCode.FINE
    *_, row = capsys.readouterr().out.splitlines()
    assert row.endswith("unknown  127.0.0.1 port 1 refuses the connection: no SSH server listens there")


@pytest.mark.parametrize("words", [["stop", "--yes"], ["apply", "--set", "tree_budget=9", "--yes"], ["rebase", "--yes"]])
def test_a_change_is_refused_while_the_default_host_is_in_a_file_that_cannot_be_used(
    words: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / "config" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('default_host = "gpu-a"\ncolour = 1\n')
    code, said = ends(words, capsys)
    assert code == ExitCode.FAILED
    assert "names the default host gpu-a, but cannot be used" in said
    code, said = ends([*words, "--host", "embedded", "--unit", "nope"], capsys)
    assert code == ExitCode.USAGE, said


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["\x1b[31mred"], "no command called \\x1b[31mred;"),
        (["--\x1b[31mred", "status"], "has no option --\\x1b[31mred"),
        (["status", "a\x1b]0;x\x07b"], "takes no further word: a\\x1b]0;x\\x07b"),
        (["status", "a\nb"], "takes no further word: a\\nb"),
        (["prompt", "--seed", "\x1b[31m\u202e7"], "a whole number, not \\x1b[31m\\u202e7"),
        (["prompt", "--n=\x9b31m"], "not \\x9b31m"),
        (["\x1b[31m\udcff"], "\\x1b[31m?"),
    ],
)
def test_a_complaint_shows_control_characters_and_does_not_send_them(
    words: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert shown in said
    assert said.removesuffix("\n").isprintable()
