"""Verdicts on configuration drift: the cause in words, and never a mismatch from something that was not read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.drift import DriftKind, Severity, TruthRow, Verdict, drift_items, truth_table
from dflash_console.evidence.engine_log import StartLog
from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.process import ProcessEvidence
from dflash_console.evidence.reading import Known
from dflash_console.evidence.server import ServerInfo, parse_server_info
from dflash_console.hosts.service import ConfigSource, RunState, ServiceConfig, ServiceState
from dflash_console.knobs import KNOBS, TRUTH_KNOBS, Source
from dflash_console.state import Aged, HostState
from engine_launch.spec.drafter_config import DrafterConfig, parse_drafter_config

COMMAND = (
    *("python", "-m", "engine_launch", "serve", "--engine", "embedded", "--speculative-algorithm", "DDTREE"),
    *("--speculative-ddtree-budget", "8", "--speculative-ddtree-topk", "4", "--port", "30000"),
)
STOCK = ("python", "-m", "sglang.launch_server", "--model-path", "/w/t", "--speculative-algorithm", "DFLASH")
READY = "The server is fired up and ready to roll!"
DRAFTER = json.dumps(
    {
        "architectures": ["DFlashDraftModel"],
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_hidden_layers": 6,
        "vocab_size": 100,
        "block_size": 8,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "sliding_window": 2048,
        "use_sliding_window": True,
    }
)


TRAINED = parse_drafter_config(DRAFTER)


def confirmation(algorithm: str = "DDTREE", budget: int = 8, window: object = None, layers: object = 2048, block: int = 8) -> str:
    return (
        f"Initialized {algorithm} draft runner. attention_backend=torch_native, model=DFlashDraftModel, block_size={block}, "
        f"tree_budget={budget}, tree_topk=4, layers_window={layers}, draft_window_size={window}, "
        f"compact_cache={window is not None}"
    )


def hot(name: str, old: object, new: object) -> str:
    return f"Hot change applied. {name}: {old} -> {new} (from /set_internal_state)"


@dataclass(frozen=True)
class Host:
    """What a test's host has; ``None`` = that source was not read."""

    written: Sequence[str] | None = COMMAND
    loaded: Sequence[str] | None = COMMAND
    process: Sequence[str] | None = COMMAND
    log: Sequence[str] | None = (confirmation(), READY)
    server: ServerInfo | None = None
    drafter: DrafterConfig | None = TRAINED
    state: RunState = RunState.RUNNING
    started: float = 2000.0
    edited: float = 1000.0
    report_after: int = 0
    """Lines of the log that had been read when the server was asked."""

    def snapshot(self) -> HostState:
        config = None
        if self.written is not None:
            source = ConfigSource("/etc/systemd/system/sgl.service", "", self.edited)
            loaded = tuple(self.loaded) if self.loaded is not None else None
            config = Aged(ServiceConfig((source,), tuple(self.written), loaded), 0.0)
        return HostState(
            host="h",
            unit="u",
            service=Aged(ServiceState("u", self.state, "ab", 7, started_at=self.started), 0.0),
            config=config,
            process=Aged(ProcessEvidence(7, tuple(self.process)), 0.0) if self.process is not None else None,
            server=Aged(self.server, 0.0) if self.server is not None else None,
            report_after=self.report_after,
            log=Aged(StartLog().add_all(LogLine(line) for line in self.log), 0.0) if self.log is not None else None,
            drafter=Aged(self.drafter, 0.0) if self.drafter is not None else None,
        )

    def without(self, missing: set[str]) -> Host:
        """The same host with some sources not read."""
        return replace(
            self,
            written=None if "written" in missing else self.written,
            loaded=None if "loaded" in missing else self.loaded,
            process=None if "process" in missing else self.process,
            log=None if "log" in missing else self.log,
            server=None if "server" in missing else self.server,
            drafter=None if "drafter" in missing else self.drafter,
        )

    def row(self, knob: str) -> TruthRow:
        row = truth_table(self.snapshot()).row(knob)
        assert row is not None, knob
        return row


def with_flags(command: Sequence[str], *words: str) -> tuple[str, ...]:
    return (*command, *words)


def reported(**now: object) -> ServerInfo:
    """Our engine's report after a start with budget 8."""
    started: dict[str, object] = {
        "algorithm": "DDTREE",
        "speculation": True,
        "block_size": 8,
        "speculative_ddtree_budget": 8,
        "speculative_ddtree_topk": 4,
        "speculative_draft_window_size": None,
        "layers_window": 2048,
        "compact_cache": False,
    }
    return parse_server_info(
        json.dumps({"startup_settings": started, "internal_states": [{**started, **now}], "engine": "embedded", "version": "x"})
    )


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
    assert (row.verdict, row.kind, row.message) == (Verdict.DRIFT, DriftKind.FOLLOWS, "follows from draft_window")
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
    assert Host().row("layers_window").readings[Source.TRAINED].text == "5 of 6 layers sliding, 2048"
    off = Host(log=(confirmation(layers=None), READY)).row("layers_window")
    assert (off.verdict, off.kind) == (Verdict.DRIFT, DriftKind.OTHER_VALUE)
    unknown = Host(log=(confirmation(layers=None), READY), drafter=None).row("layers_window")
    assert unknown.verdict is not Verdict.DRIFT


@pytest.mark.parametrize(
    ("version", "words"), [("0.5.17", "reads layer_types of the drafter itself"), ("0.5.9", "the only lever")]
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


WINDOWS = st.sampled_from([None, 8, 512, 2048])
BUDGETS = st.sampled_from([1, 8, 16])


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    def command() -> tuple[str, ...]:
        window = draw(WINDOWS)
        flags = () if window is None else ("--speculative-draft-window-size", str(window))
        return (*COMMAND[:8], "--speculative-ddtree-budget", str(draw(BUDGETS)), *flags)

    changes = draw(
        st.lists(
            st.sampled_from([hot("speculative_ddtree_budget", 8, 16), hot("speculative_draft_window_size", 0, 512)]), max_size=2
        )
    )
    info = reported(
        speculative_ddtree_budget=draw(BUDGETS), speculative_draft_window_size=draw(WINDOWS), layers_window=draw(WINDOWS)
    )
    return Host(
        written=command(),
        loaded=command(),
        process=command(),
        log=(confirmation(budget=draw(BUDGETS), window=draw(WINDOWS), layers=draw(WINDOWS)), READY, *changes),
        server=draw(st.sampled_from([info, None])),
        state=draw(st.sampled_from(list(RunState))),
    )


PARTS = ("written", "loaded", "process", "log", "server", "drafter")


@given(hosts(), st.sets(st.sampled_from(PARTS)))
def test_a_source_that_was_not_read_never_makes_a_mismatch(host: Host, missing: set[str]) -> None:
    less = host.without(missing)
    whole = truth_table(host.snapshot())
    before = {row.knob for row in drift_items(whole)}
    in_effect = {row.knob: row.now.value for row in whole.rows}
    for row in drift_items(truth_table(less.snapshot())):
        known = [reading for reading in row.readings.values() if reading.known is not Known.UNKNOWN]
        assert len(known) >= 2, "a mismatch needs two sources that were read"
        # Without its best witness a weaker one speaks for a setting: the log of a change that the report has overtaken.
        another_witness = row.now.value is not None and row.now.value != in_effect.get(row.knob)
        assert row.knob in before or another_witness or row.knob == "compact_cache", "nothing drifts because less is known"


@given(st.sets(st.sampled_from(PARTS), min_size=5))
def test_one_source_alone_never_drifts(missing: set[str]) -> None:
    host = Host(server=reported()).without(missing)
    assert drift_items(truth_table(host.snapshot())) == ()


@given(BUDGETS, WINDOWS)
def test_the_same_values_everywhere_are_in_order(budget: int, window: int | None) -> None:
    flags = () if window is None else ("--speculative-draft-window-size", str(window))
    command = (*COMMAND[:8], "--speculative-ddtree-budget", str(budget), *flags)
    info = reported(speculative_ddtree_budget=budget, speculative_draft_window_size=window, compact_cache=window is not None)
    # The report's start values are those of the same start.
    info = replace(
        info,
        startup=MappingProxyType({**info.startup, "speculative_ddtree_budget": budget, "speculative_draft_window_size": window}),
    )
    table = truth_table(Host(command, command, command, (confirmation(budget=budget, window=window), READY), info).snapshot())
    assert drift_items(table) == ()
    assert {row.verdict for row in table.rows} <= {Verdict.OK, Verdict.NOTE}


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
