"""The unit file of a supervised process: what is accepted, and that an edit changes the command's words and no other byte."""

from __future__ import annotations

import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.toml_array import quote
from dflash_console.hosts.unit_file import Restart, UnitFileError, move_port, new_unit_file, parse_unit_file, replace_command

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
        'command = [\n    "engine",\n    # the window\n    "--window",\n    "1024",  # tokens\n]\n'
    )


def test_a_last_word_without_its_comma_gets_one() -> None:
    text = 'command = [\n    "engine"\n]\n'
    assert parse_unit_file(replace_command(text, ["engine", "--x"])).command == ("engine", "--x")


@pytest.mark.parametrize(
    ("old", "new", "written"),
    [
        ('["engine", "--a", "]"]', ["engine", "--b"], '["engine", "--b"]'),
        ('["engine",  \'--a\', """1"""]', ["engine", "--a", "2"], '["engine",  \'--a\', "2"]'),
        ("['engine', '--a', '1']", ["engine", "--a", "2"], "['engine', '--a', '2']"),
        ("['engine', '--a', '1']", ["engine", "--a", "it's"], "['engine', '--a', \"it's\"]"),
        ('["engine","--a"]', ["engine", "--a", "--b"], '["engine","--a","--b"]'),
        ('["engine", "--a"]', ["wrap", "engine", "--a"], '["wrap", "engine", "--a"]'),
        ('["engine", "--a", "1",]  # all', ["engine"], '["engine", ]  # all'),
        ('[\n  "e", "s",\n  "--a", "1"\n]', ["e", "s", "--a", "1", "--b", "2"], '[\n  "e", "s",\n  "--a", "1",\n  "--b", "2"\n]'),
        ('[\n  "engine", "serve",\n  "--a", "1",  # one\n]', ["engine", "serve"], '[\n  "engine", "serve",\n  # one\n]'),
        ('[\n  "e",\n  "--a",\n  "1", # one\n]', ["e", "--a", "1", "--b"], '[\n  "e",\n  "--a",\n  "1", # one\n  "--b",\n]'),
        ('[\n  "engine"  # first\n  , "--a"  # second\n]', ["engine", "--b"], '[\n  "engine"  # first\n  , "--b"  # second\n]'),
    ],
)  # fmt: skip
def test_the_array_keeps_its_own_layout(old: str, new: list[str], written: str) -> None:
    assert replace_command(f"command={old}\n# end\n", new) == f"command={written}\n# end\n"


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[str], list[str], str]:
    """The words of an array, what stands before, between and behind them, and the text of a unit file with it."""
    words = draw(COMMANDS)
    blanks = st.text(" \t\n", max_size=4)
    remarks = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), max_size=6).map(lambda said: f"#{said}\n")
    between = st.lists(blanks | remarks, max_size=3).map("".join)
    literals = [draw(st.sampled_from(_spellings(word))) for word in words]
    gaps = [draw(between)] + [f"{draw(between)},{draw(between)}" for _ in words[1:]]
    gaps.append(draw(st.sampled_from(["", ","])) + draw(between))
    array = "".join(gap + literal for gap, literal in zip(gaps, literals, strict=False)) + gaps[-1]
    decoy = 'description = """\ncommand = ["x"]\n"""\n'
    return words, literals, f"{decoy}command = [{array}] # e\n[service]\nrestart = 'no'\n"


def _spellings(word: str) -> list[str]:
    """Every way in which TOML can write ``word``."""
    plain = not any(ord(c) < 0x20 or ord(c) == 0x7F for c in word)
    forms = [quote(word), f'""{quote(word)}""']
    if plain and "'" not in word:
        forms += [f"'{word}'", f"'''{word}'''"]
    return forms


@given(layouts(), COMMANDS)
def test_any_layout_takes_any_command_and_loses_no_comment(array: tuple[list[str], list[str], str], new: list[str]) -> None:
    text = array[2]
    changed = replace_command(text, new)
    assert list(parse_unit_file(changed).command) == new
    assert tomllib.loads(changed) == {**tomllib.loads(text), "command": new}
    assert _comments(changed) == _comments(text)


@given(layouts(), st.data())
def test_in_any_layout_one_changed_word_changes_no_other_byte(
    array: tuple[list[str], list[str], str], data: st.DataObject
) -> None:
    words, literals, text = array
    place = data.draw(st.integers(0, len(words) - 1))
    fresh = "a word that no command had"
    changed = replace_command(text, [*words[:place], fresh, *words[place + 1 :]])
    head = 0
    while head < len(text) and text[head] == changed[head]:
        head += 1
    tail = 0
    while tail < len(text) - head and text[-1 - tail] == changed[-1 - tail]:
        tail += 1
    assert len(text) - head - tail <= len(literals[place])
    assert len(changed) - len(text) == len(quote(fresh)) - len(literals[place])


def _comments(text: str) -> list[str]:
    """The comments of a file: what begins with a ``#`` outside of strings, to the end of its line."""
    strings = (r'"{3}(?:\\.|[^\\])*?"{3,5}', r"'{3}.*?'{3,5}", r'"(?:\\.|[^"\\])*"', r"'[^'\n]*'")
    found = re.finditer("|".join((*strings, r"(?P<comment>#[^\n]*)")), text, flags=re.DOTALL)
    return [match["comment"] for match in found if match["comment"] is not None]


def test_a_line_like_the_command_in_a_text_of_several_lines_is_left_alone() -> None:
    text = 'description = """\ncommand = ["engine"]\n"""\n"command" = [ "engine" ]\n'
    assert replace_command(text, ["other"]) == text[:-12] + text[-12:].replace("engine", "other")


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
        ('\ufeffcommand = ["e"]', "begins with a byte order mark"),
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


PORTS = st.integers(1, 65_535)


@given(WORDS, PORTS, PORTS, st.booleans())
def test_a_chosen_port_is_moved_in_both_places_and_nothing_else_changes(word: str, old: int, new: int, attached: bool) -> None:
    def text(port: int) -> str:
        words = ["engine", word, *([f"--port={port}"] if attached else ["--port", str(port)]), "--flag"]
        made = new_unit_file(words, description=f"chosen_port = {old}", chosen_port=port)
        return f"# chosen_port = {old}\n{made}".replace("[service]", "[service]  # mine")

    if not word.startswith("--port"):
        assert move_port(text(old), new) == text(new)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('command = ["engine", "--port", "2"]\n[service]\nchosen_port = 1\n', "another port than the chosen one, 1"),
        ('command = ["engine", "--port"]\n[service]\nchosen_port = 1\n', "another port than the chosen one, 1"),
        ('command = ["engine"]\n[service]\nchosen_port = 1\n', "another port than the chosen one, 1"),
        ('command = ["engine", "--port", "1"]\n', "another port than the chosen one, None"),
        ('service = {chosen_port = 1}\ncommand = ["engine", "--port", "1"]\n', "a form that cannot be edited"),
    ],
)
def test_a_port_that_is_not_the_chosen_one_or_cannot_be_edited_is_left_as_it_is(text: str, words: str) -> None:
    with pytest.raises(UnitFileError, match=words):
        move_port(text, 9)


@pytest.mark.parametrize("value", ["0", "65536", "true", '"30000"', "1.5"])
def test_a_chosen_port_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(UnitFileError, match="chosen_port must be a port"):
        parse_unit_file(f'command = ["engine"]\n[service]\nchosen_port = {value}\n')
