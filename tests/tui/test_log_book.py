"""The log as a screen holds it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.journal import LogLine
from dflash_console.tui.log_book import Kind, Level, LogBook, LogFilter, PatternError, compile_search

from .recorded import TRACEBACK
from .support import START_LINES, lines


def book_of(*texts: str, limit: int = 100) -> LogBook:
    book = LogBook(limit)
    book.add_all(lines(texts))
    return book


def test_the_confirmation_line_is_found() -> None:
    book = book_of(*START_LINES)
    index = book.confirmation()
    assert index is not None
    assert "Initialized DDTREE draft runner" in book.entries[index].text


def test_a_log_without_a_confirmation_line_says_so() -> None:
    assert book_of("hello").confirmation() is None


def test_a_traceback_is_one_entry_that_names_its_exception() -> None:
    book = book_of(*TRACEBACK)
    assert [entry.kind for entry in book.entries] == [Kind.TRACEBACK, Kind.PLAIN]
    assert "ValueError: no room" in book.entries[0].text
    assert len(book.entries[0].folded) == 3


def test_a_progress_bar_is_one_line_that_moves() -> None:
    book = book_of(
        "Capturing batches:  10%|█         | 1/10 [00:01<00:09,  1.00s/it]",
        "Capturing batches:  50%|█████     | 5/10 [00:05<00:05,  1.00s/it]",
    )
    assert len(book.entries) == 1
    assert "5/10" in book.entries[0].text


def test_remote_text_keeps_its_brackets_and_loses_its_escapes() -> None:
    book = book_of("[bold red]not markup[/] \x1b[31mred\x1b[0m \x1b]52;c;ZXZpbA==\x07end")
    assert book.entries[0].text == "[bold red]not markup[/] red end"


def test_secrets_never_reach_the_screen() -> None:
    assert "sk-verysecret" not in book_of("launch --api-key sk-verysecret --port 1").entries[0].text


def test_the_book_is_bounded_and_counts_what_it_dropped() -> None:
    book = book_of(*(f"line {number}" for number in range(250)), limit=100)
    assert len(book.entries) == 100
    assert book.dropped == 150
    assert book.entries[-1].text == "line 249"


def test_missing_lines_are_named() -> None:
    book = LogBook()
    book.add(LogLine("", origin="gap"))
    assert book.entries[0].kind is Kind.GAP


def test_levels_tell_requests_batches_warnings_and_errors_apart() -> None:
    book = book_of(
        '[2026-11-29 16:00:05] INFO:     127.0.0.1:4 - "GET /metrics HTTP/1.1" 200 OK',
        "[2026-11-29 16:00:05] Decode batch, #running-req: 1, #token: 93, token usage: 0.00, accept len: 3.10, "
        "accept rate: 0.30, cuda graph: True, gen throughput (token/s): 100.10, #queue-req: 0",
        "[2026-11-29 16:00:05] The server is fired up and ready to roll!",
        "[2026-11-29 16:00:05] ERROR: cannot allocate",
    )
    assert [entry.level for entry in book.entries] == [Level.REQUEST, Level.BATCH, Level.INFO, Level.ERROR]
    assert [LogFilter(Level.ERROR).passes(entry) for entry in book.entries] == [False, False, False, True]


def test_a_search_in_lower_case_finds_both_and_a_capital_makes_it_exact() -> None:
    both, exact = compile_search("ready"), compile_search("Ready")
    assert both is not None
    assert both.search("READY")
    assert exact is not None
    assert not exact.search("ready")


def test_a_broken_expression_is_explained() -> None:
    with pytest.raises(PatternError, match="no regular expression"):
        compile_search("(")


@given(st.lists(st.text(max_size=80), max_size=30))
def test_any_text_at_all_can_be_in_a_log(texts: list[str]) -> None:
    book = book_of(*texts)
    assert all("\x1b" not in entry.text and "\n" not in entry.text for entry in book.entries)
