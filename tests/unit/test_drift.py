"""Verdicts on configuration drift: the cause in words, and what to press."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dflash_console.drift import DriftKind, Severity, Verdict, drift_items, truth_table
from dflash_console.evidence.reading import Known
from dflash_console.evidence.server import parse_server_info
from dflash_console.hosts.service import RunState
from dflash_console.knobs import KNOBS, TRUTH_KNOBS, Source
from dflash_console.state import HostState

from .drift_host import COMMAND, READY, STOCK, Host, confirmation, hot, reported, with_flags


def test_when_every_source_agrees_every_row_is_in_order() -> None:
    table = truth_table(Host(server=reported()).snapshot())
    assert [row.knob for row in table.rows] == [
        *("algorithm", "draft_window", "compact_cache", "layers_window", "tree_budget", "tree_topk", "block_size", "drafter")
    ]
    assert {row.verdict for row in table.rows} == {Verdict.OK}
    assert drift_items(table) == ()


def test_a_process_that_is_older_than_the_unit_file_is_told_by_how_much() -> None:
    window = with_flags(COMMAND, "--speculative-draft-window-size", "2048")
    row = Host(written=window, loaded=window, started=1000.0, edited=1000.0 + 41 * 60).row("draft_window")
    assert (row.verdict, row.kind, row.key) == (Verdict.DRIFT, DriftKind.PROCESS_OLDER, "r")
    assert "older than the unit file, by 41 min: no restart happened since it was written" in row.message
    assert row.severity is Severity.ERROR
    assert [row.readings[source].text for source in (Source.UNIT, Source.LOADED, Source.LOG)] == ["2048", "2048", "off"]


def test_the_compact_cache_follows_the_window_it_belongs_to() -> None:
    window = with_flags(COMMAND, "--speculative-draft-window-size", "2048")
    row = Host(written=window, loaded=window).row("compact_cache")
    assert (row.verdict, row.kind, row.message) == (Verdict.DRIFT, DriftKind.FOLLOWS, "follows from the row above")
    assert [row.readings[source].value for source in (Source.UNIT, Source.PROCESS, Source.LOG)] == [True, False, False]


def test_a_unit_file_that_is_not_loaded_yet_is_told_apart() -> None:
    budget = tuple("16" if word == "8" else word for word in COMMAND)
    assert "not loaded it yet" in Host(written=budget).row("tree_budget").message
    unseen = Host(written=budget, process=None, log=None).row("tree_budget")
    assert (unseen.verdict, unseen.kind) == (Verdict.DRIFT, DriftKind.NOT_LOADED)


def test_a_restart_that_would_start_something_else_than_what_runs_and_is_written_is_drift() -> None:
    budget = tuple("16" if word == "8" else word for word in COMMAND)
    row = Host(loaded=budget).row("tree_budget")
    assert (row.verdict, row.kind) == (Verdict.DRIFT, DriftKind.NOT_LOADED)
    assert row.message == "the unit file says 8, the manager has loaded 16"


def test_an_engine_that_ignores_a_flag_is_quoted() -> None:
    command = (
        "python",
        "-m",
        "sglang.launch_server",
        "--speculative-algorithm",
        "DDTREE",
        "--speculative-draft-window-size",
        "2048",
    )
    warning = "--speculative-draft-window-size has no effect with speculative_algorithm=DDTREE (honored by DFLASH only)."
    log = (f"[2026-07-12 05:10:44] WARNING: {warning}", "Initialized DDTree worker. block_size=16, tree_budget=24", READY)
    row = Host(command, command, command, log, drafter=None).row("draft_window")
    assert (row.verdict, row.kind) == (Verdict.DRIFT, DriftKind.IGNORED)
    assert warning in row.message
    assert "log line 1" in row.message


def test_another_value_in_effect_names_both_and_the_line() -> None:
    row = Host(log=(confirmation(budget=24), READY)).row("tree_budget")
    assert (row.verdict, row.kind) == (Verdict.DRIFT, DriftKind.OTHER_VALUE)
    assert "8 was asked for, log line 1 says 24" in row.message


def test_a_fork_that_switches_the_tree_on_under_the_name_of_the_chain_does_not_drift() -> None:
    log = ("Initialized DDTree worker. block_size=8, tree_budget=24", READY)
    tree = with_flags(STOCK, "--speculative-dflash-enable-ddtree")
    assert Host(tree, tree, tree, log).row("algorithm").verdict is Verdict.OK
    assert Host(STOCK, STOCK, STOCK, log).row("algorithm").kind is DriftKind.OTHER_VALUE


def test_every_row_has_a_reading_in_every_column() -> None:
    new = with_flags(COMMAND, "--served-model-name", "b")
    for row in truth_table(Host(written=new, server=reported(speculation=False)).snapshot()).rows:
        assert set(row.readings) == set(Source), row.knob


def test_a_missing_key_of_the_confirmation_line_is_not_confirmable_and_no_mismatch() -> None:
    command = with_flags(STOCK, "--speculative-draft-window-size", "2048")
    log = ("Initialized DFLASH draft runner. compact_cache=True, draft_kv_ring=True, block_size=8, ring_size=528", READY)
    row = Host(command, command, command, log, drafter=None).row("draft_window")
    assert (row.verdict, row.kind) == (Verdict.UNCONFIRMED, DriftKind.NOT_CONFIRMABLE)
    assert drift_items(truth_table(Host(command, command, command, log, drafter=None).snapshot())) == ()


def test_a_start_that_has_not_come_so_far_is_unknown() -> None:
    row = Host(log=("[x] Load weight begin. avail mem=1.00 GB",), state=RunState.STARTING).row("tree_budget")
    assert row.verdict is Verdict.UNKNOWN


def test_a_stopped_engine_has_nothing_in_effect_and_no_drift_with_its_past() -> None:
    window = with_flags(COMMAND, "--speculative-draft-window-size", "2048")
    host = Host(written=window, loaded=None, state=RunState.STOPPED)
    assert host.row("draft_window").verdict is Verdict.UNKNOWN
    assert host.row("draft_window").message == "the engine is not running"
    assert drift_items(truth_table(host.snapshot())) == ()


def test_ranks_that_disagree_are_drift() -> None:
    body = {
        "internal_states": [{"speculation": True, "speculative_ddtree_budget": budget} for budget in (8, 16)],
        "version": "0.5.17",
    }
    row = Host(server=parse_server_info(json.dumps(body))).row("tree_budget")
    assert (row.verdict, row.kind) == (Verdict.DRIFT, DriftKind.RANKS_DISAGREE)
    assert "rank 1: 16" in row.message


def test_the_layers_window_as_trained_is_compared_in_tokens() -> None:
    assert Host().row("layers_window").verdict is Verdict.OK
    assert Host().row("layers_window").readings[Source.TRAINED].text == "2048, 5 of 6"
    off = Host(log=(confirmation(layers=None), READY)).row("layers_window")
    assert (off.verdict, off.kind) == (Verdict.DRIFT, DriftKind.OTHER_VALUE)
    unknown = Host(log=(confirmation(layers=None), READY), drafter=None).row("layers_window")
    assert unknown.verdict is not Verdict.DRIFT


@pytest.mark.parametrize(
    ("version", "words"),
    [("0.5.17", "reads layer_types of the drafter itself"), ("0.5.9", "the only lever"), ("0.5.²", "the only lever")],
)
def test_builds_that_do_not_print_the_layers_window_are_explained(version: str, words: str) -> None:
    log = ("Initialized DFLASH draft runner. block_size=8, draft_window_size=None, compact_cache=False", READY)
    info = parse_server_info(json.dumps({"speculative_algorithm": "DFLASH", "version": version, "internal_states": [{}]}))
    row = Host(STOCK, STOCK, STOCK, log, info).row("layers_window")
    assert row.verdict is Verdict.NOTE
    assert words in row.message


def test_a_window_below_the_trained_one_is_a_note() -> None:
    command = with_flags(COMMAND, "--speculative-draft-window-size", "512")
    row = Host(command, command, command, (confirmation(window=512), READY)).row("draft_window")
    assert (row.verdict, row.kind) == (Verdict.NOTE, DriftKind.UNLIKE_TRAINING)
    assert "2048" in row.message


def test_another_block_than_trained_is_a_note() -> None:
    command = with_flags(COMMAND, "--speculative-num-draft-tokens", "16")
    row = Host(command, command, command, (confirmation(block=16), READY)).row("block_size")
    assert (row.verdict, row.kind) == (Verdict.NOTE, DriftKind.UNLIKE_TRAINING)


def test_the_old_spelling_of_the_window_is_a_note() -> None:
    command = with_flags(COMMAND, "--speculative-dflash-draft-window-size", "2048")
    row = Host(command, command, command, (confirmation(window=2048), READY)).row("draft_window")
    assert (row.verdict, row.kind) == (Verdict.NOTE, DriftKind.OLD_SPELLING)


def test_a_flag_that_is_given_twice_is_a_note() -> None:
    command = with_flags(COMMAND, "--speculative-ddtree-topk", "4")
    row = Host(command, command, command).row("tree_topk")
    assert (row.verdict, row.kind) == (Verdict.NOTE, DriftKind.DUPLICATE)


def test_settings_of_the_drafter_are_not_used_by_plain_decoding() -> None:
    plain = ("python", "-m", "sglang.launch_server", "--model-path", "/w/t")
    host = Host(plain, plain, plain, ("server_args=ServerArgs(speculative_algorithm=None)", READY), drafter=None)
    assert host.row("algorithm").now.value == "PLAIN"
    assert {host.row(name).kind for name in ("draft_window", "compact_cache", "tree_budget", "block_size")} == {
        DriftKind.NOT_USED
    }


PLAIN_LOG = (
    "ddtree-launch: warning: --speculative-ddtree-budget has no effect with speculative_algorithm=None (only by DDTREE).",
    "server_args=ServerArgs(speculative_algorithm=None)",
    READY,
)


@pytest.mark.parametrize(
    ("algorithm", "log", "words", "settings"),
    [
        ("NONE", PLAIN_LOG, "not used by PLAIN", ("draft_window", "tree_budget", "tree_topk", "drafter")),
        (
            "DFLASH",
            ("Initialized DFLASH draft runner. block_size=8, draft_window_size=512, compact_cache=True", *PLAIN_LOG[:1], READY),
            "not used by DFLASH, which verifies a chain",
            ("tree_budget", "tree_topk"),
        ),
    ],
)
def test_flags_that_mean_nothing_under_the_algorithm_in_effect_are_no_drift(
    algorithm: str, log: tuple[str, ...], words: str, settings: tuple[str, ...]
) -> None:
    left = with_flags(COMMAND, "--speculative-draft-window-size", "512", "--speculative-algorithm", algorithm)
    edited = with_flags(left, "--speculative-ddtree-budget", "64")
    host = Host(edited, left, left, log, drafter=None)
    for name in settings:
        row = host.row(name)
        assert (row.verdict, row.kind, row.message) == (Verdict.OK, DriftKind.NOT_USED, words), name
    assert drift_items(truth_table(host.snapshot())) == ()


def test_a_tree_that_the_next_start_would_use_counts_although_the_running_engine_has_none() -> None:
    plain = with_flags(COMMAND, "--speculative-algorithm", "NONE")
    edited = with_flags(COMMAND, "--speculative-ddtree-budget", "64")
    host = Host(edited, edited, plain, PLAIN_LOG, drafter=None)
    assert host.row("algorithm").kind is DriftKind.PROCESS_OLDER
    assert host.row("tree_budget").kind is DriftKind.PROCESS_OLDER


def test_a_row_that_follows_from_another_is_not_counted_beside_it() -> None:
    window = with_flags(COMMAND, "--speculative-draft-window-size", "2048")
    host = Host(written=window, loaded=window)
    assert host.row("compact_cache").kind is DriftKind.FOLLOWS
    assert [row.knob for row in drift_items(truth_table(host.snapshot()))] == ["draft_window"]


def test_speculation_that_was_switched_off_is_shown_with_its_key() -> None:
    row = Host(server=reported(speculation=False)).row("speculation")
    assert (row.verdict, row.kind, row.key) == (Verdict.NOTE, DriftKind.SPECULATION_OFF, "s")
    assert truth_table(Host(server=reported()).snapshot()).row("speculation") is None


def test_an_engine_started_without_speculation_is_not_said_to_have_it_switched_off() -> None:
    plain = ("python", "-m", "engine_launch", "serve", "--engine", "embedded")
    info = reported(speculation=False, algorithm="PLAIN")
    host = Host(plain, plain, plain, ("server_args=ServerArgs(speculative_algorithm=None)", READY), server=info, drafter=None)
    assert host.row("algorithm").now.value == "PLAIN"
    assert truth_table(host.snapshot()).row("speculation") is None


def test_any_other_setting_that_drifts_gets_a_row() -> None:
    old = with_flags(COMMAND, "--max-running-requests", "4")
    new = with_flags(COMMAND, "--max-running-requests", "8")
    assert Host(written=new, loaded=new, process=old).row("max_running_requests").kind is DriftKind.PROCESS_OLDER
    assert truth_table(Host().snapshot()).row("max_running_requests") is None


def test_a_cap_of_the_engine_is_another_value_in_effect() -> None:
    command = with_flags(COMMAND, "--max-running-requests", "64")
    log = (confirmation(), "max_total_num_tokens=9, max_running_requests=48, context_len=8192", READY)
    assert "64 was asked for, log line 2 says 48" in Host(command, command, command, log).row("max_running_requests").message


def test_flags_outside_the_catalogue_that_differ_get_rows_and_keys_stay_secret() -> None:
    new = with_flags(COMMAND, "--served-model-name", "b", "--api-key", "sk-new", "--enable-metrics")
    old = with_flags(COMMAND, "--served-model-name", "a", "--api-key", "sk-old")
    table = truth_table(Host(written=new, loaded=new, process=old).snapshot())
    drifted = {row.knob: row for row in drift_items(table)}
    assert set(drifted) == {"flag:--served-model-name", "flag:--api-key", "flag:--enable-metrics"}
    assert "b in the unit file, a in the process" in drifted["flag:--served-model-name"].message
    assert "sk-" not in repr(table)


def test_a_container_hides_the_process_and_that_is_no_drift() -> None:
    shell = ("docker", "run", "img", *COMMAND)
    row = Host(shell, shell, shell).row("tree_budget")
    assert row.readings[Source.PROCESS].known is Known.UNKNOWN
    assert row.verdict is Verdict.OK


def test_worst_items_come_first() -> None:
    window = with_flags(COMMAND, "--speculative-draft-window-size", "2048")
    log = (confirmation(), READY, hot("speculative_ddtree_topk", 4, 6))
    items = drift_items(truth_table(Host(written=window, loaded=window, log=log).snapshot()))
    assert [item.severity for item in items] == sorted((item.severity for item in items), key=lambda severity: -severity.value)
    assert items[-1].kind is DriftKind.HOT_NOT_WRITTEN


def test_an_empty_snapshot_has_every_row_and_no_drift() -> None:
    table = truth_table(HostState("h", "u"))
    assert {*TRUTH_KNOBS, "compact_cache"} == {row.knob for row in table.rows}
    assert all(row.verdict is Verdict.UNKNOWN or row.knob == "drafter" for row in table.rows)
    assert all(knob in KNOBS for knob in TRUTH_KNOBS)


LOW_DECODE = "Decode batch. #running-req: 1, #token: 400, accept len: 1.03, accept rate: 0.13, gen throughput (token/s): 90.0"


def test_a_drafter_that_commits_next_to_nothing_is_a_note_on_the_algorithm_and_no_drift() -> None:
    collapsed = Host(log=(confirmation(), READY, *[LOW_DECODE] * 5), server=reported())
    row = collapsed.row("algorithm")
    assert (row.verdict, row.kind) == (Verdict.NOTE, DriftKind.ACCEPTANCE)
    assert "acceptance collapsed: commit length 1.03 over the newest 5 decode lines" in row.message
    assert drift_items(truth_table(collapsed.snapshot())) == ()
    assert replace(collapsed, log=(confirmation(), READY, *[LOW_DECODE] * 4)).row("algorithm").kind is DriftKind.NONE
    assert replace(collapsed, server=reported(speculation=False)).row("algorithm").kind is DriftKind.NONE
    assert replace(collapsed, state=RunState.STOPPED).row("algorithm").kind is not DriftKind.ACCEPTANCE
