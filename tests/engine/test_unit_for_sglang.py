"""``ddtree-launch unit --engine sglang``: what it writes is what SGLang gets, and what SGLang would end on is not written."""

from __future__ import annotations

import shlex

import pytest

from engine_launch.cli import main

DRAFTED = "--speculative-algorithm DDTREE --speculative-draft-model-path /d --attention-backend triton"


def start_line(text: str) -> list[str]:
    """Words of ExecStart; those of these tests need no more than a shell's quotes."""
    return shlex.split(text.split("ExecStart=")[1].split("\nRestart")[0].replace("\\\n", ""))


def unit(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["unit", "--engine", "sglang", *words]) == 0
    written = start_line(capsys.readouterr().out)
    return written[written.index("sglang") + 1 :]


@pytest.mark.parametrize(
    "words",
    [
        ["--cuda-graph-bs-decode", "1", "2", "4", "--tp-size", "2"],
        ["--speculative-ddtree-verify-widths", "9", "17"],
        ["--json-model-override-args", '{"a": 1}'],
        ["--chat-template", ""],
        ["--enable-metrics", "--config", "/etc/flags.yaml"],
    ],
)
def test_words_stay_apart_and_together_as_they_were(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert unit(words, capsys) == words


def test_a_file_of_flags_is_written_as_sglang_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert unit(["--config=/etc/flags.yaml"], capsys) == ["--config", "/etc/flags.yaml"]


def test_a_file_of_flags_is_not_for_the_embedded_engine(capsys: pytest.CaptureFixture[str]) -> None:
    for engine in (["--engine", "embedded"], []):
        assert main(["unit", *engine, "--config", "/etc/flags.yaml"]) == 2
        assert "which the embedded engine does not read" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--api-key", "--admin-api-key", "--ssl-keyfile-password"])
def test_no_secret_is_written(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unit", "--engine", "sglang", flag, "hunter2"]) == 0
    text = capsys.readouterr().out
    variable = "DDTREE" + flag.removeprefix("-").replace("-", "_").upper()
    assert "hunter2" not in text
    assert f"{flag} ${{{variable}}}" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{DRAFTED} --page-size 16", "--page-size 1, not 16"),
        (f"{DRAFTED} --pp-size 2", "--pp-size above 1"),
        ("--speculative-algorithm DDTREE", "needs a drafter"),
        (f"{DRAFTED} --speculative-ddtree-budget 999", "1 to 256 are possible"),
    ],
)
def test_what_sglang_would_end_on_is_not_written(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unit", "--engine", "sglang", *words.split()]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""
