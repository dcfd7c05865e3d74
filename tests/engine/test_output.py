"""What the launcher says while something takes long, and when nobody can read what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine_launch.commands.output import waiting
from engine_launch.embedded.options import PACKAGED_DRAFTER


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_waited_for_is_said_on_a_terminal_alone_and_taken_back(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "20")
    with pytest.raises(KeyError), waiting("SGLang is asked for its flags"):
        raise KeyError
    assert capsys.readouterr().err == ("SGLang is asked for\r\x1b[K" if terminal else "")


@pytest.mark.parametrize(
    ("words", "streams", "code", "said"),
    [
        (["doctor", "--port", "0"], ">&-", 0, ""),
        (["serve", "--help"], "<&- >&-", 0, ""),
        (["--help"], ">/dev/full", 1, "ddtree-launch: error: No space left on device.\n"),
        (["--version"], ">/dev/full", 1, "ddtree-launch: error: No space left on device.\n"),
        (["drafter", str(PACKAGED_DRAFTER)], ">/dev/full", 1, "ddtree-launch: error: No space left on device.\n"),
    ],
)
def test_an_output_that_is_closed_or_full_ends_in_no_traceback(
    words: list[str], streams: str, code: int, said: str, tmp_path: Path
) -> None:
    """Buffered, as Python's output is in a pipe or a file: what cannot be written is noticed at the end."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-m", "engine_launch", *words]
    done = subprocess.run(
        command,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        env=environment | {"DDTREE_CACHE_DIR": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, said)
