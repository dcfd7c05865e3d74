"""The unit file of a supervised process: what is accepted, and that an edit changes the command's words and no other byte."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.hosts.unit_file import Restart, UnitFileError, new_unit_file, parse_unit_file, quote, replace_command

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
COMMANDS = st.lists(WORDS, min_size=1, max_size=8).filter(lambda words: bool(words[0]))


@given(WORDS)
def test_every_word_survives_quoting(word: str) -> None:
    assert tomllib.loads(f"x = {quote(word)}") == {"x": word}


@given(COMMANDS, st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_what_is_written_is_read_back(command: list[str], description: str) -> None:
    unit = parse_unit_file(new_unit_file(command, description=description, environment={"A": "1"}))
    assert (list(unit.command), unit.description, unit.environment) == (command, description, {"A": "1"})


@given(COMMANDS, COMMANDS)
def test_replacing_the_command_gives_exactly_that_command_and_touches_nothing_else(old: list[str], new: list[str]) -> None:
    text = "# top\n" + new_unit_file(old, description="d").replace("[service]", "# mine\n[service]")
    changed = replace_command(text, new)
    assert list(parse_unit_file(changed).command) == new
    head, tail = text[: text.index("command = [")], text[text.index("\n]\n") :]
    assert changed.startswith(head)
    assert changed.endswith(tail)


@given(COMMANDS, st.data())
def test_lines_of_words_that_stay_are_not_rewritten(old: list[str], data: st.DataObject) -> None:
    marked = new_unit_file(old, description="d").replace(",\n", ",  # kept\n")
    at = data.draw(st.integers(0, len(old)))
    changed = replace_command(marked, [*old[:at], "--added", *old[at:]] if at else [*old, "--added"])
    added = [line for line in changed.splitlines() if line not in marked.splitlines()]
    assert added == ['    "--added",']


def test_comments_between_the_words_stay() -> None:
    text = 'command = [\n    "engine",\n    # the window\n    "--window",\n    "512",  # tokens\n]\n'
    assert replace_command(text, ["engine", "--window", "1024"]) == (
        'command = [\n    "engine",\n    # the window\n    "--window",\n    "1024",\n]\n'
    )


def test_a_last_word_without_its_comma_gets_one() -> None:
    text = 'command = [\n    "engine"\n]\n'
    assert parse_unit_file(replace_command(text, ["engine", "--x"])).command == ("engine", "--x")


def test_an_array_on_one_line_is_written_one_word_a_line() -> None:
    text = 'command = ["engine", "--a", "]"]\nrestart_note = 1\n'.replace("restart_note = 1\n", "")
    assert replace_command(text, ["engine", "--b"]) == 'command = [\n    "engine",\n    "--b",\n]\n'


def test_among_repeated_words_only_the_new_one_is_a_new_line() -> None:
    marked = new_unit_file(["0", "0", "0"], description="d").replace('"0",\n', '"0",  # kept\n')
    lines = replace_command(marked, ["0", "--added", "0", "0"]).splitlines()
    assert [line for line in lines if line not in marked.splitlines()] == ['    "--added",']
    assert sum("# kept" in line for line in lines) == 3


def test_crlf_stays() -> None:
    text = new_unit_file(["engine", "--a"], description="d").replace("\n", "\r\n")
    changed = replace_command(text, ["engine", "--b"])
    assert changed == text.replace("--a", "--b")


def test_the_same_command_gives_the_same_text() -> None:
    text = 'command = ["engine",   "--a"]\n'
    assert replace_command(text, ["engine", "--a"]) is text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("command = ", "not valid TOML"),
        ("command = " + "[" * 5_000, "nested too deeply"),
        ("", "command must be a list"),
        ("command = []", "command must be a list"),
        ('command = "engine --x"', "command must be a list"),
        ('command = ["engine", 1]', "command must be a list"),
        ('command = [""]', "empty program name"),
        ('command = ["e"]\nlabel = 1', "unknown key label"),
        ('command = ["e"]\n[service]\nrestarts = "no"', "unknown key service.restarts"),
        ('command = ["e"]\n[service]\nrestart = "always"', "'no' or 'on-failure'"),
        ('command = ["e"]\n[service]\nstop_timeout_s = -1', "stop_timeout_s must be a number"),
        ('command = ["e"]\n[environment]\nA = 1', "environment must be a table of texts"),
    ],
)
def test_a_broken_file_is_refused_with_the_key_and_the_reason(text: str, said: str) -> None:
    with pytest.raises(UnitFileError, match=said.replace("[", r"\[")):
        parse_unit_file(text)


def test_the_service_table_is_read() -> None:
    unit = parse_unit_file('command = ["e"]\n[service]\nrestart = "on-failure"\nrestart_limit = 3\nstop_timeout_s = 2.5\n')
    assert (unit.restart, unit.restart_limit, unit.stop_timeout_s) == (Restart.ON_FAILURE, 3, 2.5)
