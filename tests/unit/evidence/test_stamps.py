"""Lines of now are told from lines that a wrapper shows again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.stamps import written_earlier
from dflash_console.evidence.start_log import StartLog

NOW = datetime(2026, 11, 29, 22, 40, 7, 300_000, tzinfo=UTC).timestamp()
QUARTERS = st.integers(-12 * 4, 14 * 4)


def stamp(at: float, quarters: int, *, dated: bool = True) -> str:
    zone = timezone(timedelta(minutes=15 * quarters))
    return datetime.fromtimestamp(at, zone).strftime("%Y-%m-%d %H:%M:%S" if dated else "%H:%M:%S")


@given(QUARTERS, st.floats(-3, 80), st.booleans(), st.floats(0, 2e9))
def test_a_line_of_now_is_one_in_every_zone(quarters: int, delay: float, dated: bool, at: float) -> None:
    assert not written_earlier(stamp(at - delay, quarters, dated=dated), at)


@given(QUARTERS, st.integers(0, 100), st.floats(120, 880), st.booleans())
def test_a_line_from_before_is_found_out(quarters: int, steps: int, rest: float, dated: bool) -> None:
    assert written_earlier(stamp(NOW - steps * 900 - rest, quarters, dated=dated), NOW)


@pytest.mark.parametrize("days", [2, 30, 365])
def test_a_line_of_another_day_is_found_out_at_whatever_hour(days: int) -> None:
    assert written_earlier(stamp(NOW - days * 86_400, 0), NOW)


@pytest.mark.parametrize(("text", "at"), [("", NOW), ("noon", NOW), ("2026-13-41 25:61:00", NOW), ("02:00:11", None)])
def test_what_cannot_be_told_is_not_said(text: str, at: float | None) -> None:
    assert not written_earlier(text, at)


def test_an_older_starts_log_shown_again_confirms_nothing_and_hides_nothing() -> None:
    runner = "Initialized DDTREE draft runner. tree_budget={}, draft_window_size={}, compact_cache=True"
    old, now = stamp(NOW - 3_840, 4), stamp(NOW, 4)
    shown = [
        f"[{old} TP0] " + runner.format(16, 512),
        f"[{old}] ERROR: out of memory",
        f"[{old}] The server is fired up and ready to roll!",
    ]
    log = StartLog().add_all(LogLine(text, at=NOW) for text in shown)
    assert (log.confirmation, log.ready, log.errors) == (None, False, ())
    log = log.add(LogLine(f"[{now} TP0] " + runner.format(8, "None"), at=NOW))
    assert log.values["tree_budget"].text == "8"
    assert log.confirmed_line == 4


@pytest.mark.parametrize("at", [1e12, 1e17, -1e12, float("inf"), float("nan")])
def test_a_clock_that_is_out_of_any_calendar_tells_nothing(at: float) -> None:
    assert not written_earlier("2026-07-11 02:00:11", at)
    assert not written_earlier("02:00:11", at)
