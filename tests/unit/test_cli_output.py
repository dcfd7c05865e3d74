"""What commands print: columns, colours only where they belong, and remote text that cannot act on the terminal."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.apply.records import Stage, StageStatus
from dflash_console.commands.operation_output import stage_line
from dflash_console.commands.output import Cell, Output, OutputFailed, ReaderGone, Tone, clean, width


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(*, terminal: bool = False, json_wanted: bool = False) -> tuple[Output, io.StringIO]:
    stream = Terminal() if terminal else io.StringIO()
    return Output(json_wanted=json_wanted, stdout=stream, stderr=stream), stream


def test_columns_line_up_by_what_the_terminal_shows() -> None:
    output, stream = printed()
    output.table([["a", "1"], ["日本", "22"], ["e\u0301", "3"]], header=["name", "value"])
    assert stream.getvalue() == "name  value\na     1\n日本  22\ne\u0301     3\n"


def test_sentences_go_on_under_themselves_on_a_terminal_and_are_whole_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    sentence = "seven of eight ranks hold GPU memory, and the others wait for the one that is gone"
    rows = [["✗", "GPUs", sentence], ["✓", "port", "free"]]
    output, stream = printed(terminal=True)
    output.table(rows, indent=2, wrap=True)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    edge = lines[0].index("seven")
    assert all(line[edge] != " " and line[edge - 1] == " " for line in lines)
    assert " ".join(line[edge:] for line in lines) == f"{sentence} free"
    output, stream = printed()
    output.table(rows, indent=2, wrap=True)
    assert sentence in stream.getvalue()


def test_a_terminal_too_narrow_for_a_column_of_sentences_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    output, stream = printed(terminal=True)
    output.table([["a name of twenty four cells", "one two three four five six seven"]], wrap=True)
    assert stream.getvalue().count("\n") == 1


def test_a_reader_that_goes_away_ends_a_command_that_only_shows() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as stream:
        with pytest.raises(ReaderGone):
            Output(json_wanted=False, stdout=stream).line("one")
        stream.write("Python flushes this when it exits")


def test_a_reader_that_goes_away_ends_no_change() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as stream:
        output = Output(json_wanted=False, stdout=stream, stderr=stream)
        output.finish_unread()
        output.line("one")
        output.note("two")


def test_output_that_cannot_be_written_is_said_once_and_ends_no_change() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full, open("/dev/full", "w", encoding="utf-8") as errors:
        output = Output(json_wanted=False, stdout=full, stderr=errors)
        with pytest.raises(OutputFailed, match="No space left on device"):
            output.line("one")
        output.note("two")
    with open("/dev/full", "w", encoding="utf-8") as full:
        output = Output(json_wanted=False, stdout=full)
        output.finish_unread()
        output.line("one")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-", "> /dev/full", "2> /dev/full"])
@pytest.mark.parametrize("words", ["hosts", "hosts --json", "prompt -", "nosuch"])
def test_a_closed_or_full_stream_shows_no_traceback(words: str, closed: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m dflash_console {words} {closed}"
    environment = {**os.environ, "DDTREE_HOME": str(tmp_path)}
    done = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment)
    full = closed == "> /dev/full" and words.startswith("hosts")
    assert done.returncode == (1 if full else 0 if words.startswith("hosts") else 2)
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    assert ("No space left" in done.stderr) is full


def test_a_pipe_gets_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    output, stream = printed()
    output.line("fine", Tone.GOOD)
    assert stream.getvalue() == "fine\n"


@pytest.mark.parametrize(("no_colour", "term", "coloured"), [("", "xterm", True), ("1", "xterm", False), ("", "dumb", False)])
def test_a_terminal_gets_colour_unless_it_is_told_not_to(
    monkeypatch: pytest.MonkeyPatch, no_colour: str, term: str, coloured: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setenv("TERM", term)
    output, stream = printed(terminal=True)
    output.table([[Cell("fine", Tone.GOOD)]])
    assert ("\x1b[32m" in stream.getvalue()) is coloured


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07red",
        "\x1b]52;c;aGk=\x1b\\red",
        "r\x07e\x08d",
        "\u202ered",
        "\x9b31mred",
        "\rred",
        "\x1bcred",
    ],
)
def test_remote_text_cannot_act_on_the_terminal(text: str) -> None:
    output, stream = printed(terminal=True)
    output.line(text)
    assert stream.getvalue() == "red\n"


@given(st.text())
def test_cleaning_leaves_no_control_character_and_is_done_once(text: str) -> None:
    cleaned = clean(text)
    assert not any(ord(letter) < 32 and letter not in "\t\n" for letter in cleaned)
    assert clean(cleaned) == cleaned


@pytest.mark.parametrize("character", ["\x1b", "\x9b", "\x7f", "\u202e", "\u2028", "\x00"])
def test_json_keeps_the_text_as_it_was_and_sends_no_terminal_a_command(character: str) -> None:
    output, stream = printed(json_wanted=True)
    value = {"text": f"a{character}[31mb", "none": None, "list": [1, 2]}
    output.document(value)
    output.record(value)
    document, record = stream.getvalue().rsplit("{", 1)
    assert json.loads(document) == json.loads("{" + record) == value
    assert character not in stream.getvalue()


def test_nobody_is_asked_when_json_is_wanted() -> None:
    output, _ = printed(terminal=True, json_wanted=True)
    assert not output.interactive


def test_wide_and_combining_letters_are_measured() -> None:
    assert (width("abc"), width("日本"), width("e\u0301")) == (3, 4, 1)


def test_a_stages_line_of_the_log_is_named_as_in_the_evidence() -> None:
    stage = Stage("draft runner", StageStatus.DONE, 2.0, "algorithm DDTREE (log line 1204)", 1204)
    assert stage_line("✓", stage).endswith("algorithm DDTREE (log line 1204)  ← log line 1204")
