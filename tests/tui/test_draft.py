"""The change being put together: steps, toggles, and edits that take themselves back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.knobs import KNOBS, OFF, Value
from dflash_console.tui.draft import DraftChange, step, toggle_window, words

BUDGET, WINDOW = KNOBS["tree_budget"], KNOBS["draft_window"]


@pytest.mark.parametrize(
    ("now", "direction", "then"),
    [(8, 1, 12), (8, -1, 7), (9, 1, 12), (9, -1, 8), (64, 1, None), (1, -1, None), ("auto", 1, 1), (None, 1, 1)],
)
def test_the_budget_steps_along_its_ladder(now: Value | None, direction: int, then: Value | None) -> None:
    assert step(BUDGET, now, direction) == then


def test_the_window_steps_down_to_off_and_up_from_it() -> None:
    assert step(WINDOW, 512, -1) == OFF
    assert step(WINDOW, OFF, 1) == 512
    assert step(WINDOW, OFF, -1) is None


def test_the_trained_window_is_a_rung_of_its_own() -> None:
    assert step(WINDOW, 512, 1, (768,)) == 768
    assert step(WINDOW, 768, 1, (768,)) == 1024


@given(st.integers(1, 1024), st.sampled_from([1, -1]))
def test_a_step_always_moves_in_its_direction(now: int, direction: int) -> None:
    then = step(BUDGET, now, direction)
    assert then is None or (isinstance(then, int) and (then - now) * direction > 0)


def test_w_switches_off_and_back_to_the_size_it_had() -> None:
    assert toggle_window(1024, None, 512, WINDOW) == OFF
    assert toggle_window(OFF, 1024, 512, WINDOW) == 1024


def test_w_switches_on_with_the_trained_size_when_none_is_remembered() -> None:
    assert toggle_window(OFF, None, 512, WINDOW) == 512
    assert toggle_window(None, None, None, WINDOW) == 512


def test_going_back_to_the_present_value_takes_the_edit_away() -> None:
    change = DraftChange().with_value("tree_budget", 16, 8)
    assert change.values == {"tree_budget": 16}
    assert not change.with_value("tree_budget", 8, 8)


def test_a_change_is_said_in_words() -> None:
    change = DraftChange({"tree_budget": 16, "draft_window": OFF})
    assert words(change, {"tree_budget": 8, "draft_window": 512}) == "tree budget 8 → 16 · compact draft cache 512 → off"
