"""Rows of a log: filtered, unfolded, wrapped."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from dflash_console.tui.log_book import LogBook
from dflash_console.tui.log_rows import LogRows

from .support import lines
from .test_log_book import TRACEBACK

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
