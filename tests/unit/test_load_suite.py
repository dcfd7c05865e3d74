"""Prompt suites: the console's own are whole, a user's file is read or refused with the place of the mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_console.load.suite import CHARACTERS_PER_TOKEN, SUITES, SuiteError, filler, load_suite


@pytest.mark.parametrize("name", SUITES)
def test_each_suite_of_the_console_has_named_prompts(name: str) -> None:
    suite = load_suite(name)
    names = [prompt.name for prompt in suite.prompts]
    assert len(names) >= 4
    assert len(set(names)) == len(names)
    assert suite.find(names[-1]).text
    assert suite.title


def test_the_long_suite_is_as_deep_as_asked() -> None:
    shallow, deep = load_suite("long", depth=500), load_suite("long", depth=4_000)
    assert len(shallow.prompts[0].text) == pytest.approx(500 * CHARACTERS_PER_TOKEN, rel=0.25)
    assert len(deep.prompts[0].text) == pytest.approx(4_000 * CHARACTERS_PER_TOKEN, rel=0.05)


def test_the_long_suite_has_a_depth_of_its_own() -> None:
    assert len(load_suite("long").prompts[0].text) > 2_000 * CHARACTERS_PER_TOKEN


def test_filler_is_the_same_every_time_and_does_not_repeat_itself() -> None:
    lines = filler(2_000).splitlines()
    assert filler(2_000).splitlines() == lines
    assert len({line.split(" ", 1)[1] for line in lines}) == len(lines)


@pytest.mark.parametrize(
    ("name", "content", "prompts"),
    [
        ("one.txt", "Tell me\nsomething.\n", ["Tell me\nsomething."]),
        ("lines.jsonl", '{"prompt": "a"}\n\n{"text": "b"}\n"c"\n', ["a", "b", "c"]),
        ("broken.jsonl", '{"prompt": "a\u2028b\x85c"}\r\n{"text": "b"}\r\n', ["a\u2028b\x85c", "b"]),
        ("marked.toml", '\ufeff[[prompt]]\ntext = "x"\n', ["x"]),
        ("turns.jsonl", '{"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}', ["u"]),
        ("own.toml", '[[prompt]]\ntext = "x"\n[[prompt]]\nname = "n"\ntext = "y"\n', ["x", "y"]),
    ],
)
def test_a_file_of_the_users_is_read(tmp_path: Path, name: str, content: str, prompts: list[str]) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    assert [prompt.text for prompt in load_suite(str(path)).prompts] == prompts


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("bad.toml", "[[prompt]\n", "not valid TOML"),
        ("empty.toml", "title = 'x'\n", "no prompts"),
        ("untold.toml", "[[prompt]]\nname = 'x'\n", "prompt 1"),
        ("bad.jsonl", '{"prompt": "a"}\n{oops\n', "line 2"),
        ("other.jsonl", '{"question": "a"}\n', "line 1"),
        ("empty.txt", "\n", "holds no prompt"),
        ("latin.txt", b"caf\xe9", "UTF-8"),
        ("deep.toml", "a = " + "[" * 5_000, "nested too deeply"),
        ("deep.jsonl", "[" * 100_000, "line 1"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_and_what(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SuiteError, match=words):
        load_suite(str(path))


def test_a_file_without_an_end_is_not_read_for_ever() -> None:
    with pytest.raises(SuiteError, match="larger than 32 MiB"):
        load_suite("/dev/zero")


def test_an_unknown_name_lists_the_suites() -> None:
    with pytest.raises(SuiteError, match="coding, chat, long"):
        load_suite("codign")
