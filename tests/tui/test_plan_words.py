"""A plan as text."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from dflash_console.knobs import Value
from dflash_console.plan import Mode, Plan
from dflash_console.plan.maker import unified_diff
from dflash_console.tui.plan_words import diff_text

from ..unit.plan_cases import plan, state


def plan_with(*diffs: str) -> Plan:
    return cast("Plan", SimpleNamespace(diff="\n".join(diffs)))


def test_each_file_of_a_diff_stands_under_its_path_once() -> None:
    diffs = (unified_diff("/etc/a.conf", "one\n", "two\n"), unified_diff("/etc/b.env", "x\n", "y\n"))
    shown = diff_text(plan_with(*diffs), {}).plain
    assert shown.split("\n")[:4] == ["/etc/a.conf", "@@ -1 +1 @@", "-one", "+two"]
    assert shown.count("/etc/a.conf") == shown.count("/etc/b.env") == 1


def test_lines_that_look_like_a_heading_are_shown_as_what_they_are() -> None:
    shown = diff_text(plan_with(unified_diff("/etc/a.conf", "-- --old\nrest\n", "++ new\nrest\n")), {}).plain
    assert "--- --old" in shown
    assert "+++ new" in shown


def test_where_no_file_and_no_setting_changes_nothing_is_said_to_be_taken_by_the_engine() -> None:
    unchanged = cast("Plan", SimpleNamespace(diff="", mode=Mode.HOT, hot_values={}, hot_numbers={}))
    assert diff_text(unchanged, {}).plain == "No file changes.\n"


def test_a_number_that_stands_for_a_word_is_shown_with_it() -> None:
    wanted: dict[str, Value | None] = {"tree_budget": "auto", "draft_window": "off", "speculation": False, "tree_topk": 6}
    made = plan(state(now={"speculative_draft_window_size": 512}), wanted, Mode.HOT)
    assert diff_text(made, {}).plain.splitlines()[1:] == [
        "+ speculative_ddtree_budget = 0 (auto)",
        "+ speculative_draft_window_size = 0 (off)",
        "+ speculation = 0 (off)",
        "+ speculative_ddtree_topk = 6",
    ]
