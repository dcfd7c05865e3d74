"""The list of answers: long figures go on beneath themselves."""

from __future__ import annotations

from dflash_console.tui.answer_list import answer_list
from dflash_console.tui.answers import Answer

from .support import answer_record


def test_long_figures_and_remarks_go_on_beneath_themselves() -> None:
    answers = [Answer(0, record=answer_record(0, "lists"))]
    lines = answer_list(answers, 0, (), {0: "plain: another output ✗ from character 124 on · 47.9 tok/s"}, 40).plain.splitlines()
    assert len(lines) >= 4
    assert lines[0].startswith("▸ 1  ")
    assert all(line.startswith("     ") and line[5] not in " ·" for line in lines[1:]), lines
    assert all(len(line) <= 40 for line in lines)
