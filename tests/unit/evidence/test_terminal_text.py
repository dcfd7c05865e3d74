"""Lines are shown as text: no escape reaches the terminal, and a bar is its last state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.terminal_text import Progress, clean_line, one_line, parse_progress, split_line, strip_escapes

from .support import case_lines


def test_colours_cursor_movement_titles_and_links_are_dropped() -> None:
    text = "\x1b[1;32mgreen\x1b[0m then \x1b[2K\x1b[1Aup \x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"
    assert strip_escapes(text) == "green then up link"


@pytest.mark.parametrize("begun", ["\x1b]0;", "\x1bP1;2|", "\x1b_G", "\x1b^", "\x1bX"])
def test_a_sequence_that_never_ends_hides_nothing_that_follows(begun: str) -> None:
    shown = strip_escapes(f"before {begun}RuntimeError: out of memory\nnext line")
    assert shown.startswith("before ")
    assert shown.endswith("RuntimeError: out of memory\nnext line")
    assert "RuntimeError" not in strip_escapes(f"{begun}RuntimeError\x1b\\after")


def test_line_separators_of_unicode_break_no_row() -> None:
    assert clean_line("a\u2028b\u2029c") == "abc"


def test_markup_of_a_remote_text_is_text() -> None:
    lines = case_lines("46-tui-markup-and-ansi", "lines.txt")
    assert clean_line(lines[1]) == "[/bold] closing tag that was never opened"
    assert clean_line(lines[3]) == "green then up"


def test_wide_characters_stay_and_invisible_ones_go() -> None:
    assert clean_line("🚀 wide 中文 \u200b zero-width \u202eback") == "🚀 wide 中文  zero-width back"


def test_a_text_of_several_lines_is_one_where_one_is_shown() -> None:
    assert one_line("python -c import x\nrun()\x1b[2J\n") == "python -c import x⏎ run()"


def test_a_bar_with_carriage_returns_is_its_last_state_and_the_line_behind_it_is_found() -> None:
    first, second = case_lines("17-log-progress-cr", "stdout.raw")
    parts = split_line(first)
    assert parts[0] == Progress("Capturing batches", 8, 8, 100, 8.0, 0.0)
    assert isinstance(parts[1], str)
    assert parts[1].startswith("[2026-07-23 06:18:53 TP0] Decode batch")
    bar = parse_progress(second)
    assert bar == Progress("Loading safetensors checkpoint shards", 8, 8, 100, 20.0, 0.0)
    assert bar is not None
    assert bar.finished


def test_a_bar_that_still_moves_knows_how_far_it_is() -> None:
    bar = parse_progress("\rLoading tensors:  50% Completed | 4/8 [01:10<02:20,  2.51s/it]")
    assert bar == Progress("Loading tensors", 4, 8, 50, 70.0, 140.0)
    assert bar is not None
    assert not bar.finished


def test_a_percentage_alone_is_no_bar() -> None:
    assert parse_progress("fwd occupancy: 93.00%, KV used 40%") is None


@given(st.text(max_size=120))
def test_a_cleaned_line_holds_no_control_character(text: str) -> None:
    cleaned = clean_line(text.replace("\n", " "))
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in cleaned)


@given(st.text(st.characters(codec="utf-8"), max_size=80))
def test_splitting_never_fails(text: str) -> None:
    split_line(text)
    split_line("\x1b[" + text + "\r" + text)
