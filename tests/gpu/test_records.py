"""Result files are read back as they were written, and the table has a row for every check."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.gpu.__main__ import main
from tests.gpu.records import Check, PartResult, Provenance, Verdict, judged, read_results, shown, table

ORIGIN = Provenance("0123abcd", "2026-11-30T06:00:00Z", "NVIDIA H200", "580.1", {"sglang": "0.5.17", "torch": "2.11.0"})
RESULT = PartResult(
    "equality",
    12.5,
    ORIGIN,
    (judged("greedy", "equal", "64 of 64", True), shown("commit length", "2.1")),
    {"cells": [1, 2.5, None]},
)


def test_a_result_file_holds_everything() -> None:
    assert PartResult.from_json(RESULT.to_json()) == RESULT


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"part": "x", "seconds": 1, "checks": [{}], "provenance": {}, "data": {}}'])
def test_anything_else_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match="not a result file"):
        PartResult.from_json(text)


def test_of_a_part_that_ran_twice_the_newer_result_counts(tmp_path: Path) -> None:
    later = dataclasses.replace(RESULT, seconds=1.0, provenance=dataclasses.replace(ORIGIN, date="2026-12-01T00:00:00Z"))
    for name, result in (("b.json", RESULT), ("a.json", later)):
        (tmp_path / name).write_text(result.to_json(), encoding="utf-8")
    assert read_results(sorted(tmp_path.glob("*.json"))) == [later]


def test_a_file_that_is_no_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"x\.json"):
        read_results([tmp_path / "x.json"])


def test_the_table_has_each_check_with_its_verdict_and_what_it_ran_on() -> None:
    text = table([RESULT])
    assert "| equality | greedy | equal | 64 of 64 | met |" in text
    assert "| equality | commit length | – | 2.1 | shown |" in text
    assert "NVIDIA H200, driver 580.1" in text
    assert "sglang 0.5.17, torch 2.11.0" in text


def test_a_check_cannot_break_the_table() -> None:
    odd = dataclasses.replace(RESULT, checks=(Check("a|b", "", "line\nother", Verdict.MISSED),))
    assert "| equality | a\\|b | – | line other | missed |" in table([odd])


def test_merge_writes_the_table(tmp_path: Path) -> None:
    (tmp_path / "equality.json").write_text(RESULT.to_json(), encoding="utf-8")
    assert main(["merge", str(tmp_path), "--into", str(tmp_path / "out.md")]) == 0
    assert "| equality | greedy |" in (tmp_path / "out.md").read_text(encoding="utf-8")
