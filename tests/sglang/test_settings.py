"""Settings that change while the server runs, and those that a request brings."""

from __future__ import annotations

import pytest

from engine_launch.sglang_plugin import settings
from engine_launch.sglang_plugin.options import Options
from engine_launch.sglang_plugin.settings import Settings

LIMITS = Options(budget=16, max_budget=32).resolve(8)
NOW = Settings(16, 4, 0)


def test_each_key_changes_its_own_setting() -> None:
    assert settings.change(NOW, LIMITS, "speculative_ddtree_budget", 32) == Settings(32, 4, 0)
    assert settings.change(NOW, LIMITS, "speculative_ddtree_topk", 8.0) == Settings(16, 8, 0)
    assert settings.change(NOW, LIMITS, "speculative_draft_window_size", 512) == Settings(16, 4, 512)
    assert settings.change(NOW, LIMITS, "speculation", 0) == Settings(16, 4, 0, False)
    assert set(NOW.as_reported()) == set(settings.FIELDS)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("speculative_ddtree_budget", 33, "1 to 32 nodes"),
        ("speculative_ddtree_budget", 0, "the tree budget is 0"),
        ("speculative_ddtree_budget", 2.5, "not a whole number"),
        ("speculative_ddtree_budget", float("nan"), "not a whole number"),
        ("speculative_ddtree_budget", 1e308, "1e\\+308 is out of all bounds"),
        ("speculative_ddtree_topk", 9, "1 to 8"),
        ("speculative_draft_window_size", 7, "at least the block size of 8"),
        ("speculative_draft_window_size", -1, "at least the block size of 8"),
        ("speculation", 2, "speculation is 0 or 1"),
    ],
)
def test_a_value_out_of_bounds_is_refused_in_words(name: str, value: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        settings.change(NOW, LIMITS, name, value)


def test_with_a_ring_the_window_may_shrink_and_come_back_but_not_outgrow_it() -> None:
    limits = Options(draft_pool="ring").resolve(8, 512)
    assert settings.change(NOW, limits, "speculative_draft_window_size", 64).window == 64
    assert settings.change(NOW, limits, "speculative_draft_window_size", 512).window == 512
    for refused in (0, 7, 513):
        with pytest.raises(ValueError, match=f"the draft window is {refused}; .* 8 to 512 tokens"):
            settings.change(NOW, limits, "speculative_draft_window_size", refused)


@pytest.mark.parametrize(
    ("custom", "expected"),
    [
        (None, (16, 4)),
        ({"something": "else", 7: "seven"}, (16, 4)),
        ({"ddtree_budget": 2}, (2, 4)),
        ({"ddtree_topk": 1, "ddtree_budget": None}, (16, 1)),
        ({"speculative": False, "ddtree_budget": 8}, (0, 4)),
    ],
)
def test_a_request_may_bring_its_own(custom: dict[object, object] | None, expected: tuple[int, int]) -> None:
    assert settings.own(custom, NOW, LIMITS) == expected
    assert settings.request_refusal(custom, LIMITS) == ""


def test_a_request_may_speculate_while_the_server_does_not() -> None:
    off = Settings(16, 4, 0, False)
    assert settings.own(None, off, LIMITS) == (0, 4)
    assert settings.own({"speculative": True}, off, LIMITS) == (16, 4)


@pytest.mark.parametrize(
    ("custom", "words"),
    [
        ({"ddtree_budget": 33}, "1 to 32 nodes"),
        ({"ddtree_budget": True}, "whole number"),
        ({"ddtree_topk": "4"}, "whole number"),
        ({"speculative": "yes"}, "true or false"),
        ({"ddtree_budgets": 4}, "ddtree_budgets is not known; DDTREE reads ddtree_budget, ddtree_topk, speculative"),
        ({"speculation": False}, "speculation is not known"),
        ({"speculative_ddtree_topk": 2}, "speculative_ddtree_topk is not known"),
        ("ddtree_budget", "an object, not str"),
        ([], "an object, not list"),
        (True, "an object, not bool"),
    ],
)
def test_a_requests_bad_value_is_refused_in_words(custom: object, words: str) -> None:
    assert words in settings.request_refusal(custom, LIMITS)
