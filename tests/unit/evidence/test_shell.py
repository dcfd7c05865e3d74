"""Words of a shell text keep their places, and nothing is expanded."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dflash_console.evidence.shell import split_shell

WORDS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12), max_size=8)


def values(text: str) -> list[str]:
    return [word.value for word in split_shell(text)]


@given(WORDS)
def test_words_that_were_quoted_come_back_as_they_were(words: list[str]) -> None:
    assert values(shlex.join(words)) == words


@given(st.text(max_size=60))
def test_any_text_is_split_without_an_error_into_words_inside_it(text: str) -> None:
    end = 0
    for word in split_shell(text):
        assert end <= word.start < word.end <= len(text)
        assert len(word.spans) == len(word.quotes) == len(word.value)
        end = word.end


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a 'b c' \"d e\"", ["a", "b c", "d e"]),
        ("x\"y\"'z'", ["xyz"]),
        (r"a\ b \"q\"", ["a b", '"q"']),
        ('"a\\"b\\\\c\\n"', ['a"b\\c\\n']),
        ("one \\\n two", ["one", "two"]),
        ("run # a comment\nnext", ["run", "\n", "next"]),
        ("a;b&&c||d|e", ["a", ";", "b", "&&", "c", "||", "d", "|", "e"]),
        ("cmd 2>&1 >log", ["cmd", "2>&", "1", ">", "log"]),
        ("'never closed", ["never closed"]),
        ("$'a\\'b\\x41\\t\\101' $\"c\"", ["a'bA\tA", "c"]),
        (
            "cat <<E > x\nit's $(\nE\nrun <<-'F F'\n\tF F\nend",
            ["cat", "<<", "E", ">", "x", "\n", "run", "<<-", "F F", "\n", "end"],
        ),
    ],
)
def test_quotes_escapes_comments_and_operators_are_read_as_a_shell_reads_them(text: str, expected: list[str]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize("expansion", ["$(cat /srv/key)", "${NAME:-x y}", "$NAME", "`date`", "$(echo $(id) ')')", "$1"])
def test_an_expansion_stays_as_written_and_marks_its_word(expansion: str) -> None:
    plain, word = split_shell(f'plain pre"{expansion}"post')
    assert word.value == f"pre{expansion}post"
    assert word.opaque
    assert not plain.opaque


def test_single_quotes_hold_no_expansion() -> None:
    (word,) = split_shell("'$(rm -rf x)'")
    assert word.value == "$(rm -rf x)"
    assert not word.opaque


def test_a_place_inside_quotes_leaves_the_quotes_alone() -> None:
    text = "--window '2048' end"
    word = split_shell(text)[1]
    start, end = word.place(0, 4)
    assert text[:start] + "512" + text[end:] == "--window '512' end"


@pytest.mark.parametrize("word", [r"$'caf\xc3\xa9'", r"$'\u00e9'", r"$'\cA'"])
def test_an_escape_that_the_locale_decides_on_is_opaque(word: str) -> None:
    assert split_shell(word)[0].opaque


STYLES = ("single", "double", "backslashes", "dollar", "halves")


def written(word: str, style: str) -> str:
    """``word`` as somebody may have quoted it."""
    if style == "double":
        return '"' + "".join(f"\\{character}" if character in '"\\$`' else character for character in word) + '"'
    if style == "backslashes" and word and "\n" not in word:
        return "".join(character if character.isalnum() else f"\\{character}" for character in word)
    if style == "dollar":
        return "$'" + word.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if style == "halves":
        return shlex.quote(word[: len(word) // 2]) + "'" + word[len(word) // 2 :].replace("'", "'\\''") + "'"
    return "'" + word.replace("'", "'\\''") + "'"


ASCII = st.lists(st.tuples(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8), st.sampled_from(STYLES)))


@settings(max_examples=60, deadline=None)
@given(ASCII)
def test_words_are_what_a_real_shell_makes_of_them(words: list[tuple[str, str]]) -> None:
    text = " ".join(written(word, style) for word, style in words)
    said = subprocess.run(["bash", "-c", f"printf '%s\\0' . {text}"], stdout=subprocess.PIPE, check=True).stdout
    assert said.decode().split("\0")[1:-1] == [word for word, _ in words]
    assert values(text) == [word for word, _ in words]
