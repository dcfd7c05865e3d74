"""The list of parts as a person reads it in a terminal."""

from __future__ import annotations

import pytest

from tests.gpu.__main__ import main
from tests.gpu.parts import PARTS


@pytest.mark.parametrize("columns", [80, 200])
def test_the_list_keeps_its_columns_and_the_terminals_width(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    named = [line for line in lines if not line.startswith(" ")]
    assert [line.split()[0] for line in named] == list(PARTS)
    edge = max(map(len, PARTS)) + 2
    assert {line[edge - 1] for line in lines} == {" "}, "every description begins in the same column"
    assert all(line[edge] != " " for line in lines)
    assert max(map(len, lines)) <= columns
    assert "(;" not in "".join(lines), "a part that starts no server of its own names none"
