"""Rows of a log: filtered, unfolded, wrapped."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from dflash_console.tui.log_book import LogBook, LogEntry, LogFilter
from dflash_console.tui.log_rows import LogRows

from .recorded import TRACEBACK
from .support import lines

TEXT = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=120)


def rows_of(*texts: str, wrap: int | None = None) -> LogRows:
    book = LogBook(1_000)
    book.add_all(lines(texts))
    rows = LogRows(book)
    rows.wrap = wrap
    rows.rebuild()
    return rows


@example(["\U0001f3fb"], 10)
@example(["x" * 10 + "\u0301"], 10)
@given(st.lists(TEXT, max_size=5), st.integers(10, 60))
def test_wrapping_loses_no_character_and_fits_the_width(texts: list[str], width: int) -> None:
    whole, wrapped = rows_of(*texts), rows_of(*texts, wrap=width)
    assert "".join(wrapped.text(index) for index in range(len(wrapped))) == "".join(
        whole.text(index) for index in range(len(whole))
    )
    assert all(cell_len(wrapped.text(index)) <= width for index in range(len(wrapped)))
    assert wrapped.plain() == whole.plain()


BAR = "Capturing batches:  {}0%|█         | {}/10 [00:01<00:09,  1.00s/it]"
LINE = st.one_of(
    TEXT,
    st.integers(1, 10).map(lambda done: BAR.format(done, done)),
    st.sampled_from(TRACEBACK),
    st.just('INFO: 127.0.0.1:50000 - "GET /metrics HTTP/1.1" 200 OK'),
)


@given(st.lists(st.lists(LINE, max_size=6), max_size=8), st.sampled_from([None, 12]), st.sets(st.integers(0, 12), max_size=3))
def test_reading_on_shows_what_reading_anew_would(batches: list[list[str]], wrap: int | None, opened: set[int]) -> None:
    """Bars move, tracebacks grow and old entries are forgotten meanwhile."""
    book = LogBook(7)
    rows, anew = LogRows(book), LogRows(book)
    for each in (rows, anew):
        each.wrap, each.opened = wrap, set(opened)
    for batch in batches:
        book.add_all(lines(batch))
        rows.read_on()
        shown = [(rows[index], rows.text(index)) for index in range(len(rows))]
        anew.rebuild()
        assert shown == [(anew[index], anew.text(index)) for index in range(len(anew))]
    book.clear()
    book.add_all(lines(["another start"]))
    rows.read_on()
    assert [rows.text(index) for index in range(len(rows))] == (["another start"] if wrap is None else ["another star", "t"])


def test_reading_on_in_a_full_book_looks_at_what_is_new_only() -> None:
    looked = 0

    class Counting(LogFilter):
        def passes(self, entry: LogEntry) -> bool:
            nonlocal looked
            looked += 1
            return super().passes(entry)

    book = LogBook(1_000)
    rows = LogRows(book)
    rows.filter = Counting()
    book.add_all(lines([f"step {number}" for number in range(1_000)]))
    rows.read_on()
    looked = 0
    book.add_all(lines(["one more", "and one"], first=2_000))
    rows.read_on()
    assert looked == 2
    assert len(rows) == 1_000


def test_a_row_stays_what_it_is_when_old_entries_are_forgotten() -> None:
    rows = rows_of(*(f"step {number}" for number in range(10)))
    row = rows[7]
    rows.book._limit = 8
    rows.book.add_all(lines(["one more"], first=50))
    rows.rebuild()
    assert rows.line_text(row) == "step 7"
    assert rows.index_of(row) == 4


def test_an_opened_fold_is_shown_line_by_line_and_saved_so() -> None:
    rows = rows_of(*TRACEBACK[:4])
    closed = len(rows)
    assert "lines folded" in rows.text(0)
    assert "folded" not in rows.plain()
    rows.opened.add(rows[0].number)
    rows.rebuild()
    assert len(rows) == closed + 3
    assert "raise ValueError" in rows.plain()


def test_a_match_across_two_rows_is_found_at_its_beginning() -> None:
    rows = rows_of("a" * 18 + "needle", wrap=20)
    assert rows.find(re.compile("needle"), 0, 1) == 0
    assert rows.find(re.compile("absent"), 0, 1) is None
