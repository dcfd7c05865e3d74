"""Settings that a script takes from the unit's variables: where they may come from is said, and nothing is guessed or edited."""

from __future__ import annotations

import pytest

from dflash_console.drift import truth_table
from dflash_console.effective import configured
from dflash_console.evidence.reading import Known
from dflash_console.knobs import KNOBS, Source
from dflash_console.tui.draft import DraftChange
from dflash_console.tui.knob_rows import knob_rows

from .plan_cases import BASE, state

SCRIPT = ("/srv/llm/serve.sh",)
VARIABLES = {
    "PORT": "30000", "DRAFT_WINDOW": "2048", "TREE_BUDGET": "32", "CONTEXT_WINDOW": "8192", "TOP_K": "", "BLOCK_SIZE": "8",
    "WINDOW_KEY": "sk-1234567",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "named"),
    [("tree_budget", "the unit's TREE_BUDGET=32"), ("block_size", "the unit's BLOCK_SIZE=8"), ("tree_topk", ""), ("drafter", "")],
)
def test_where_a_script_may_take_a_setting_from_is_said_beside_why_it_is_not_known(name: str, named: str) -> None:
    reading = configured(state(SCRIPT, environment=VARIABLES), name)
    assert (reading.known, reading.value) == (Known.UNKNOWN, None), "a script may do anything with a variable"
    assert "the flags live in /srv/llm/serve.sh" in reading.why
    assert reading.why.endswith(f"; the script may take it from {named} (systemctl edit changes that)") is bool(named)
    assert ("the script may take" in reading.why) is bool(named)


def test_other_windows_are_not_taken_for_the_drafts_and_keys_are_not_shown() -> None:
    why = configured(state(SCRIPT, environment=VARIABLES), "draft_window").why
    assert "DRAFT_WINDOW=2048" in why
    assert "CONTEXT_WINDOW" not in why
    assert "sk-1234567" not in why
    assert "LAYERS_WINDOW=512" in configured(state(SCRIPT, environment={"LAYERS_WINDOW": "512"}), "layers_window").why
    assert "LAYERS" not in configured(state(SCRIPT, environment={"LAYERS_WINDOW": "512"}), "draft_window").why


def test_truth_and_configure_say_it() -> None:
    row = next(row for row in truth_table(state(SCRIPT, environment=VARIABLES)).rows if row.knob == "tree_budget")
    assert "TREE_BUDGET=32 (systemctl edit changes that)" in row.readings[Source.UNIT].why
    stopped = state(SCRIPT, environment=VARIABLES, running=False)
    shown = next(row for row in knob_rows(stopped, DraftChange()) if row.name == "tree_budget")
    assert (shown.now, "TREE_BUDGET=32" in shown.remark) == ("?", True)


def test_where_the_flags_are_words_no_variable_is_named() -> None:
    for name in KNOBS:
        assert "the script may take" not in configured(state(BASE, environment=VARIABLES), name).why
