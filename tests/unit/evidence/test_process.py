"""A process from the bytes of /proc."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.process import parse_cmdline, parse_environ, parse_process
from dflash_console.evidence.secrets import MASK


def test_this_very_process_is_read() -> None:
    folder = Path("/proc/self")
    read = parse_process(os.getpid(), **{name: (folder / name).read_bytes() for name in ("cmdline", "environ", "cgroup", "stat")})
    assert read.argv[0]
    assert read.parent == os.getppid()
    assert read.started_ticks is not None
    assert read.state == "R"
    assert read.problems == ()


def test_a_name_with_brackets_and_blanks_does_not_shift_the_fields() -> None:
    stat = b"42 (sglang :: (x) y) S 7 42 42 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 33 0 987654 1 2"
    read = parse_process(42, cmdline=b"sglang::scheduler_TP0\0\0\0\0", stat=stat, cgroup=b"0::/system.slice/prod-sgl.service\n")
    assert (read.name, read.state, read.parent, read.started_ticks) == ("sglang :: (x) y", "S", 7, 987654)
    assert read.argv == ("sglang::scheduler_TP0",)
    assert read.unit == "prod-sgl.service"


def test_the_systemd_hierarchy_of_version_one_is_understood() -> None:
    read = parse_process(1, cmdline=b"x\0", cgroup=b"12:memory:/other\n1:name=systemd:/user.slice/llm.service\n")
    assert read.unit == "llm.service"


def test_secret_variables_are_masked_when_they_are_read() -> None:
    assert parse_environ(b"HF_TOKEN=hf_abc\0PORT=30000\0broken\0") == {"HF_TOKEN": "******", "PORT": "30000"}


def test_what_could_not_be_read_is_said() -> None:
    assert parse_process(1, cmdline=None).problems == ("the command line cannot be read",)
    assert parse_process(1, cmdline=b"", stat=b"torn").problems[1] == "the process's stat line cannot be read"


def test_what_a_process_calls_itself_is_shown_in_one_line_without_secrets_and_escapes() -> None:
    title = "server --api-key sk-12345678\n\x1b]0;title\x07\x1b[2J--port 1"
    assert parse_process(1, cmdline=title.encode()).called == f"server --api-key {MASK}⏎ --port 1"
    assert parse_process(1, cmdline=b"", stat=b"1 (a\x1b[2Jb) S 1 " + b"0 " * 17 + b"77 0").called == "ab"
    assert parse_process(1, cmdline=b"/usr/bin/python3\0-V\0").called == "/usr/bin/python3"


WORDS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=1, max_size=6)


@given(WORDS)
def test_a_command_line_comes_back_word_for_word(words: list[str]) -> None:
    assert parse_cmdline("\0".join(words).encode() + b"\0") == tuple(words)


@given(st.binary(max_size=80))
def test_no_bytes_make_the_reader_fail(data: bytes) -> None:
    parse_process(1, cmdline=data, environ=data, cgroup=data, stat=data)
