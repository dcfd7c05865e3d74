"""Escape characters in a paste: what is pasted is text, never keys that were pressed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.tui.pasting import END, START, PasteDriver, PasteFilter

from .conftest import MakeApp
from .support import RecordedLink, state

PIECES = st.lists(st.sampled_from(["\x1b", "[31m", "r\r", "[201~", "[20", "0~", "é", START[:-1], END[:-1]]), max_size=12)


def through(text: str, size: int) -> str:
    filtered = PasteFilter()
    return "".join(filtered.clean(text[at : at + size]) for at in range(0, len(text), size))


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_coloured_line_that_is_pasted_is_text(size: int) -> None:
    pasted = f"q{START}\x1b[31mERROR\x1b[0m: r\r{END}\x1b[A{START}x{END}"
    assert through(pasted, size) == f"q{START}[31mERROR[0m: r\r{END}\x1b[A{START}x{END}"


@given(PIECES, st.integers(1, 40))
def test_whatever_is_pasted_only_its_marks_begin_with_an_escape(pieces: list[str], size: int) -> None:
    text = "".join(pieces).replace(END, "").replace(END, "")
    if END in text + END[:-1]:
        return
    inside = through(f"{START}{text}{END}", size).removeprefix(START)
    assert inside == text.replace("\x1b", "") + END


@given(st.text(st.sampled_from("\x1b[2A;~q"), max_size=30), st.integers(1, 40))
def test_keys_are_as_they_came(text: str, size: int) -> None:
    if START not in text:
        assert through(text, size) == text


def test_the_console_reads_its_terminal_so(make_app: MakeApp) -> None:
    assert make_app(RecordedLink(state())).driver_class is PasteDriver
