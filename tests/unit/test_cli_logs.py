"""``logs``: lines as people and programs get them, without what a terminal would act on and without keys."""

from __future__ import annotations

import io
import json

import pytest

from dflash_console.commands.logs import line_json, show
from dflash_console.commands.output import Output
from dflash_console.evidence.journal import LogLine

KEY_LINE = "[2026-11-29 17:01:41] server_args=ServerArgs(model_path='m', api_key='sk-very-secret', port=30000)"


def shown(line: LogLine, *, json_wanted: bool = False) -> str:
    stream = io.StringIO()
    show(Output(json_wanted=json_wanted, stdout=stream, stderr=stream), line)
    return stream.getvalue()


@pytest.mark.parametrize("json_wanted", [False, True])
def test_a_key_in_a_line_is_masked(json_wanted: bool) -> None:
    text = shown(LogLine(KEY_LINE), json_wanted=json_wanted)
    assert "sk-very-secret" not in text
    assert "port=30000" in text


def test_a_line_cannot_act_on_the_terminal_and_a_bar_shows_its_last_state() -> None:
    assert shown(LogLine("\x1b[31mred\x1b[0m\x1b]0;title\x07")) == "red\n"
    assert shown(LogLine("\rLoading:  50% | 1/2\rLoading: 100% | 2/2")) == "Loading: 100% | 2/2\n"


def test_lines_that_are_not_the_engines_are_marked() -> None:
    assert shown(LogLine("Started", origin="manager")) == "[manager] Started\n"
    assert "missing" in shown(LogLine("", origin="gap"))


def test_the_json_of_a_line_is_one_line_with_its_origin() -> None:
    line = LogLine("two\nlines", cursor="c1", at=5.0, invocation_id="ab", pid=7, priority=3, number=12)
    text = shown(line, json_wanted=True)
    assert text.count("\n") == 1
    assert json.loads(text) == line_json(line)
    assert json.loads(text)["number"] == 12
