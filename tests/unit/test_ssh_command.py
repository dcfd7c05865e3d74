"""What is sent to a login shell, run by real shells; and the answer, cut out of whatever the channel brings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dflash_console.hosts.ssh_command import MAX_SCRIPT, Answer, command_script, login_line, new_mark, quote, stream_script
from dflash_console.hosts.transport import HostError

WORDS = st.text(st.characters(blacklist_categories=[], blacklist_characters="\0", max_codepoint=0x2FFF).filter(
    lambda c: not 0xD800 <= ord(c) < 0xDC80), max_size=30)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(WORDS, max_size=6))
@example(["", "it's", "\\", "!", "\n", "$(id)", "`id`", "\udcff", "é", "-n", "*", "~", "%s"])
def test_the_remote_shell_gives_every_word_back_unchanged(words: list[str]) -> None:
    done = subprocess.run(["/bin/sh", "-c", quote(["printf", r"%s\0", *words])], capture_output=True, check=True)
    expected = [word.encode("utf-8", "surrogateescape") for word in words] or [b""]
    assert done.stdout.split(b"\0")[:-1] == expected


@pytest.mark.parametrize(("argv", "said"), [([], "empty"), (["echo", "a\0b"], "NUL")])
def test_what_no_command_line_can_hold_is_refused(argv: list[str], said: str) -> None:
    with pytest.raises(HostError, match=said):
        quote(argv)


def test_a_command_longer_than_a_command_line_is_refused_with_the_way_out() -> None:
    with pytest.raises(HostError, match="standard input"):
        login_line(b"x" * (MAX_SCRIPT + 1))


def run(shell: str, line: str, stdin: bytes = b"", *, open_input: bool = True) -> tuple[bytes, bytes]:
    """Run as sshd does, the input staying open behind what is sent."""
    with subprocess.Popen([shell, "-c", line], stdin=-1, stdout=-1, stderr=-1, start_new_session=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(stdin)
        process.stdin.flush()
        if not open_input:
            process.stdin.close()
        out, err = process.stdout.read(), process.stderr.read()
    return out, err


SHELLS = ["dash", "bash"]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("stdin", [b"", b"some\0input"])
def test_the_script_answers_between_its_marks_and_ends_with_its_input_open(shell: str, stdin: bytes) -> None:
    mark = new_mark()
    script = command_script(["sh", "-c", "cat; echo err >&2; exit 7"], mark, stdin_size=len(stdin), timeout=10)
    out, err = Answer(mark), Answer(mark)
    # The shell under test is the one that runs the script, which is /bin/sh on a host.
    for answer, data in zip((out, err), run(shell, script.decode(), stdin), strict=True):
        answer.feed(data)
    assert (out.data, out.status, err.data, err.status) == (stdin, 7, b"err\n", 7)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("kind", ["command", "stream"])
def test_the_end_of_the_input_ends_the_command(shell: str, kind: str) -> None:
    argv = ["sh", "-c", "sleep 300 & sleep 300"]
    mark = new_mark()
    script = command_script(argv, mark, stdin_size=0, timeout=200) if kind == "command" else stream_script(argv, mark)
    out, _ = run(shell, script.decode(), open_input=False)
    answer = Answer(mark)
    answer.feed(out)
    assert answer.begun
    assert answer.status == (128 + 15 if kind == "command" else None)


# What dash's child does between its fork and its own signal handling, for a second: it takes the signal and forgets it.
FORGETS = "trap : TERM\n"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("before", ["", FORGETS], ids=["dies", "forgets"])
def test_a_command_whose_session_is_not_made_yet_ends_at_once_too(
    shell: str, before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = tmp_path / "setsid"
    late.write_text(f'#!/bin/sh\n{before}sleep 1\nexec /usr/bin/setsid "$@"\n')
    late.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    mark = new_mark()
    out, _ = run(shell, command_script(["sleep", "300"], mark, stdin_size=0, timeout=200).decode(), open_input=False)
    answer = Answer(mark)
    answer.feed(out)
    assert answer.status == 128 + 15


@given(st.binary(max_size=60), st.binary(max_size=200), st.integers(0, 255), st.data())
def test_an_answer_is_found_however_the_bytes_are_cut(noise: bytes, body: bytes, status: int, data: st.DataObject) -> None:
    mark = "ddtree-0123456789abcdef"
    whole = noise + f"\n{mark}\n".encode() + body + f"\n{mark} {status}\n".encode() + b"late noise"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    answer = Answer(mark)
    for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        answer.feed(whole[begin:end])
    assert (answer.noise, answer.data, answer.status) == (noise, body, status)


def test_an_answer_that_never_begins_is_all_noise() -> None:
    answer = Answer("mark")
    answer.feed(b"This account is currently not available.\n")
    assert not answer.begun
    assert answer.data == b""
    assert answer.noise == b"This account is currently not available.\n"
    assert answer.status is None
