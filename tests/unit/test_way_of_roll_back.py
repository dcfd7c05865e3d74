"""Beside an operation that was cut off, a note says what a roll-back would really do: undo it, finish it, or pass it over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash_console.apply.rollback import way_words
from dflash_console.plan import Finding, Mode, Plan

from .plan_cases import plan, state


def rolling_back(*findings: Finding, takes_up: str = "") -> Plan:
    return replace(plan(state(), {"tree_topk": 2}, Mode.RESTART), findings=findings, takes_up=takes_up)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (rolling_back(Finding.info("takes_up", "undoes what was not finished: apply"), takes_up="op"), "undoes it"),
        (rolling_back(Finding.info("takes_up", "finishes what was not finished: rollback"), takes_up="op"), "finishes it"),
        (
            rolling_back(Finding.info("goes_back_to", "goes back to the configuration that was confirmed on Monday")),
            "does not undo it and goes back to the configuration that was confirmed on Monday",
        ),
        (None, "has nothing to undo, and nowhere earlier to go"),
    ],
)
def test_the_way_is_that_of_the_plan(made: Plan | None, words: str) -> None:
    assert way_words(made) == words


def test_a_way_that_is_blocked_says_by_what() -> None:
    busy = Finding.error("port_busy", "port 30000 is held by pid 7")
    back = Finding.info("goes_back_to", "goes back to the configuration before the last change")
    words = way_words(rolling_back(busy, back))
    assert words.endswith(
        "goes back to the configuration before the last change, which is blocked now: port 30000 is held by pid 7"
    )
