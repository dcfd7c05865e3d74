"""Preflight: what a plan's findings say is wrong, lost or without effect, before anything is changed."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from dflash_console.knobs import OFF, Value
from dflash_console.plan import Mode, Plan, Severity, Survey
from dflash_console.state import Aged
from tests.gpu_recordings import gpus

from .plan_cases import BASE, codes, drafter, new_text, plan, state


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


def test_a_flag_that_a_variable_may_give_is_not_said_to_be_off_already() -> None:
    hidden = ("bash", "-c", 'exec python -m engine_launch serve --engine embedded --port 30000 "$@"', "engine", *BASE[6:-2])
    found = plan(state(hidden), {"tree_topk": None}, Mode.RESTART).findings
    said = [finding.message for finding in found if finding.code == "hidden_flags"]
    assert said == ["tree_topk: no word of the command gives it, but $@ may, and is not changed here"]
    assert "nothing_to_change" not in {finding.code for finding in found}
    assert "hidden_flags" not in codes(plan(state(hidden), {"tree_topk": 4}, Mode.RESTART))
    assert "nothing_to_change" in codes(plan(state(), {"draft_window": OFF}, Mode.RESTART))


def test_a_unit_that_ends_with_its_start_is_warned_of() -> None:
    known = state()
    assert known.config is not None
    path = "/run/systemd/transient/engine.service"
    sources = (replace(known.config.value.sources[0], path=path),)
    transient = replace(known, config=Aged(replace(known.config.value, sources=sources), 0.0))
    (found,) = (each for each in plan(transient, {"tree_budget": 9}, Mode.RESTART).findings if each.code == "transient_unit")
    assert found.severity is Severity.WARNING
    assert f"systemd removes {path} once it stops" in found.message
    assert "transient_unit" not in codes(plan(transient, {"tree_budget": 9}, Mode.HOT))
    assert "transient_unit" not in codes(plan(known, {"tree_budget": 9}, Mode.RESTART))


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
    """A compact draft cache planned for stock SGLang with requests of up to ``context`` tokens."""
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


def test_what_a_restart_loses_is_named_in_the_words_of_its_settings_and_not_as_the_engine_reports_it() -> None:
    windowed = (*BASE, "--speculative-draft-window-size", "512")
    now = {"speculative_draft_window_size": None, "speculative_ddtree_budget": "auto(max 64)", "speculation": False}
    made = plan(state(windowed, now=now), {"block_size": 8}, Mode.RESTART)
    (found,) = (finding for finding in made.findings if finding.code == "hot_changes_lost")
    assert found.message.endswith(
        "loses it: speculation off (back to on), draft_window off (back to 512), tree_budget auto (back to 8)"
    )
