"""Places of a unit's files that do not mean what they seem to are said, one sentence each, with file and line."""

from __future__ import annotations

import pytest

from dflash_console.evidence.unit import UnitSource
from dflash_console.evidence.unit_command import EnvText, UnitFiles, view_command
from dflash_console.evidence.unit_remarks import unit_remarks

from .support import CASES

ENGINE = "ExecStart=/usr/bin/python3 -m sglang.launch_server --model-path /w/t"


def remarks(service: str, *drop_ins: str, env: tuple[EnvText, ...] = ()) -> tuple[str, ...]:
    sources = [UnitSource("/e/u.service", service), *(UnitSource(f"/e/{n}.conf", text) for n, text in enumerate(drop_ins))]
    return unit_remarks(view_command(UnitFiles("u.service", tuple(sources), env)))


def of_command(words: str) -> tuple[str, ...]:
    return remarks(f"[Service]\n{ENGINE} {words}\n")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("trailing-space.service", "a blank follows the backslash"),
        ("inline-hash.service", "is no comment"),
        ("comment-inside.service", ""),
        ("continuation-at-eof.service", ""),
        ("crlf.service", ""),
    ],
)
def test_hazards_of_continued_lines_are_said_and_what_is_in_order_is_not(name: str, said: str) -> None:
    text = (CASES / "11-unit-continuation-hazards" / name).read_bytes().decode()
    found = remarks(text)
    assert bool(found) is bool(said)
    assert said in " ".join(found)
    assert all(remark.startswith("/e/u.service:") for remark in found)


def test_flags_in_a_variable_that_is_one_argument_are_said() -> None:
    folder = CASES / "03-unit-envfile-args"
    common = EnvText("/etc/sgl/common.conf", (folder / "etc-sgl-common.conf").read_text())
    files = UnitFiles("sgl@a.service", (UnitSource("/e/sgl@.service", (folder / "sgl@.service").read_text()),), (common,))
    (remark,) = unit_remarks(view_command(files))
    assert remark == ("/e/sgl@.service:13: ${QUOTED_OPTS} is one argument, blanks and all; $QUOTED_OPTS would be its 2 words")
    assert remarks('[Service]\nEnvironment="P=/srv/my models" "O=-x"\n' + ENGINE + " ${P} ${O} --draft ${P}\n") == ()


@pytest.mark.parametrize(
    "words",
    [">> /var/log/x.log", ">/var/log/x.log", "2>&1", "| tee x", "&& echo done", "--api-key $(cat /k)", "--api-key=`cat /k`"],
)
def test_shell_syntax_outside_a_shell_is_said(words: str) -> None:
    assert "systemd starts no shell" in of_command(words)[0]


@pytest.mark.parametrize(
    "words",
    ["'>'", '"a && b"', "--a=b", "--chat-template '{{ x | y }}'", '--json \'{"a": "$(b)"}\'', "--a->b", "<|im_end|>", "a>b"],
)
def test_what_only_looks_like_shell_syntax_is_not(words: str) -> None:
    assert of_command(words) == ()


def test_a_shell_string_may_hold_what_shells_take() -> None:
    assert remarks("[Service]\nExecStart=/bin/bash -c 'exec sglang serve --port 1 >> /x.log 2>&1'\n") == ()


def test_a_drop_in_that_ends_at_a_broken_header_is_said_with_its_own_name() -> None:
    (remark,) = remarks(f"[Service]\n{ENGINE}\n", "[Servcie\nEnvironment=A=1\n")
    assert remark.startswith("/e/0.conf:1: '[Servcie' is no section header")


def test_a_variable_that_is_lost_to_a_byte_order_mark_is_said() -> None:
    """As systemd 252 does: it drops the mark that begins a unit, and takes that of an environment file for a part of the name."""
    unit = f"\ufeff[Service]\nEnvironmentFile=/e/a.env\n{ENGINE} --speculative-draft-window-size ${{W}} $MORE\n"
    files = UnitFiles(
        "u.service", (UnitSource("/e/u.service", unit),), (EnvText("/e/a.env", "\ufeffW=512\nMORE=--page-size=1\n"),)
    )
    view = view_command(files)
    assert "W" not in view.environment
    assert view.argv[-2:] == ("", "--page-size=1")
    assert unit_remarks(view) == (
        "/e/a.env:1: the file begins with a byte order mark, for which systemd ignores W: save it without one",
    )
    for text in ("W=512\n", "\ufeff# A comment.\nW=512\n", "\ufeff\nW=512\n"):
        assert unit_remarks(view_command(files.with_text("/e/a.env", text))) == ()
