"""Plans: the diff is the wanted words and no other, the figures are arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.command import flag_value
from dflash_console.evidence.secrets import MASK
from dflash_console.hosts.unit_file import parse_unit_file
from dflash_console.knobs import KNOBS, OFF, Value
from dflash_console.plan import Mode, PlanError, Severity, Survey
from dflash_console.state import HostState, RunState
from engine_launch.spec.kv import draft_kv_bytes

from .plan_cases import BASE, TARGET, codes, drafter, new_text, plan, state


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


READY = ("The server is fired up and ready to roll!",)


def in_state(run: RunState, detail: str = "") -> HostState:
    """The engine of a unit that the manager calls so; its log says that it was ready."""
    known = state(lines=READY)
    assert known.service is not None
    service = replace(known.service, value=replace(known.service.value, state=run, detail=detail))
    return replace(known, service=service, ready=False)


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (replace(state(), ready=False), "the engine is not ready yet: it is still loading"),
        (in_state(RunState.RUNNING), "the engine has not answered yet"),
        (replace(in_state(RunState.RUNNING), silent=True), "the engine does not answer"),
        (in_state(RunState.STARTING), "the engine is just starting"),
        (in_state(RunState.STOPPING), "the engine is just stopping"),
        (in_state(RunState.FAILED, "systemd restarts it"), "the engine does not run (systemd restarts it)"),
        (in_state(RunState.STOPPED), "the engine does not run"),
        (in_state(RunState.UNKNOWN), "it is not known whether the engine runs"),
    ],
)
def test_why_an_engine_that_is_not_ready_takes_no_change_is_what_it_is_doing(known: HostState, why: str) -> None:
    made = plan(known, {"tree_budget": 16}, Mode.HOT)
    assert why in next(found.message for found in made.errors if found.code == "hot_not_possible")


def test_a_hot_plan_that_is_to_be_kept_writes_what_has_a_flag() -> None:
    made = plan(state(), {"tree_budget": 16, "speculation": False}, Mode.HOT, persist=True)
    assert made.persist
    assert flag_value(made.command, KNOBS["tree_budget"]).value == 16


@pytest.mark.parametrize(
    ("known", "wanted", "said"),
    [
        (state(running=False), {"tree_budget": 16}, "the engine does not run"),
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


def test_the_old_value_of_any_other_flag_is_what_the_command_gives() -> None:
    known = state((*BASE, "--enable-metrics", "--api-key", "sk-old"))
    made = plan(known, {"flag:--port": "30100", "flag:--enable-metrics": False, "flag:--api-key": "sk-new", "flag:--foo": "1"})
    olds = {change.knob: change.old for change in made.changes}
    assert olds == {"flag:--port": "30000", "flag:--enable-metrics": True, "flag:--api-key": MASK, "flag:--foo": None}


def test_a_restart_predicts_what_is_written_and_not_what_was_changed_while_running() -> None:
    assert plan(state(now={"speculative_ddtree_budget": 32}), {}, Mode.RESTART).predictions.verify_width == 9
    assert plan(state(now={"speculative_ddtree_budget": 32}), {"tree_topk": 2}, Mode.HOT).predictions.verify_width == 33


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


def test_flags_of_a_script_cannot_be_edited_and_the_variables_that_it_may_take_are_named() -> None:
    script = ("/srv/llm/serve.sh",)
    variables = {"PORT": "30000", "DRAFT_WINDOW": "2048", "TREE_BUDGET": "32", "HF_TOKEN": "hf_secret"}
    with pytest.raises(PlanError) as refused:
        plan(state(script, environment=variables), {"draft_window": 512}, Mode.RESTART)
    said = str(refused.value)
    assert "the flags live in /srv/llm/serve.sh" in said
    assert "the unit's DRAFT_WINDOW=2048, TREE_BUDGET=32 (systemctl edit" in said
    assert "hf_secret" not in said
    assert plan(state(script, environment=variables), {}, Mode.RESTART).edits == (), "a restart edits nothing"
