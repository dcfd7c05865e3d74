"""The log of a real SGLang with the DDTREE plugin proves its settings, its hot changes and a refused one."""

from __future__ import annotations

import pytest

from dflash_console.evidence.engine_log import compact_cache_reading, log_reading
from dflash_console.evidence.log_events import WarningKind
from dflash_console.evidence.start_log import Phase, StartLog
from dflash_console.knobs import KNOBS, OFF

from .support import CAPTURES, fold, stored_lines

LINES = stored_lines(CAPTURES / "ddtree.log")
STARTED = next(number for number, line in enumerate(LINES, 1) if "fired up and ready" in line)


@pytest.fixture(scope="module")
def start() -> StartLog:
    return fold(LINES[:STARTED])


def test_the_start_goes_through_every_phase(start: StartLog) -> None:
    marks = sorted(start.phases.values(), key=lambda mark: mark.number)
    assert {mark.phase for mark in marks} == set(Phase)
    assert start.ready
    assert not start.errors


@pytest.mark.parametrize(
    ("knob", "value"),
    [
        ("algorithm", "DDTREE"),
        ("tree_budget", 16),
        ("tree_topk", 4),
        ("block_size", 8),
        ("layers_window", 512),
        ("draft_window", OFF),
        ("max_running_requests", 32),
    ],
)
def test_the_confirmation_line_proves_each_setting(start: StartLog, knob: str, value: object) -> None:
    assert log_reading(start, KNOBS[knob]).value == value


def test_the_compact_cache_is_off_and_the_draft_pool_is_as_wide_as_the_targets(start: StartLog) -> None:
    assert compact_cache_reading(start, KNOBS["draft_window"]).value is False
    assert start.draft_kv is not None
    assert (start.draft_kv.tokens, start.draft_kv.gigabytes) == (150000, 0.42)


def test_hot_changes_are_in_effect_after_the_start() -> None:
    whole = fold(LINES)
    assert log_reading(whole, KNOBS["tree_budget"]).value == 1
    assert log_reading(whole, KNOBS["speculation"]).value is True


def test_a_change_that_the_server_refused_is_told() -> None:
    refused = [remark for remark in fold(LINES).warnings if remark.kind is WarningKind.HOT_REFUSED]
    assert len(refused) == 1
    assert "1 to 32 nodes are possible on this server" in refused[0].text
