"""Questions at a terminal (an unknown host key, a plan): what answers them, and what does not."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from dflash_console.commands.context import accept_host_key
from dflash_console.commands.outcome import CommandError
from dflash_console.commands.output import Output
from dflash_console.hosts.ssh_errors import HostKeyUnknown, OfferedKey

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1rhFnhV2YxRHIkF1Pi8ZDPAJp7rPpRMAJpTLkkYnbT"
END_OF_INPUT = "\x04"


def problem(file: Path) -> HostKeyUnknown:
    return HostKeyUnknown("gpu-a", OfferedKey("gpu-a", "ssh-ed25519", "SHA256:abc", KEY), str(file), hashed=False)


class Somebody:
    """Sits at the terminal that is this process's standard input and standard error."""

    def __init__(self, terminal: int, pool: ThreadPoolExecutor) -> None:
        self._terminal = terminal
        self._pool = pool
        self._shown = ""

    def is_asked(self, file: Path) -> Future[None]:
        asked = self._pool.submit(accept_host_key, problem(file))
        self.sees("(yes/no)")
        assert "SHA256:abc" in self._shown
        return asked

    def is_asked_about_a_plan(self) -> Future[bool]:
        asked = self._pool.submit(lambda: Output(json_wanted=False, stdout=sys.stderr).ask("Apply it?"))
        self.sees("[y/N]")
        return asked

    def types(self, line: str) -> None:
        os.write(self._terminal, line.encode() + b"\n")

    def sees(self, text: str) -> None:
        """Wait until it is shown: what a program writes, and the echo of what was typed."""
        while text not in self._shown:
            assert select.select([self._terminal], [], [], 60)[0], f"no {text} in {self._shown!r}"
            self._shown += os.read(self._terminal, 65_536).decode()


@contextlib.contextmanager
def at_a_terminal() -> Iterator[Somebody]:
    # No fixture: pytest sets the standard streams anew after those.
    terminal, side = pty.openpty()
    with (
        ThreadPoolExecutor(1) as pool,
        os.fdopen(os.dup(side)) as stdin,
        os.fdopen(side, "w") as stderr,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("sys.stdin", stdin)
        patch.setattr("sys.stderr", stderr)
        try:
            yield Somebody(terminal, pool)
        finally:
            # Whoever still reads gets the end.
            os.close(terminal)


@pytest.mark.parametrize(
    ("answer", "accepted"), [("yes", True), ("Y", True), ("no", False), ("", False), ("yes, no", False), (END_OF_INPUT, False)]
)
def test_only_yes_accepts(tmp_path: Path, answer: str, accepted: bool) -> None:
    file = tmp_path / "known_hosts"
    with at_a_terminal() as somebody:
        asked = somebody.is_asked(file)
        somebody.types(answer)
        error = asked.exception(60)
    assert isinstance(error, CommandError) is not accepted
    assert (file.read_text() if file.exists() else "") == (f"gpu-a {KEY}\n" if accepted else "")


def test_what_was_typed_before_the_question_is_no_answer_to_it(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    with at_a_terminal() as somebody:
        somebody.types("yes")
        somebody.sees("yes\r\n")
        asked = somebody.is_asked(file)
        somebody.types("no")
        error = asked.exception(60)
    assert "the key of gpu-a was not accepted" in str(error)
    assert not file.exists()


def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with open(os.devnull) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        with pytest.raises(CommandError, match="run this at a terminal, to accept it"):
            accept_host_key(problem(tmp_path / "known_hosts"))
    assert not (tmp_path / "known_hosts").exists()


@pytest.mark.parametrize(
    ("before", "answer", "agreed"), [("y", "n", False), ("n", "y", True), ("y", "", False), ("", "YES", True)]
)
def test_a_plan_is_agreed_to_by_what_is_typed_after_the_question_alone(before: str, answer: str, agreed: bool) -> None:
    with at_a_terminal() as somebody:
        somebody.types(before)
        somebody.sees(f"{before}\r\n")
        asked = somebody.is_asked_about_a_plan()
        somebody.types(answer)
        assert asked.result(60) is agreed
