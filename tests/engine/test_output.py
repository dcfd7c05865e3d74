"""What the launcher says while something takes long."""

from __future__ import annotations

import sys

import pytest

from engine_launch.commands.output import waiting


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_waited_for_is_said_on_a_terminal_alone_and_taken_back(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "20")
    with pytest.raises(KeyError), waiting("SGLang is asked for its flags"):
        raise KeyError
    assert capsys.readouterr().err == ("SGLang is asked for\r\x1b[K" if terminal else "")
