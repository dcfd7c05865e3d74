"""Plans: the diff is the wanted words and no other, the findings come before anything is changed, the figures are arithmetic."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.apply.revert import backwards
from dflash_console.evidence.command import flag_value
from dflash_console.evidence.engine_log import StartLog
from dflash_console.evidence.file_edits import FileEdit, reverse_edits
from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.metrics import Rates
from dflash_console.evidence.process import ProcessEvidence
from dflash_console.evidence.secrets import MASK
from dflash_console.evidence.server import Dialect, parse_server_info
from dflash_console.hosts.service import ConfigSource, RunState, ServiceConfig, ServiceState
from dflash_console.hosts.unit_file import new_unit_file, parse_unit_file, replace_command
from dflash_console.knobs import KNOBS, OFF, KnobError, Source, Value, find_knob
from dflash_console.plan import Change, Mode, Plan, PlanError, Severity, Survey, make_plan
from dflash_console.proof import Proof, StartEvidence, proof_sources, prove
from dflash_console.state import Aged, HostState
from engine_launch.spec.drafter_config import DrafterConfig, parse_drafter_config
from engine_launch.spec.kv import draft_kv_bytes
from tests.gpu_recordings import gpus

TARGET = "/units/engine/service.toml"
BASE = (
    "python", "-m", "engine_launch", "serve", "--engine", "embedded", "--speculative-algorithm", "DDTREE",
    "--speculative-ddtree-budget", "8", "--speculative-ddtree-topk", "4", "--port", "30000",
)  # fmt: skip
INVOCATION = "a" * 32

DRAFTER_JSON = {
    "architectures": ["DFlashDraftModel"], "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9,
    "num_key_value_heads": 3, "head_dim": 64, "num_hidden_layers": 4, "vocab_size": 49152, "block_size": 8,
    "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "sliding_window": 512, "use_sliding_window": True,
    "num_target_layers": 30, "dflash_config": {"mask_token_id": 16, "target_layer_ids": [1, 10, 19, 27]},
}  # fmt: skip


def drafter() -> DrafterConfig:
    return parse_drafter_config(json.dumps(DRAFTER_JSON))


def settings(**now: object) -> dict[str, object]:
    return {
        "algorithm": "DDTREE", "speculation": True, "block_size": 8, "speculative_ddtree_budget": 8,
        "speculative_ddtree_topk": 4, "speculative_draft_window_size": None, "layers_window": 512, **now,
    }  # fmt: skip


def state(
    command: tuple[str, ...] = BASE,
    *,
    running: bool = True,
    loaded: tuple[str, ...] | None = None,
    now: Mapping[str, object] | None = None,
    foreign: bool = False,
    requests: int = 0,
    lines: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
) -> HostState:
    """A service with this command, running ready with what it was started with unless told otherwise."""
    text = new_unit_file(command, description="test", environment=environment)
    config = ServiceConfig((ConfigSource(TARGET, text, 1.0),), command, loaded or command, environment or {})
    service = ServiceState(
        "engine", RunState.RUNNING if running else RunState.STOPPED, INVOCATION if running else None, 7 if running else None
    )
    found = HostState("here", "engine", embedded=not foreign, service=Aged(service, 0.0), config=Aged(config, 0.0))
    if not running:
        return found
    if foreign:
        body: dict[str, object] = {
            "model_path": "/m", "version": "0.5.17", "speculative_algorithm": "DFLASH", "speculative_draft_window_size": None,
            "internal_states": [{"model_path": "/m", "speculative_draft_window_size": None}],
        }  # fmt: skip
    else:
        start = settings()
        body = {
            "engine": "embedded", "version": "ddtree-embedded 1", "context_length": 8192, "max_running_requests": 8,
            "dtype": "float32", "startup_settings": start, "internal_states": [settings(**(now or {}))],
        }  # fmt: skip
    log = StartLog().add_all(
        LogLine(line, invocation_id=INVOCATION, number=number) for number, line in enumerate(lines or ("hello",), 1)
    )
    return replace(
        found,
        process=Aged(ProcessEvidence(7, loaded or command), 0.0),
        server=Aged(parse_server_info(json.dumps(body)), 0.0),
        log=Aged(log, 0.0),
        rates=Rates(running=requests),
        ready=True,
    )


def plan(
    known: HostState,
    wanted: Mapping[str, Value | None],
    mode: Mode = Mode.AUTO,
    survey: Survey | None = None,
    *,
    persist: bool = False,
) -> Plan:
    def render(command: tuple[str, ...]) -> tuple[FileEdit, ...]:
        assert known.config is not None
        old = known.config.value.sources[0].text
        return (FileEdit(TARGET, old, replace_command(old, command)),)

    return make_plan(known, Change(wanted, mode, persist), survey or Survey(drafter=drafter()), target=TARGET, render=render)


def new_text(made: Plan) -> str:
    """The unit file after the plan."""
    text = made.edits[0].new if made.edits else replace_command(new_unit_file(BASE, description="test"), made.command)
    assert text is not None
    return text


def codes(made: Plan, severity: Severity | None = None) -> set[str]:
    return {finding.code for finding in made.findings if severity in (None, finding.severity)}


def test_the_diff_shows_exactly_the_words_that_change() -> None:
    made = plan(state(), {"tree_budget": 16, "draft_window": 512}, Mode.RESTART)
    changed = [line for line in made.diff.splitlines() if line[:1] in "+-" and not line.startswith(("+++", "---"))]
    assert changed == ['-    "8",', '+    "16",', '+    "--speculative-draft-window-size",', '+    "512",']
    assert made.command == (*BASE[:9], "16", *BASE[10:], "--speculative-draft-window-size", "512")
    assert not made.blocked


@given(st.sampled_from(["tree_budget", "tree_topk", "draft_window", "layers_window", "block_size"]), st.integers(8, 60))
def test_the_new_text_asks_for_the_new_value_and_for_nothing_else_anew(name: str, value: int) -> None:
    made = plan(state(), {name: value}, Mode.RESTART)
    command = parse_unit_file(new_text(made)).command
    assert command == made.command
    assert flag_value(command, KNOBS[name]).value == value
    for other in set(KNOBS) - {name}:
        assert flag_value(command, KNOBS[other]).value == flag_value(BASE, KNOBS[other]).value


def test_a_hot_plan_writes_nothing_and_posts_numbers() -> None:
    made = plan(state(), {"tree_budget": 16, "draft_window": OFF, "speculation": False})
    assert made.mode is Mode.HOT
    assert (made.diff, made.writes) == ("", False)
    assert made.hot_values == {"speculative_ddtree_budget": 16, "speculative_draft_window_size": 0, "speculation": 0}


def test_an_engine_that_was_ready_and_is_silent_is_not_called_loading() -> None:
    for lines, why in (((), "not ready yet"), (("The server is fired up and ready to roll!",), "the engine does not answer")):
        made = plan(replace(state(lines=lines), ready=False), {"tree_budget": 16}, Mode.HOT)
        assert why in next(found.message for found in made.errors if found.code == "hot_not_possible")
    ended = replace(
        state(lines=("The server is fired up and ready to roll!",)), service=state(running=False).service, ready=False
    )
    made = plan(ended, {"tree_budget": 16}, Mode.HOT)
    assert any("is not running" in found.message for found in made.errors if found.code == "hot_not_possible")


def test_a_hot_plan_that_is_to_be_kept_writes_what_has_a_flag() -> None:
    made = plan(state(), {"tree_budget": 16, "speculation": False}, Mode.HOT, persist=True)
    assert made.persist
    assert flag_value(made.command, KNOBS["tree_budget"]).value == 16


@pytest.mark.parametrize(
    ("known", "wanted", "said"),
    [
        (state(running=False), {"tree_budget": 16}, "not running, or not ready"),
        (state(foreign=True), {"draft_window": 512}, "takes it at start only"),
        (state(), {"layers_window": OFF}, "engines read it at start only"),
        (state(), {"tree_budget": None}, "taking a flag away needs a restart"),
    ],
)
def test_what_the_running_engine_will_not_take_blocks_a_hot_plan_with_the_reason(
    known: HostState, wanted: Mapping[str, Value | None], said: str
) -> None:
    made = plan(known, wanted, Mode.HOT)
    assert made.blocked
    assert "hot_not_possible" in codes(made, Severity.ERROR)
    assert said in made.errors[0].message
    assert made.hot_values == {}


def test_a_running_engine_takes_an_automatic_budget_as_the_number_zero() -> None:
    made = plan(state(), {"tree_budget": "auto"}, Mode.HOT)
    assert not made.blocked
    assert made.hot_values == {"speculative_ddtree_budget": 0}


def test_speculation_has_no_flag_so_a_restart_cannot_set_it() -> None:
    assert codes(plan(state(), {"speculation": False}, Mode.RESTART), Severity.ERROR) == {"hot_only"}


def test_a_window_below_the_block_is_an_error_that_names_both_numbers() -> None:
    made = plan(state(), {"draft_window": 4}, Mode.RESTART)
    assert codes(made, Severity.ERROR) == {"window_below_block"}
    assert "4" in made.errors[0].message
    assert "8" in made.errors[0].message


def test_a_line_with_two_engines_warns_that_only_the_first_is_changed() -> None:
    two = ("bash", "-c", f"{shlex.join(BASE)} || {shlex.join(BASE)}")
    made = plan(state(two), {"tree_budget": 9}, Mode.RESTART)
    (found,) = (finding for finding in made.findings if finding.code == "several_engines")
    assert "in 2 places; only the first" in found.message
    assert new_text(made).count("budget 9") == 1
    assert "several_engines" not in codes(plan(state(), {"tree_budget": 9}, Mode.RESTART))


def test_a_budget_below_one_is_an_error() -> None:
    assert "budget_below_1" in codes(plan(state(), {"tree_budget": 0}, Mode.RESTART), Severity.ERROR)


def test_an_unknown_flag_is_refused_with_the_nearest_known_one() -> None:
    made = plan(state(), {"flag:--speculative-ddtree-buget": "9"}, Mode.RESTART)
    assert codes(made, Severity.ERROR) == {"flag_refused"}
    assert "--speculative-ddtree-budget" in made.errors[0].message


def test_a_flag_that_a_foreign_build_does_not_list_is_an_error() -> None:
    command = ("python", "-m", "sglang.launch_server", "--model-path", "/m", "--speculative-algorithm", "DFLASH")
    made = plan(state(command, foreign=True), {"layers_window": OFF}, Mode.RESTART)
    assert codes(made, Severity.ERROR) == {"unknown_flag"}


def test_a_trees_setting_for_a_server_without_a_tree_says_what_to_do() -> None:
    command = ("python", "-m", "sglang.launch_server", "--model-path", "/m", "--speculative-algorithm", "DFLASH")
    made = plan(state(command, foreign=True), {"tree_budget": 9}, Mode.RESTART)
    assert codes(made, Severity.ERROR) == {"unknown_flag"}
    assert "would start with DFLASH" in made.errors[0].message
    assert "plan algorithm=DDTREE" in made.errors[0].message


def test_a_server_that_runs_a_chain_can_be_planned_to_run_a_tree() -> None:
    command = ("python", "-m", "sglang.launch_server", "--model-path", "/m", "--speculative-algorithm", "DFLASH")
    made = plan(state(command, foreign=True), {"algorithm": "DDTREE", "tree_budget": 9}, Mode.RESTART)
    assert "unknown_flag" not in codes(made, Severity.ERROR)
    (found,) = (finding for finding in made.findings if finding.code == "needs_plugin")
    assert "ddtree-launch doctor" in found.message


def window_plan(window: Value, mode: Mode = Mode.RESTART, *, context: str = "8192", known: Survey | None = None) -> Plan:
    """A draft window planned for stock SGLang with requests of up to ``context`` tokens."""
    command = (
        "python", "-m", "sglang.launch_server", "--model-path", "/m", "--speculative-algorithm", "DFLASH",
        "--context-length", context,
    )  # fmt: skip
    pool = "[2026-11-30 11:00:00] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 150000, K size: 1.61 GB, V size: 1.61 GB"
    start = ("Initialized DFLASH draft runner. attention_backend=triton, model=DFlashDraftModel, block_size=8", pool, pool)
    return plan(state(command, foreign=True, lines=start), {"draft_window": window}, mode, known)


def test_a_window_on_sglangs_pool_frees_no_memory_and_says_how_much_stays() -> None:
    (said,) = (finding.message for finding in window_plan(512).findings if finding.code == "memory_not_freed")
    # Keys and values of 7,680 tokens in 4 layers of 3 heads of 64, two bytes each.
    assert f"{7680 * 4 * 2 * 3 * 64 * 2 / 1e6:.0f}" == "24"
    assert said.endswith("its memory is not freed: 24 MB for a request of 8,192 tokens stay allocated")
    (unknown,) = (finding for finding in window_plan(512, known=Survey()).findings if finding.code == "memory_not_freed")
    assert unknown.message.endswith("its memory is not freed")
    assert unknown.severity is Severity.INFO


def test_where_a_window_would_save_nothing_no_word_is_said_of_memory() -> None:
    for made in (window_plan(OFF), window_plan(8192), window_plan(4096, context="2048"), window_plan(512, Mode.HOT)):
        assert "memory_not_freed" not in codes(made)
    assert "hot_not_possible" in codes(window_plan(512, Mode.HOT), Severity.ERROR)


def test_a_flag_that_this_build_ignored_before_is_a_warning_that_quotes_it() -> None:
    line = (
        "[2026-07-12 05:10:44] WARNING: --speculative-draft-window-size has no effect with speculative_algorithm=DDTREE "
        "(honored by Llama EAGLE-3 and DFLASH only)."
    )
    made = plan(state(lines=(line,)), {"draft_window": 512}, Mode.RESTART)
    assert "window_ignored" in codes(made, Severity.WARNING)


def test_the_old_value_of_any_other_flag_is_what_the_command_gives() -> None:
    known = state((*BASE, "--enable-metrics", "--api-key", "sk-old"))
    made = plan(known, {"flag:--port": "30100", "flag:--enable-metrics": False, "flag:--api-key": "sk-new", "flag:--foo": "1"})
    olds = {change.knob: change.old for change in made.changes}
    assert olds == {"flag:--port": "30000", "flag:--enable-metrics": True, "flag:--api-key": MASK, "flag:--foo": None}


def test_a_window_wider_than_trained_is_told() -> None:
    assert "window_beyond_trained" in codes(plan(state(), {"draft_window": 2048}, Mode.RESTART), Severity.INFO)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            {"block_size": 16},
            "the block size of 16 is not the 8 that the drafter was trained with: it never learned the positions",
        ),
        ({"block_size": 4}, "a verify then brings at most 4 tokens"),
        ({"block_size": 8}, ""),
        ({"block_size": None}, ""),
        ({"block_size": 16, "algorithm": "PLAIN"}, ""),
        ({"tree_budget": 16}, ""),
    ],
)
def test_another_block_than_the_drafters_is_a_warning(asked: dict[str, Value | None], words: str) -> None:
    made = plan(state(), asked, Mode.RESTART, Survey(drafter=drafter()))
    said = [finding.message for finding in made.findings if finding.code == "block_unlike_trained"]
    assert bool(words) == bool(said)
    assert all(words in message for message in said)
    assert "block_unlike_trained" not in codes(made, Severity.ERROR)


def test_from_plain_decoding_to_a_tree_the_flags_left_in_the_file_count_and_nothing_is_lost() -> None:
    left = tuple("NONE" if word == "DDTREE" else word for word in BASE)
    off = {"algorithm": "PLAIN", "speculation": False, "speculative_ddtree_budget": 0, "speculative_ddtree_topk": 0}
    made = plan(state(left, now=off), {"algorithm": "DDTREE"}, Mode.RESTART)
    assert made.predictions.verify_width == 9
    assert made.predictions.draft_kv_bytes_per_request is not None
    assert made.predictions.draft_kv_bytes_now is None
    assert "hot_changes_lost" not in codes(made)


def test_a_restart_predicts_what_is_written_and_not_what_was_changed_while_running() -> None:
    assert plan(state(now={"speculative_ddtree_budget": 32}), {}, Mode.RESTART).predictions.verify_width == 9
    assert plan(state(now={"speculative_ddtree_budget": 32}), {"tree_topk": 2}, Mode.HOT).predictions.verify_width == 33


def test_another_drafter_under_a_block_that_is_written_already_is_a_warning_too() -> None:
    written = state((*BASE, "--speculative-num-draft-tokens", "16"))
    survey = Survey(drafter=drafter())
    assert "block_unlike_trained" in codes(plan(written, {"drafter": "/d"}, Mode.RESTART, survey), Severity.WARNING)
    assert "block_unlike_trained" not in codes(plan(written, {"tree_budget": 9}, Mode.RESTART, survey), Severity.WARNING)


def test_a_broken_drafter_blocks_when_it_is_named_and_warns_when_it_is_not() -> None:
    survey = Survey(drafter_problem="/d/config.json: there is no such file")
    assert "drafter_broken" in codes(plan(state(), {"drafter": "/d"}, Mode.RESTART, survey), Severity.ERROR)
    assert "drafter_broken" in codes(plan(state(), {"tree_budget": 9}, Mode.RESTART, survey), Severity.WARNING)
    assert "drafter_broken" not in codes(plan(state(), {"algorithm": "PLAIN"}, Mode.RESTART, survey))


def test_running_requests_are_counted_before_a_restart_and_not_before_a_hot_change() -> None:
    assert "3 requests run" in next(f.message for f in plan(state(requests=3), {"tree_budget": 9}, Mode.RESTART).warnings)
    assert "cuts_requests" not in codes(plan(state(requests=3), {"tree_budget": 9}, Mode.HOT))


def test_a_restart_that_would_also_bring_other_changes_of_the_file_says_which() -> None:
    known = state((*BASE, "--max-running-requests", "4"), loaded=BASE)
    found = next(f for f in plan(known, {"tree_topk": 2}, Mode.RESTART).warnings if f.code == "other_changes_pending")
    assert "+--max-running-requests 4" in found.message


def test_a_restart_that_would_lose_a_hot_change_says_which() -> None:
    known = state(now={"speculative_ddtree_budget": 32, "speculation": False})
    found = next(f for f in plan(known, {"tree_topk": 2}, Mode.RESTART).warnings if f.code == "hot_changes_lost")
    assert "tree_budget 32 (back to 8)" in found.message
    assert "speculation" in found.message


def test_nothing_to_change_is_said_in_both_ways() -> None:
    assert "nothing_to_change" in codes(plan(state(), {"tree_budget": 8}, Mode.RESTART), Severity.WARNING)
    assert "nothing_to_change" in codes(plan(state(), {"tree_budget": 8}, Mode.HOT), Severity.WARNING)
    assert "nothing_to_change" not in codes(plan(state(now={"speculative_ddtree_budget": 9}), {"tree_budget": 8}, Mode.HOT))


@pytest.mark.parametrize(("rows", "warned"), [("eight-load", False), ("seven", True), ("eight-one-lost", True)])
def test_more_ranks_than_gpus_that_can_be_used_are_warned_of_before_the_restart(rows: str, warned: bool) -> None:
    command = (
        "python",
        "-m",
        "sglang.launch_server",
        "--model-path",
        "/m",
        "--speculative-algorithm",
        "DFLASH",
        "--tp-size",
        "4",
    )
    known = replace(state(command, foreign=True), gpus=Aged(gpus(rows), 0.0))
    made = plan(known, {"tp_size": 8}, Mode.RESTART)
    assert ("gpus_missing" in codes(made, Severity.WARNING)) is warned
    assert "gpus_missing" not in codes(plan(known, {"tp_size": 7}, Mode.RESTART))
    if rows == "eight-one-lost":
        assert any("asks for 8 GPUs on this host, and 7 can be used (1 more cannot" in one.message for one in made.findings)
    assert "gpus_missing" not in codes(plan(replace(known, gpus=None), {"tp_size": 8}, Mode.RESTART)), "not known is not none"


def test_a_busy_port_and_a_broken_unit_block() -> None:
    survey = Survey(drafter=drafter(), port_taken=True, unit_problems=("/x does not exist",))
    assert codes(plan(state(), {"tree_topk": 2}, Mode.RESTART, survey), Severity.ERROR) == {"port_busy", "unit_broken"}


@pytest.mark.parametrize(
    ("chosen", "running", "wanted", "moves"),
    [
        (30000, False, {}, True),
        (None, False, {}, False),
        # What is written has to stay as it was written, and an engine that is restarted stays where it was.
        (30000, False, {"tree_topk": 2}, False),
        (30000, True, {}, False),
    ],
)
def test_a_port_that_the_console_chose_is_left_to_who_has_it_by_a_start_alone(
    chosen: int | None, running: bool, wanted: dict[str, Value | None], moves: bool
) -> None:
    known = state(running=running)
    assert known.config is not None
    known = replace(known, config=Aged(replace(known.config.value, chosen_port=chosen), 0.0))
    made = plan(known, wanted, Mode.RESTART, Survey(drafter=drafter(), port_taken=True, port_holder="pid 7 (nc)"))
    assert codes(made, Severity.ERROR) == (set() if moves else {"port_busy"})
    assert ("port_moves" in codes(made, Severity.INFO)) is moves
    (said,) = (finding.message for finding in made.findings if finding.code in ("port_busy", "port_moves"))
    assert "held by pid 7 (nc)" in said
    assert ("start it before the change" in said) is (chosen is not None and not running and bool(wanted))


def test_who_holds_the_port_or_the_gpus_memory_is_named() -> None:
    strangers = tuple(f"pid {pid} (sglang::scheduler), 100998 MiB" for pid in range(6))
    survey = Survey(drafter=drafter(), port_taken=True, port_holder="pid 7 (python3, old.service)", gpu_strangers=strangers)
    made = plan(state(), {"tree_topk": 2}, Mode.RESTART, survey)
    assert codes(made, Severity.ERROR) == {"port_busy"}
    assert "gpu_memory_held" in codes(made, Severity.WARNING)
    said = {finding.code: finding.message for finding in made.findings}
    assert "held by pid 7 (python3, old.service)" in said["port_busy"]
    assert "pid 0 (sglang::scheduler), 100998 MiB" in said["gpu_memory_held"]
    assert said["gpu_memory_held"].endswith("; and 2 more")


def test_predictions_are_the_engines_own_arithmetic() -> None:
    made = plan(state(), {"tree_budget": 16, "draft_window": 512}, Mode.RESTART)
    per_request = draft_kv_bytes(drafter(), 8192, layers_window=512, draft_window=512, dtype_bytes=4)
    assert made.predictions.verify_width == 17
    assert made.predictions.draft_kv_bytes_per_request == per_request
    assert made.predictions.draft_kv_bytes_total == 8 * per_request
    assert made.predictions.draft_kv_bytes_now == draft_kv_bytes(
        drafter(), 8192, layers_window=512, draft_window=0, dtype_bytes=4
    )


@pytest.mark.parametrize(("budget", "expected"), [(8, 25.0), (12, 30.0), (64, None)])
def test_what_a_verify_will_take_is_read_off_the_measured_curve(budget: int, expected: float | None) -> None:
    measured = state(now={"verify_curve": [[1, 20.0], [9, 25.0], [17, 35.0]]})
    assert plan(measured, {"tree_budget": budget}).predictions.verify_ms == expected
    assert plan(state(), {"tree_budget": budget}).predictions.verify_ms is None


def test_plain_decoding_has_no_draft_memory_and_one_row() -> None:
    made = plan(state(), {"algorithm": "PLAIN"}, Mode.RESTART)
    assert (made.predictions.verify_width, made.predictions.draft_kv_bytes_per_request) == (1, None)


def test_the_time_of_a_restart_comes_from_earlier_starts_and_is_unknown_without_them() -> None:
    assert plan(state(), {"tree_topk": 2}, Mode.RESTART).predictions.restart_s is None
    survey = Survey(drafter=drafter(), stage_seconds={"weights": 3.0, "ready": 1.0, "checks": 50.0})
    assert plan(state(), {"tree_topk": 2}, Mode.RESTART, survey).predictions.restart_s == 4.0


def test_keys_never_show() -> None:
    command = (*BASE, "--api-key", "sk-1234567")
    made = plan(state(command, environment={"HF_TOKEN": "hf_abcdef"}), {"flag:--log-level": "info"}, Mode.RESTART)
    shown = made.diff + " ".join(made.shown_command) + repr(made)
    assert "sk-1234567" not in shown
    assert "hf_abcdef" not in shown
    assert "sk-1234567" in new_text(made), "the file itself keeps it"


def test_a_short_key_is_masked_too() -> None:
    made = plan(state((*BASE, "--api-key", "k")), {"flag:--log-level": "info"}, Mode.RESTART)
    assert '"k"' not in made.diff


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (HostState("here", "engine"), "without the configuration"),
        (state(("bash", "start.sh")), "start.sh"),
    ],
)
def test_without_an_engine_to_edit_there_is_no_plan_and_the_reason_is_said(known: HostState, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        plan(known, {"tree_budget": 16}, Mode.RESTART)


def test_an_unknown_setting_is_no_plan() -> None:
    with pytest.raises(PlanError, match="no setting called window"):
        plan(state(), {"window": 3})


def test_the_plan_carries_the_digest_of_all_that_it_read() -> None:
    survey = Survey(drafter=drafter(), drafter_path="/d/config.json", drafter_digest="abc")
    made = plan(state(), {"tree_topk": 2}, Mode.RESTART, survey)
    assert set(made.digests) == {TARGET, "/d/config.json"}


LINE = (
    "Initialized DDTREE draft runner. attention_backend=triton, model=DFlashDraftModel, block_size=8, tree_budget=16, "
    "tree_topk=4, layers_window=512, draft_window_size=512, compact_cache=True"
)


def evidence(line: str | None, **now: object) -> StartEvidence:
    log = StartLog().add_all([LogLine(line, number=1)] if line is not None else [LogLine("hello", number=1)])
    body = {"engine": "embedded", "version": "ddtree-embedded 1", "internal_states": [settings(**now)]}
    return StartEvidence(log, parse_server_info(json.dumps(body)) if now else None, BASE, drafter())


@pytest.mark.parametrize(
    ("name", "wanted", "found", "proof"),
    [
        ("tree_budget", 16, evidence(LINE), Proof.PROVEN),
        ("tree_budget", 8, evidence(LINE), Proof.OTHER),
        ("tree_budget", 16, evidence(None), Proof.MISSING),
        ("tree_budget", 16, evidence(None, speculative_ddtree_budget=16), Proof.PROVEN),
        ("tree_budget", 16, evidence(LINE, speculative_ddtree_budget=8), Proof.OTHER),
        ("layers_window", "config", evidence(LINE), Proof.PROVEN),
        ("layers_window", OFF, evidence(LINE), Proof.OTHER),
        (
            "draft_window",
            OFF,
            evidence(LINE.replace("draft_window_size=512, compact_cache=True", "draft_window_size=None")),
            Proof.PROVEN,
        ),
        ("draft_window", 512, evidence(LINE.replace("draft_window_size=512, ", "")), Proof.MISSING),
        ("flag:--port", "30000", evidence(LINE), Proof.PROVEN),
        ("flag:--port", "30001", evidence(LINE), Proof.OTHER),
        ("max_running_requests", None, evidence(LINE), Proof.PROVEN),
        ("speculation", False, evidence(LINE), Proof.UNPROVABLE),
    ],
)
def test_a_value_is_proven_only_by_evidence_that_shows_it(
    name: str, wanted: Value | None, found: StartEvidence, proof: Proof
) -> None:
    assert prove(find_knob(name), wanted, found).proof is proof


@pytest.mark.parametrize(
    ("dialect", "quiet", "sources"),
    [
        (Dialect.EMBEDDED, False, (Source.LOG, Source.SERVER)),
        (Dialect.EMBEDDED, True, (Source.SERVER,)),
        (Dialect.STOCK, False, (Source.LOG,)),
        (Dialect.STOCK, True, ()),
    ],
)
def test_what_can_prove_a_window_depends_on_the_engine_and_its_log(
    dialect: Dialect, quiet: bool, sources: tuple[Source, ...]
) -> None:
    assert proof_sources(KNOBS["draft_window"], dialect, quiet=quiet) == sources


def test_a_key_that_is_set_is_in_the_text_to_be_written_and_nowhere_that_is_shown_or_stored() -> None:
    made = plan(state(), {"flag:--api-key": "sk-top-secret"}, Mode.RESTART)
    assert "sk-top-secret" in new_text(made)
    assert "sk-top-secret" not in repr(made)
    assert [change.new for change in made.changes] == [MASK]
    argv = StartEvidence(None, None, made.command)
    assert prove(find_knob("flag:--api-key"), MASK, argv).proof is Proof.PROVEN
    back = backwards(made, made.command, reverse_edits(made.edits))
    twice = backwards(replace(back, old_command=made.command), made.command, reverse_edits(made.edits))
    assert "sk-top-secret" not in f"{back!r}{twice!r}"


def test_the_mask_of_a_key_cannot_be_set_as_the_key() -> None:
    with pytest.raises(KnobError, match="not shown"):
        find_knob("flag:--api-key").parse(MASK)
