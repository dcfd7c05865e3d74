"""The log of one start, folded: what it proves, how far it came, what went wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.engine_log import (
    compact_cache_reading,
    ignored_flag,
    lines_like_confirmation,
    log_reading,
)
from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.reading import Known
from dflash_console.evidence.start_log import MAX_DECODE_LINES, MAX_ERRORS, Phase, StartLog
from dflash_console.knobs import KNOBS, OFF, PLAIN

from .support import CAPTURES, case_lines, fold, stored_lines

WINDOW = KNOBS["draft_window"]
BUDGET = KNOBS["tree_budget"]
ALGORITHM = KNOBS["algorithm"]
VARIANTS = case_lines("23-dflash-confirmation-variants", "variants.log")
OURS = (
    "Initialized DDTREE draft runner. attention_backend=torch_native, model=DFlashDraftModel, block_size=8, tree_budget=8, "
    "tree_topk=4, layers_window=512, draft_window_size=None, compact_cache=False"
)


def hot(name: str, old: str, new: str) -> str:
    return f"Hot change applied. {name}: {old} -> {new} (from /set_internal_state)"


def test_a_recorded_start_reaches_its_phases_in_order() -> None:
    log = fold(stored_lines(CAPTURES / "dflash.log"))
    marks = sorted(log.phases.values(), key=lambda mark: mark.number)
    assert [mark.phase for mark in marks] == list(Phase)
    assert log.phases[Phase.TARGET_WEIGHTS].seconds == 0.14
    assert log.phases[Phase.DRAFT_WEIGHTS].text.startswith("Load weight end. elapsed=0.02 s, type=DFlashDraftModel")
    assert "draft verify" in log.phases[Phase.GRAPHS].text
    assert log.draft_kv is not None
    assert log.draft_kv.gigabytes == 9.24
    assert log.ready


def test_a_recorded_start_proves_its_settings_with_line_numbers() -> None:
    lines = stored_lines(CAPTURES / "dflash.log")
    log = fold(lines)
    reading = log_reading(log, WINDOW)
    assert reading.value == 64
    number = next(number for number, line in enumerate(lines, 1) if "Initialized DFLASH draft runner" in line)
    assert reading.where == f"log line {number}"
    assert log.confirmed_line == number
    assert log_reading(log, ALGORITHM).value == "DFLASH"
    assert log_reading(log, KNOBS["max_running_requests"]).value == 4
    assert compact_cache_reading(log, WINDOW).value is True


def test_a_plain_start_proves_that_no_drafter_runs() -> None:
    log = fold(stored_lines(CAPTURES / "plain.log"))
    assert log_reading(log, ALGORITHM).value == PLAIN
    assert Phase.DRAFT_RUNNER not in log.phases
    assert log_reading(log, WINDOW).known is Known.UNKNOWN


@pytest.mark.parametrize(
    ("chosen", "algorithm", "window", "budget", "compact"),
    [
        ([0], "DFLASH", 2048, None, True),
        ([0, 2], "DDTREE", 2048, 24, True),
        ([2, 0], "DDTREE", 2048, 24, True),
        ([3], "DDTREE", 2048, None, True),
        ([4], "DFLASH", None, None, True),
        ([5], "DFLASH", OFF, None, False),
    ],
)
def test_confirmation_lines_are_combined_and_a_missing_key_is_no_value(
    chosen: list[int], algorithm: str, window: object, budget: object, compact: bool
) -> None:
    log = fold(VARIANTS[index] for index in chosen)
    assert log_reading(log, ALGORITHM).value == algorithm
    assert log_reading(log, WINDOW).value == window
    assert log_reading(log, BUDGET).value == budget
    assert compact_cache_reading(log, WINDOW).value is compact
    if window is None:
        assert log_reading(log, WINDOW).known is Known.ABSENT


def test_a_flag_that_the_engine_says_has_no_effect_is_off_and_the_warning_is_quoted() -> None:
    log = fold(case_lines("24-dflash-window-no-effect", "journal.txt"))
    reading = log_reading(log, WINDOW)
    assert reading.value == OFF
    assert "has no effect" in reading.why
    remark = ignored_flag(log, WINDOW)
    assert remark is not None
    assert remark.number == 1
    assert log_reading(log, ALGORITHM).value == "DDTREE"


def test_of_two_runner_lines_the_later_counts_and_a_tree_worker_over_both() -> None:
    chain, worker, tree = VARIANTS[0], VARIANTS[2], VARIANTS[3]
    orders = ([chain, tree], [tree, chain], [worker, tree, chain], [tree, worker, chain])
    assert [log_reading(fold(lines), ALGORITHM).value for lines in orders] == ["DDTREE", "DFLASH", "DDTREE", "DDTREE"]


def test_a_warning_after_the_line_takes_the_window_back_and_one_before_it_or_after_the_start_does_not() -> None:
    warning, ready = case_lines("24-dflash-window-no-effect", "journal.txt")[0], "The server is fired up and ready to roll!"
    runner = VARIANTS[0]
    orders = ([runner, warning], [runner, warning, ready], [warning, runner, ready], [runner, ready, warning])
    assert [log_reading(fold(lines), WINDOW).value for lines in orders] == [OFF, OFF, 2048, 2048]
    assert [compact_cache_reading(fold(lines), WINDOW).value for lines in orders] == [False, False, True, True]


def test_the_newest_hot_change_wins_over_the_confirmation_line() -> None:
    log = fold([OURS, hot("speculative_ddtree_budget", "8", "16"), hot("speculative_ddtree_budget", "16", "32")])
    reading = log_reading(log, BUDGET)
    assert reading.value == 32
    assert reading.where == "log line 3"
    assert log.values["tree_budget"].text == "8"


def test_a_refused_change_changes_nothing_and_is_a_warning() -> None:
    log = fold([OURS, "Hot change refused. speculative_ddtree_budget: 8 -> 4096 (from /set_internal_state): at most 1024"])
    assert log_reading(log, BUDGET).value == 8
    assert log.warnings[-1].number == 2
    assert not log.hot_changes[-1].change.accepted


def test_a_hot_window_turns_the_compact_cache_on_and_off() -> None:
    on = fold([OURS, hot("speculative_draft_window_size", "0", "512")])
    assert log_reading(on, WINDOW).value == 512
    assert compact_cache_reading(on, WINDOW).value is True
    off = on.add(LogLine(hot("speculative_draft_window_size", "512", "0")))
    assert log_reading(off, WINDOW).value == OFF
    assert compact_cache_reading(off, WINDOW).value is False


def test_the_first_window_after_idle_is_marked_and_the_next_ones_are_not() -> None:
    log = fold(case_lines("20-log-first-window-after-idle", "log.txt"))
    assert [point.after_idle for point in log.decode] == [True, False, False]
    again = fold([*case_lines("20-log-first-window-after-idle", "log.txt")] * 2)
    assert [point.after_idle for point in again.decode] == [True, False, False, True, False, False]


def test_data_parallel_ranks_are_idle_apart() -> None:
    decode = "[2026-01-01 00:00:00 DP{} TP{}] Decode batch, #running-req: 1, gen throughput (token/s): 1.00, #queue-req: 0"
    prefill = "[2026-01-01 00:00:00 DP1 TP1] Prefill batch, #new-seq: 1, #new-token: 9, #running-req: 0, #queue-req: 0"
    log = fold([decode.format(0, 0), decode.format(1, 1), prefill, decode.format(0, 0), decode.format(1, 1)])
    assert [point.after_idle for point in log.decode] == [True, True, False, True]


def test_a_traceback_is_kept_with_the_error_it_ends_in() -> None:
    log = fold(
        [
            "[2026-07-12 05:14:02 TP0] Scheduler hit an exception: Traceback (most recent call last):",
            '  File "scheduler.py", line 1, in run',
            "    step()",
            "    ^^^^^^",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "[2026-07-12 05:14:03] The server is fired up and ready to roll!",
        ]
    )
    assert log.raised.startswith("torch.OutOfMemoryError")
    assert len(log.traceback) == 5
    assert log.errors[0].number == 5
    assert log.ready


def test_errors_tracebacks_and_near_lines_carry_no_key() -> None:
    lines = ["Traceback (most recent call last):", "  run(api_key='sk-1')", "ValueError: bad api_key='sk-1'"]
    log = fold(lines).add(LogLine("started with --api-key sk-1", priority=3))
    near = lines_like_confirmation([LogLine("no draft runner for --api-key sk-1")])
    assert len(near) == 1
    assert "sk-1" not in repr((log, near))


def test_the_first_error_is_kept_when_many_follow() -> None:
    log = fold(f"ValueError: number {number}" for number in range(MAX_ERRORS + 10))
    assert log.first_error is not None
    assert log.first_error.text.endswith("number 0")
    assert len(log.errors) == MAX_ERRORS
    assert log.raised.endswith(f"number {MAX_ERRORS + 9}")


def test_a_bar_that_moves_is_shown_until_it_ends() -> None:
    log = fold(["\rLoading tensors:  50% Completed | 4/8 [00:10<00:10,  2.51s/it]"])
    assert log.progress is not None
    assert (log.progress.done, log.progress.total) == (4, 8)
    ended = log.add(LogLine("\rLoading tensors: 100% Completed | 8/8 [00:20<00:00,  2.51s/it]"))
    assert ended.progress is None


def test_lines_of_the_manager_count_and_prove_nothing() -> None:
    log = StartLog().add(LogLine(VARIANTS[0], origin="manager")).add(LogLine("gone", origin="gap"))
    assert log.lines == 2
    assert log.gaps == 1
    assert log.confirmation is None
    assert not log.phases


def test_line_numbers_of_the_service_manager_are_kept() -> None:
    log = StartLog().add(LogLine(VARIANTS[0], number=1204))
    assert log_reading(log, WINDOW).where == "log line 1204"
    assert log.lines == 1204


def test_without_a_log_or_a_confirmation_nothing_is_known() -> None:
    assert log_reading(None, WINDOW).known is Known.UNKNOWN
    quiet = fold(case_lines("22-log-quiet-level", "journal.txt"))
    assert log_reading(quiet, WINDOW).known is Known.UNKNOWN
    assert not quiet.ready


def test_the_nearest_lines_to_a_confirmation_are_found_and_the_arguments_line_is_not_one() -> None:
    lines = [LogLine(text) for text in stored_lines(CAPTURES / "dflash.log")]
    best = lines_like_confirmation(lines)
    assert "Initialized DFLASH draft runner" in best[0].text
    assert all("server_args=" not in line.text for line in best)
    assert lines_like_confirmation([LogLine("nothing like it")]) == ()


def test_the_fold_stays_small_over_many_lines() -> None:
    line = case_lines("27-silent-low-acceptance", "decode.log")[0]
    log = fold([line] * (3 * MAX_DECODE_LINES))
    assert len(log.decode) == MAX_DECODE_LINES
    assert log.lines == 3 * MAX_DECODE_LINES


def test_accept_rate_above_one_is_kept_as_printed() -> None:
    log = fold(case_lines("27-silent-low-acceptance", "rate-above-one.log"))
    assert log.decode[0].batch.accept_rate == 1.13
    assert log.decode[0].batch.accept_len == 3.40


POOL = [
    *VARIANTS,
    OURS,
    hot("speculative_ddtree_budget", "8", "16"),
    "ValueError: x",
    "Traceback (most recent call last):",
    "",
    "  File x",
]


@given(st.lists(st.one_of(st.sampled_from(POOL), st.text(max_size=40)), max_size=20), st.integers(0, 20))
def test_folding_in_two_parts_is_folding_at_once(lines: list[str], cut: int) -> None:
    whole = fold(lines)
    parts = fold(lines[:cut]).add_all(LogLine(line) for line in lines[cut:])
    assert parts == whole


def test_adding_a_line_leaves_the_record_before_it_alone() -> None:
    before = fold([OURS])
    before.add(LogLine(hot("speculative_ddtree_budget", "8", "16")))
    assert log_reading(before, BUDGET).value == 8


def test_access_and_decode_lines_tell_nothing_that_is_in_a_hurry_and_every_other_event_does() -> None:
    log = fold(case_lines("20-log-first-window-after-idle", "log.txt"))
    access = '[2026-11-29 16:01:00] INFO: 127.0.0.1:40000 - "GET /metrics HTTP/1.1" 200 OK'
    assert log.add(LogLine(access, at=1.0)).told() == log.told()
    assert fold([*case_lines("20-log-first-window-after-idle", "log.txt")] * 2).told() == log.told()
    assert log.add(LogLine(hot("speculative_ddtree_budget", "8", "16"))).told() != log.told()
    assert log.add(LogLine("ValueError: no such thing")).told() != log.told()


@pytest.mark.parametrize(
    ("text", "value"), [("True", True), ("true", True), ("on", True), ("False", False), ("off", False), ("?", None)]
)
def test_a_compact_cache_is_on_or_off_in_any_spelling_and_else_unknown(text: str, value: bool | None) -> None:
    log = fold([f"Initialized DFLASH draft runner. draft_window_size=2048, compact_cache={text}"])
    reading = compact_cache_reading(log, WINDOW)
    assert (reading.value, reading.known is Known.VALUE) == (value, value is not None)
