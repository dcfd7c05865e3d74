"""Weight updates over two ranks that are real processes: whatever goes wrong on one of them, both say and do the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sglang.weights_of_a_rank import CASES

pytestmark = pytest.mark.timeout(600)  # importing SGLang takes a quarter of a minute, on a busy machine minutes


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """What each of the ranks answered, held and had in the end, by case."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-W", "ignore", "-m", "tests.sglang.weights_of_a_rank"]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for rank in range(2)
    ]
    try:
        ended = [process.communicate(timeout=500) for process in started]
    finally:
        for process in started:
            process.kill()
    lines = [[json.loads(line[5:]) for line in out.splitlines() if line.startswith("SAID ")] for out, _ in ended]
    assert [len(of_rank) for of_rank in lines] == [len(CASES)] * 2, "\n".join(err[-1500:] for _, err in ended)
    return {case: list(both) for case, both in zip(CASES, zip(*lines, strict=True), strict=True)}


def alike(both: list[dict[str, Any]], *fields: str) -> dict[str, Any]:
    """The first rank's, after a look whether the other one's ``fields`` are the same."""
    assert [both[0][field] for field in fields] == [both[1][field] for field in fields]
    return both[0]


def test_an_update_that_all_ranks_take_is_taken(said: dict[tuple[str, int], list[dict[str, Any]]]) -> None:
    first = alike(said["tensor", -1], "success", "held", "new", "again", "freed")
    assert (first["success"], first["held"], first["new"]) == (True, None, True)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (("busy", 1), "Rank 1: Requests are running"),
        (("group", 0), "Rank 0: There is no group"),
        (("group", 1), "Rank 1: There is no group"),
    ],
)
def test_a_refusal_of_one_rank_keeps_all_from_changing_anything(
    said: dict[tuple[str, int], list[dict[str, Any]]], case: tuple[str, int], words: str
) -> None:
    first = alike(said[case], "success", "message", "held", "new")
    assert (first["success"], first["held"], first["new"]) == (False, None, False)
    assert first["message"].startswith(words)
    assert first["message"].endswith("Nothing has been changed.")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (("tensor", 0), "cut off on rank 0 (AssertionError"),
        (("tensor", 1), "cut off on rank 1 (AssertionError"),
        (("distributed", 1), "cut off on rank 1 (Failed to update parameter online: no memory."),
        (("disk", 0), "cut off on rank 0 (Failed to get weights iterator"),
        (("disk", 1), "cut off on rank 1 (Failed to get weights iterator"),
    ],
)
def test_what_fails_on_one_rank_holds_all_until_an_update_succeeds_everywhere(
    said: dict[tuple[str, int], list[dict[str, Any]]], case: tuple[str, int], words: str
) -> None:
    first = alike(said[case], "success", "message", "held")
    assert not first["success"]
    assert first["held"] == first["message"]
    assert words in first["message"]
    if case[0] != "distributed":  # there the rank's loading itself is broken for good, but not that of tensors
        assert alike(said[case], "again", "freed")["freed"]


def test_a_refusal_of_sglangs_own_on_all_ranks_holds_none(said: dict[tuple[str, int], list[dict[str, Any]]]) -> None:
    first = alike(said["disk", 2], "success", "held", "new")
    assert (first["success"], first["held"], first["new"]) == (False, None, False)


def test_weights_that_moved_on_one_rank_end_the_service_of_all(said: dict[tuple[str, int], list[dict[str, Any]]]) -> None:
    first = alike(said["moved", 1], "success", "message", "held", "again", "freed")
    assert "read them on rank 1 (1, among them lm_head.weight)" in first["message"]
    assert (first["held"], first["again"], first["freed"]) == (first["message"], False, False)
