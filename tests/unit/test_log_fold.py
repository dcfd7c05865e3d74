"""The watcher's fold over a log: each hot change and each decode line is taken up once, however many there are."""

from __future__ import annotations

from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.start_log import MAX_HOT_CHANGES
from dflash_console.watch.log_fold import LogFold

START, OTHER = "aa" * 16, "bb" * 16


def line(text: str, number: int, invocation: str = START) -> LogLine:
    return LogLine(text, at=1_000.0 + number, invocation_id=invocation, number=number)


def change(number: int, invocation: str = START) -> LogLine:
    return line(f"Hot change applied. speculative_ddtree_budget: 8 -> {number} (from /set_internal_state)", number, invocation)


def decode(number: int, throughput: float) -> LogLine:
    return line(f"Decode batch, #running-req: 1, gen throughput (token/s): {throughput}", number)


def taken(fold: LogFold) -> list[int]:
    return [point.number for point in fold.new_changes()]


def test_each_hot_change_is_taken_up_once() -> None:
    fold = LogFold()
    fold.take([change(1), change(2)])
    assert taken(fold) == [1, 2]
    fold.take([line("nothing new", 3)])
    assert taken(fold) == []


def test_a_change_after_more_than_are_kept_is_still_taken_up() -> None:
    fold = LogFold()
    fold.take(change(number) for number in range(1, MAX_HOT_CHANGES + 1))
    assert len(taken(fold)) == MAX_HOT_CHANGES
    fold.take([change(MAX_HOT_CHANGES + 1)])
    assert taken(fold) == [MAX_HOT_CHANGES + 1]


def test_another_start_is_counted_from_its_own_first_line() -> None:
    fold = LogFold()
    fold.take([change(7)])
    assert taken(fold) == [7]
    fold.take([change(1, OTHER)])
    assert fold.invocation == OTHER
    assert taken(fold) == [1]
    assert (fold.lines_of(START), fold.lines_of(OTHER)) == (0, 1)


def test_a_late_line_of_the_start_before_changes_nothing() -> None:
    fold = LogFold()
    fold.take([line("of the start before", 1, OTHER), change(1), line("stopped", 2, OTHER), change(2)])
    assert fold.invocation == START
    assert taken(fold) == [1, 2]
    assert fold.lines_of(START) == 2


def test_a_log_that_is_read_again_brings_no_change_and_no_figure_twice() -> None:
    fold = LogFold()
    stored = [decode(1, 5.0), decode(2, 50.0), change(3)]
    fold.take(stored)
    assert taken(fold) == [3]
    batch = fold.new_decode_line()
    assert batch is not None
    assert batch.throughput == 50.0
    fold.begin_again()
    fold.take(stored)
    assert taken(fold) == []
    assert fold.new_decode_line() is None


def test_a_decode_line_that_counts_idle_time_gives_no_figure() -> None:
    fold = LogFold()
    fold.take([decode(1, 5.0)])
    assert fold.new_decode_line() is None
