"""The histogram says which verifies it counts."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from dflash_console.tui.figures import live_figures
from dflash_console.tui.widgets.histogram import HistogramPanel

from .conftest import MakeApp
from .driving import running, until
from .painting import lower_edge
from .support import BUSY, T0, RecordedLink, state

TIME = time.strftime("%H:%M:%S", time.gmtime(T0))
SECONDS = TIME[-3:]


@pytest.mark.parametrize(
    ("counts", "stale", "since", "number", "end"),
    [
        ((100,), False, T0, "100", TIME),
        ((7,), False, T0, "7", TIME),
        ((1204,), False, T0, "1,204", TIME),
        ((120_400,), False, T0, "120", TIME),
        ((100,), False, None, "100", "last minute"),
        ((60,), True, None, "60", "busy minute"),
        ((448,), True, None, "448", "busy minute"),
    ],
)
@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.parametrize("width", [80, 83, 100, 117, 120, 200])
async def test_the_lower_edge_says_in_whole_words_when_the_verifies_were(
    make_app: MakeApp, counts: tuple[int, ...], stale: bool, since: float | None, number: str, end: str, changed: bool, width: int
) -> None:
    rates = replace(BUSY, accept_histogram=counts, accept_since=since, commit_stale=stale, changed=changed)
    app = make_app(RecordedLink(state(rates=rates)))
    async with running(app, (width, 24)):
        panel = app.query_one(HistogramPanel)
        said = panel.text.split("\n")[-1]
        assert said.startswith(number)
        assert said.endswith((end, end.removesuffix(SECONDS)))
        assert f" {said} ─╯" in lower_edge(panel), "whole, in the frame"


@pytest.mark.parametrize("size", [(100, 30), (120, 40), (200, 60)])
async def test_the_second_is_told_before_the_word_verifies(make_app: MakeApp, size: tuple[int, int]) -> None:
    app = make_app(RecordedLink(state(rates=replace(BUSY, accept_histogram=(63,), accept_since=T0))))
    async with running(app, size):
        assert f" 63 since {TIME} ─╯" in lower_edge(app.query_one(HistogramPanel))


async def test_maximised_the_reason_stands_there_too(make_app: MakeApp) -> None:
    app = make_app(RecordedLink(state(rates=replace(BUSY, accept_since=T0, changed=True))))
    async with running(app) as pilot:
        app.query_one(HistogramPanel).focus()
        await pilot.pause()
        await pilot.press("z")
        await until(lambda: f"since the change at {TIME}" in app.query_one(HistogramPanel).text, "why it began anew")


async def test_with_none_since_a_change_the_panel_and_the_commit_length_say_so(make_app: MakeApp) -> None:
    rates = replace(BUSY, accept_histogram=(), commit_length=None, accept_since=T0, changed=True)
    app = make_app(RecordedLink(state(rates=rates)))
    async with running(app, (80, 24)):
        said = " ".join(app.query_one(HistogramPanel).text.split())
        assert f"none since the change at {TIME}: p runs a prompt" in said
    assert live_figures(state(rates=rates)).commit_note == "none since the change"
