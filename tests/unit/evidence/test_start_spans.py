"""A byte of a log file is a start's only when that start alone can have written it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.start_spans import StartSpans


def test_what_was_there_before_the_first_look_is_nobodys() -> None:
    spans = StartSpans()
    spans.seen(100, "a", 100)
    spans.seen(150, "a", 150)
    assert [spans.start_of(offset) for offset in (0, 99, 100, 149, 150)] == [None, None, "a", "a", None]


def test_what_was_written_while_the_start_changed_is_nobodys() -> None:
    spans = StartSpans()
    spans.seen(0, "a", 0)
    spans.seen(50, "a", 50)
    spans.seen(70, "b", 80)
    spans.seen(90, "b", 90)
    assert [spans.start_of(offset) for offset in (49, 50, 79, 80, 89)] == ["a", None, None, "b", "b"]


def test_a_file_that_a_start_emptied_is_all_its_own() -> None:
    spans = StartSpans()
    spans.seen(500, "a", 500)
    spans.emptied("b")
    spans.seen(20, "b", 20)
    assert (spans.start_of(0), spans.start_of(19), spans.start_of(20)) == ("b", "b", None)


@given(st.lists(st.tuples(st.sampled_from(["write", "restart", "size", "ask", "again"]), st.integers(1, 9)), max_size=60))
def test_no_byte_is_ever_given_to_a_start_that_did_not_write_it(steps: list[tuple[str, int]]) -> None:
    """Writes and restarts fall anywhere between the three parts of a look."""
    spans, writers, start = StartSpans(), list[str](), 0
    size, asked = 0, ""
    stage = "size"
    for step, count in steps:
        if step == "write":
            writers += [f"start {start}"] * count
        elif step == "restart":
            start += 1
        elif step == stage == "size":
            size, stage = len(writers), "ask"
        elif step == stage == "ask":
            asked, stage = f"start {start}", "again"
        elif step == stage == "again":
            spans.seen(size, asked, len(writers))
            stage = "size"
    for offset, writer in enumerate(writers):
        assert spans.start_of(offset) in (None, writer)
