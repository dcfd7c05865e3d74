"""Nothing that a host or a model says is a command to this terminal, whichever widget shows it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color

from dflash_console.tui.app import ConsoleApp
from dflash_console.tui.escapes import EscapeFilter
from dflash_console.tui.screens.confirm import ConfirmScreen

from .conftest import MakeApp
from .driving import running, until
from .support import RecordedLink, state

TITLE = "\x1b]0;title\x07"
CLEAR = "\x1b[2J\x9b2J"


def painted(app: ConsoleApp) -> list[str]:
    """The screen's lines as they go to the terminal, but for colours."""
    return [strip.text for strip in app.screen._compositor.render_strips()]


def commands(app: ConsoleApp) -> list[str]:
    """Lines that hold a control character."""
    return [line for line in painted(app) if any(ord(sign) < 32 or 127 <= ord(sign) < 160 for sign in line)]


async def test_a_unit_and_a_question_with_escapes_are_painted_as_text(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(replace(state(), unit=f"bad{TITLE}unit")))
    async with running(app) as pilot:
        assert any("bad]0;titleunit" in line for line in painted(app))
        assert not commands(app)
        await app.push_screen(ConfirmScreen(f"of{CLEAR}it", f"said{CLEAR}this", yes="yes"))
        await pilot.pause()
        await until(lambda: any("said[2J2Jthis" in line for line in painted(app)), "the question")
        assert any("of[2J2Jit" in line for line in painted(app))
        assert not commands(app)


@given(st.lists(st.text(max_size=12), max_size=4))
def test_nothing_else_in_a_line_moves(texts: list[str]) -> None:
    given_ones = [Segment(text) for text in texts]
    kept = EscapeFilter().apply(given_ones, Color(0, 0, 0))
    assert [cell_len(segment.text) for segment in kept] == [cell_len(segment.text) for segment in given_ones]
    assert not any(sign in segment.text for segment in kept for sign in "\x1b\x9b\x07\r\n")
