"""Unit files are read as systemd 252 reads them: its own parse of each case is the expectation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.command import flag_value
from dflash_console.evidence.env_file import parse_env_file, quote_value
from dflash_console.evidence.shell import split_shell
from dflash_console.evidence.unit import EffectiveUnit, UnitSource, read_unit, resolve_command
from dflash_console.evidence.unit_text import parse_unit
from dflash_console.evidence.unit_words import expand, quote_word, split_words
from dflash_console.knobs import KNOBS

from .support import CASES

WINDOW = KNOBS["draft_window"]
EXEC_ORDER = ("ExecStartPre", "ExecStart", "ExecStop")


@dataclass
class Expected:
    commands: list[list[str]] = field(default_factory=list)
    environment: list[str] = field(default_factory=list)


def expectations(folder: Path) -> dict[str, Expected]:
    """What systemd loaded, by unit. It prints words quoted as for a shell."""
    found: dict[str, Expected] = {}
    current = Expected()
    for line in (folder / "systemd-252-parse.txt").read_text().splitlines():
        if line.startswith("[") and line.endswith("]"):
            current = found.setdefault(line[1:-1], Expected())
        elif line.startswith("Command Line: "):
            words = [word.value for word in split_shell(line.removeprefix("Command Line: ").replace("#", "\\#"))]
            current.commands.append(words)
        elif line.startswith("Environment: "):
            current.environment.append(line.removeprefix("Environment: "))
    return found


def load(folder: Path, name: str) -> EffectiveUnit:
    """A unit of a case with its drop-ins."""
    drop_ins = sorted((folder / f"{name}.d").glob("*.conf"))
    return read_unit([UnitSource(str(path), path.read_bytes().decode()) for path in (folder / name, *drop_ins)])


def all_units() -> list[tuple[str, str]]:
    folders = [folder for folder in sorted(CASES.iterdir()) if (folder / "systemd-252-parse.txt").exists()]
    return [(folder.name, name) for folder in folders for name in expectations(folder)]


@pytest.mark.parametrize(("case", "name"), all_units())
def test_commands_and_environment_are_those_that_systemd_loads(case: str, name: str) -> None:
    folder = CASES / case
    expected = expectations(folder)[name]
    unit = load(folder, name)
    assert [list(command.argv) for key in EXEC_ORDER for command in unit.commands.get(key, ())] == expected.commands
    assert sorted(f"{entry.name}={entry.value}" for entry in unit.environment) == sorted(expected.environment)
    assert unit.refused == ""


def test_the_flags_inside_a_shell_string_of_a_unit_are_found() -> None:
    start = load(CASES / "01-unit-bash-docker", "llm-gpu8.service").start
    assert start is not None
    assert flag_value(start.argv, WINDOW).value == 2048


def test_a_prefix_of_the_executable_is_kept_apart() -> None:
    unit = load(CASES / "01-unit-bash-docker", "llm-gpu8.service")
    assert [command.prefix for command in unit.commands["ExecStop"]] == ["-"]


def test_the_drop_in_that_wins_is_named() -> None:
    start = load(CASES / "07-unit-dropins", "prod-sgl.service").start
    assert start is not None
    assert start.path.endswith("10-spec.conf")
    assert start.line == 3
    assert flag_value(start.argv, WINDOW).value == 2048


def test_a_drop_in_without_a_reset_is_refused_as_systemd_refuses_it() -> None:
    folder = CASES / "07-unit-dropins"
    paths = (folder / "prod-sgl.service", folder / "bad-dropin" / "prod-sgl.service.d" / "50-oops.conf")
    unit = read_unit([UnitSource(str(path), path.read_text()) for path in paths])
    assert "more than one ExecStart=" in unit.refused
    assert unit.refused[:40] in (folder / "bad-dropin" / "journal.txt").read_text()


def test_a_log_that_goes_to_a_file_is_known() -> None:
    assert load(CASES / "02-unit-append-log", "sgl-append.service").output_file() == "/srv/sgl/var/out.log"
    assert load(CASES / "09-unit-user-env-wrapper", "llm.service").output_file() is None


def test_variables_are_filled_in_as_systemd_does_and_each_knows_its_file() -> None:
    folder = CASES / "03-unit-envfile-args"
    unit = load(folder, "sgl@.service")
    assert [file.path for file in unit.environment_files] == ["/etc/sgl/common.conf", "/etc/sgl/%i.conf"]
    assert all(file.optional for file in unit.environment_files)
    files = {
        "/etc/sgl/common.conf": (folder / "etc-sgl-common.conf").read_text(),
        "/etc/sgl/%i.conf": (folder / "etc-sgl-q30b.conf").read_text(),
    }
    start = unit.start
    assert start is not None
    resolved = resolve_command(unit, start, files)
    assert "--mem-fraction-static 0.82" in resolved.argv, "${NAME} stays one argument"
    assert resolved.whole == ("QUOTED_OPTS",)
    assert resolved.argv[5:8] == ("--log-level", "info", "--enable-metrics")
    assert flag_value(resolved.argv, WINDOW).value == 2048
    origin = resolved.environment["MODEL_ARGS"]
    assert (origin.path, origin.line) == ("/etc/sgl/%i.conf", 1)
    assert resolved.environment["EMPTY"].value == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [("trailing-space.service", "a blank follows the backslash"), ("inline-hash.service", "is no comment")],
)
def test_hazards_that_lose_or_add_arguments_are_serious_warnings(name: str, words: str) -> None:
    unit = load(CASES / "11-unit-continuation-hazards", name)
    assert any(warning.serious and words in warning.text for _, warning in unit.warnings)


@pytest.mark.parametrize("name", ["comment-inside.service", "continuation-at-eof.service", "crlf.service"])
def test_what_systemd_takes_without_a_word_is_no_warning(name: str) -> None:
    assert load(CASES / "11-unit-continuation-hazards", name).warnings == ()


def test_lines_that_are_lost_are_named_as_systemd_names_them() -> None:
    warnings = [warning for _, warning in load(CASES / "11-unit-continuation-hazards", "trailing-space.service").warnings]
    assert (7, "Missing '=', ignoring line.") in [(warning.line, warning.text) for warning in warnings]


def test_every_character_of_a_value_knows_its_place_in_the_file() -> None:
    for case, name in all_units():
        text = (CASES / case / name).read_bytes().decode()
        for item in parse_unit(text).assignments:
            assert len(item.offsets) == len(item.value)
            assert all(text[at] == character or text[at] == "\\" for at, character in zip(item.offsets, item.value, strict=True))


def test_several_commands_in_one_line_and_an_escaped_semicolon_are_told_apart() -> None:
    unit = read_unit([UnitSource("u", "[Service]\nType=oneshot\nExecStart=/bin/a x ; @!/bin/b \\; y\n")])
    assert [(command.prefix, command.argv) for command in unit.commands["ExecStart"]] == [
        ("", ("/bin/a", "x")),
        ("@!", ("/bin/b", ";", "y")),
    ]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (r'"a b"', "a b"),
        (r"'a \x41 b'", "a A b"),
        (r"a\sb", "a b"),
        (r"a\tb\"c", 'a\tb"c'),
        (r"\101\u0042", "AB"),
        (r"caf\xc3\xa9\303\251\u00e9", "caféé" + "é"),
        (r"\ --flag", r"\ --flag"),
        ("\\\t--flag", "\\\t--flag"),
        (r"a\xc3b", "a\ufffdb"),
        ('pre"mid dle"post', "premid dlepost"),
        (r"\q", r"\q"),
        ("%h/x%%", "%h/x%%"),
    ],
)
def test_quotes_and_escapes_of_a_word_are_read(word: str, value: str) -> None:
    (read,) = split_words(word)
    assert read.value == value
    assert read.odd_escapes is (word == r"\q" or word.endswith("--flag"))
    assert read.glued is word.endswith("--flag")


def test_lines_joined_by_hand_with_their_backslashes_left_in_lose_their_flags() -> None:
    """``\\`` and a blank are kept, and the blank ends no word: so is it with systemd 252."""
    unit = read_unit([UnitSource("u", "[Service]\nExecStart=/bin/p --model-path /w/t \\ --port 30000 \\ --tp 8\n")])
    assert unit.start is not None
    assert unit.start.argv == ("/bin/p", "--model-path", "/w/t", "\\ --port", "30000", "\\ --tp", "8")
    ((_, warning),) = unit.warnings
    assert warning.serious
    assert "makes one argument" in warning.text


@pytest.mark.parametrize(
    ("lines", "commands"),
    [
        ("ExecStart=-/bin/a 'x\nExecStart=/bin/b", [("/bin/b",)]),
        ("ExecStart=-@/bin/a\nExecStart=/bin/b", [("/bin/b",)]),
        ("ExecStart='/bin/a\nExecStart=/bin/b", [("/bin/b",)]),
        ("Type=oneshot\nExecStart=/bin/b ; -/bin/a 'x", [("/bin/b",)]),
    ],
)
def test_a_command_that_cannot_be_read_is_lost_where_its_failure_is_to_be_ignored(
    lines: str, commands: list[tuple[str, ...]]
) -> None:
    unit = read_unit([UnitSource("u", f"[Service]\n{lines}\n")])
    assert [command.argv for command in unit.commands["ExecStart"]] == commands
    assert unit.refused == ""
    assert any(warning.serious and "systemd ignores it" in warning.text for _, warning in unit.warnings)


@pytest.mark.parametrize("line", ["ExecStart=/bin/a 'x", "ExecStart=@/bin/a", "ExecStart=:@/bin/a"])
def test_a_command_that_cannot_be_read_makes_systemd_refuse_the_unit(line: str) -> None:
    assert "A command cannot be read" in read_unit([UnitSource("u", f"[Service]\n{line}\n")]).refused


def test_a_broken_section_header_ends_the_reading_of_a_drop_in_and_keeps_a_unit_from_loading() -> None:
    good = "[Service]\nExecStart=/bin/a\n"
    broken = "[Service]\nEnvironment=A=1\n[Servcie\nEnvironment=B=2\n"
    with_drop_in = read_unit([UnitSource("u", good), UnitSource("d", broken)])
    assert [entry.name for entry in with_drop_in.environment] == ["A"]
    assert with_drop_in.refused == ""
    assert with_drop_in.warnings[0][1].serious
    assert with_drop_in.warnings[0][1].text.startswith("'[Servcie' is no section header")
    assert read_unit([UnitSource("u", broken), UnitSource("d", good)]).refused.startswith("In line 3 '[Servcie' is no section")


def test_variables_that_are_none_are_ignored_and_comments_may_be_in_any_encoding() -> None:
    lines = (b"# caf\xe9", b"Environment=1B=2 C-D=3 \xc3\x84=4 E=5 'F=6", b"ExecStart=/bin/a \\", b"# \xe9", b" --b", b"")
    text = b"\n".join((b"[Service]", b"Environment=A=1", *lines))
    unit = read_unit([UnitSource("u", text.decode("utf-8", "replace"))])
    assert [(entry.name, entry.value) for entry in unit.environment] == [("A", "1"), ("E", "5")]
    assert unit.start is not None
    assert unit.start.argv == ("/bin/a", "--b")
    assert unit.refused == ""


def test_a_line_that_is_not_utf_8_ends_the_reading_of_a_drop_in_and_keeps_a_unit_from_loading() -> None:
    # systemd 252 says "String is not UTF-8 clean, ignoring assignment", and then the unit's LoadState is "error".
    good = "[Service]\nExecStart=/bin/a\n"
    bad = b"[Service]\nEnvironment=A=1\nEnvironment=B=caf\xe9\nEnvironment=C=2\n".decode("utf-8", "replace")
    with_drop_in = read_unit([UnitSource("u", good), UnitSource("d", bad)])
    assert [entry.name for entry in with_drop_in.environment] == ["A"]
    assert with_drop_in.refused == ""
    assert [(w.line, w.serious, w.text) for _, w in with_drop_in.warnings] == [
        (3, True, "The line is not UTF-8, and systemd reads no further")
    ]
    assert read_unit([UnitSource("u", bad), UnitSource("d", good)]).refused == (
        "In line 3 the line is not UTF-8, and systemd reads no further."
    )


def test_nul_and_a_mark_in_a_later_line_are_read_as_by_systemd() -> None:
    unit = read_unit([UnitSource("u", "[Service]\n\ufeffExecStart=/bin/a\0ExecStart=\0ExecStart=/bin/b \\\n\ufeff\n")])
    assert [command.argv for command in unit.commands["ExecStart"]] == [("/bin/b", "\ufeff")]


def test_variables_alone_are_split_and_braced_ones_are_not() -> None:
    environment = {"A": "x 'y z' \\\"q", "B": "1 2"}
    assert expand(["p", "$A", "${B}", "n${B}m", "$$A", "$UNSET", "${UNSET}", "a$B"], environment) == (
        *("p", "x", "y z", '"q', "1 2", "n1 2m", "$A", "", "a$B"),
    )


def test_an_environment_file_is_read_as_systemd_reads_it() -> None:
    text = "# c\n ; d\nA=1\nB = two words  \nC=\"a\\\nb \\$ \\n\"'lit \\n'\nbroken\nD='x'y\\ z\n1=no\nA=2"
    assert [(item.name, item.value, item.line) for item in parse_env_file(text)] == [
        ("A", "1", 3),
        ("B", "two words", 4),
        ("C", "ab $ \\nlit \\n", 5),
        ("D", "xy z", 8),
        ("A", "2", 10),
    ]


WORDS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\x85\u2028\u2029"), max_size=12), min_size=1, max_size=6
)


@given(WORDS)
def test_words_that_were_quoted_come_back_as_they_were(words: list[str]) -> None:
    assert [word.value for word in split_words(" ".join(quote_word(word) for word in words))] == words


@given(WORDS)
def test_a_command_survives_being_written_into_a_unit_file(words: list[str]) -> None:
    command = ["/bin/run", *(word for word in words if word != ";")]
    text = "[Service]\nExecStart=" + " ".join(quote_word(word) for word in command) + "\n"
    start = read_unit([UnitSource("u", text)]).start
    assert start is not None
    assert list(start.argv) == command


@given(st.text(max_size=150))
def test_no_text_makes_the_readers_fail(text: str) -> None:
    unit = read_unit([UnitSource("u", text), UnitSource("d", "[Service]\nExecStart=" + text)])
    if unit.start is not None:
        resolve_command(unit, unit.start, {"x": text})
    parse_env_file(text)
    parse_env_file("A=" + text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('A="x" y', "xy"),
        ('A=x"y"', 'x"y"'),
        ("A='a' 'b'", "ab"),
        ("A= # no comment", "# no comment"),
        ("#c \\\nB=1\nA=2", "2"),
        ('A="\\', ""),
        ("=A\nA=1", "1"),
    ],
)
def test_environment_files_have_rules_of_their_own(text: str, value: str) -> None:
    """Each was seen with systemd 252: blanks after a quoted part go, quotes after a bare character stay, comments continue."""
    assert [item.value for item in parse_env_file(text)] == [value]


VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)


@given(VALUES)
def test_a_value_that_was_quoted_for_an_environment_file_comes_back(value: str) -> None:
    (item,) = parse_env_file(f"A={quote_value(value)}\n")
    assert item.value == value
    assert len(item.spans) == len(value)
