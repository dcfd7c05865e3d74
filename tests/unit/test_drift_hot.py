"""Drift of what was changed while the engine ran, and engines whose log and report contradict each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash_console.drift import DriftKind, Severity, Verdict
from dflash_console.evidence.server import parse_server_info

from .drift_host import COMMAND, READY, Host, confirmation, hot, reported


def test_a_hot_change_that_is_not_written_down_is_drift_of_its_own_kind_with_a_key() -> None:
    log = (confirmation(), READY, hot("speculative_ddtree_budget", 8, 16))
    row = Host(log=log, server=reported(speculative_ddtree_budget=16)).row("tree_budget")
    assert (row.verdict, row.kind, row.key) == (Verdict.DRIFT, DriftKind.HOT_NOT_WRITTEN, "a")
    assert "16 now, 8 in the unit file" in row.message
    assert row.severity is Severity.WARNING
    assert row.now.value == 16


def test_a_hot_change_is_seen_without_its_log_line_too() -> None:
    row = Host(server=reported(speculative_ddtree_budget=16)).row("tree_budget")
    assert row.kind is DriftKind.HOT_NOT_WRITTEN
    assert row.now.value == 16


def test_a_report_from_before_the_hot_change_does_not_contradict_the_log() -> None:
    log = (confirmation(), READY, hot("speculative_ddtree_budget", 8, 16))
    assert Host(log=log, server=reported()).row("tree_budget").now.value == 16


@pytest.mark.parametrize("report", [8, 12, 16])
def test_an_engine_whose_newest_report_and_log_say_two_values_contradicts_itself_also_when_one_is_the_files(report: int) -> None:
    log = (confirmation(), READY, hot("speculative_ddtree_budget", 8, 24))
    row = Host(log=log, server=reported(speculative_ddtree_budget=report), report_after=3).row("tree_budget")
    assert (row.verdict, row.kind, row.severity) == (Verdict.DRIFT, DriftKind.CONTRADICTION, Severity.ERROR)
    assert f"log line 3 says 24, /server_info internal_states.speculative_ddtree_budget says {report}" in row.message
    assert row.key == "r"


def test_a_report_that_no_change_since_explains_contradicts_the_log_whenever_it_was_asked_for() -> None:
    log = (confirmation(), READY, hot("speculative_ddtree_budget", 8, 16), hot("speculative_ddtree_budget", 16, 24))
    kinds = [Host(log=log, server=reported(speculative_ddtree_budget=n)).row("tree_budget").kind for n in (8, 16, 24, 12)]
    assert kinds == [DriftKind.HOT_NOT_WRITTEN] * 3 + [DriftKind.CONTRADICTION]
    later = [
        replace(Host(log=log), server=reported(speculative_ddtree_budget=n), report_after=3).row("tree_budget") for n in (8, 16)
    ]
    assert [row.kind for row in later] == [DriftKind.CONTRADICTION, DriftKind.HOT_NOT_WRITTEN]


def test_a_refused_change_contradicts_nothing() -> None:
    refused = "Hot change refused. speculative_ddtree_budget: 8 -> 24 (from /set_internal_state): no graph of that width"
    assert Host(log=(confirmation(), READY, refused), server=reported(), report_after=3).row("tree_budget").verdict is Verdict.OK


def test_an_engine_that_reports_another_start_than_its_confirmation_line_contradicts_itself() -> None:
    row = Host(log=(confirmation(budget=24), READY), server=reported()).row("tree_budget")
    assert (row.verdict, row.kind) == (Verdict.DRIFT, DriftKind.CONTRADICTION)
    assert "log line 1 says 24, /server_info startup_settings.speculative_ddtree_budget says 8" in row.message


def test_speculation_that_the_log_switched_off_and_the_report_has_on_is_a_contradiction() -> None:
    log = (confirmation(), READY, hot("speculation", 1, 0))
    row = Host(log=log, server=reported(), report_after=3).row("speculation")
    assert (row.verdict, row.kind) == (Verdict.DRIFT, DriftKind.CONTRADICTION)
    assert Host(log=log, server=reported(speculation=False), report_after=3).row("speculation").kind is DriftKind.SPECULATION_OFF


def test_a_window_that_log_and_report_disagree_on_takes_the_compact_cache_with_it() -> None:
    log = (confirmation(), READY, hot("speculative_draft_window_size", 0, 512))
    host = Host(log=log, server=reported(), report_after=3)
    assert host.row("draft_window").kind is DriftKind.CONTRADICTION
    assert host.row("compact_cache").kind is DriftKind.FOLLOWS


def test_a_hot_change_back_to_what_is_written_is_in_order() -> None:
    log = (confirmation(), hot("speculative_ddtree_budget", 8, 16), hot("speculative_ddtree_budget", 16, 8), READY)
    assert Host(log=log, server=reported()).row("tree_budget").verdict is Verdict.OK


def test_a_hot_change_of_a_setting_that_the_file_leaves_open_is_drift_against_the_start() -> None:
    open_budget = tuple(word for word in COMMAND if word not in ("--speculative-ddtree-budget", "8"))
    host = Host(open_budget, open_budget, open_budget, server=reported(speculative_ddtree_budget=16))
    assert "16 now, 8 at start" in host.row("tree_budget").message


def test_a_hot_window_makes_window_and_compact_cache_drift_together() -> None:
    log = (confirmation(), READY, hot("speculative_draft_window_size", 0, 512))
    host = Host(log=log, server=reported(speculative_draft_window_size=512, compact_cache=True))
    assert host.row("draft_window").kind is DriftKind.HOT_NOT_WRITTEN
    assert host.row("compact_cache").kind is DriftKind.FOLLOWS
    assert host.row("compact_cache").now.value is True


@pytest.mark.parametrize(("report_after", "kind"), [(2, DriftKind.CONTRADICTION), (0, DriftKind.NONE)])
def test_a_server_without_a_drafter_contradicts_the_line_of_one_that_had_it(report_after: int, kind: DriftKind) -> None:
    # A wrapper went on without a drafter; a report from before the line is an earlier engine's.
    plain = parse_server_info('{"model_path": "/w/t", "speculative_algorithm": null, "internal_states": [{}]}')
    script = ("bash", "/srv/start.sh")
    host = Host(script, script, script, (confirmation("DFLASH"), READY), plain, report_after=report_after)
    row = host.row("algorithm")
    assert row.kind is kind
    if kind is DriftKind.CONTRADICTION:
        assert "log line 1 says DFLASH, /server_info speculative_algorithm says PLAIN" in row.message
