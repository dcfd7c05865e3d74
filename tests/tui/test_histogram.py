"""The histogram says which verifies it counts."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from dflash_console.evidence.rates import Rates
from dflash_console.tui.figures import live_figures
from dflash_console.tui.widgets.histogram import HistogramPanel

from .conftest import MakeApp
from .driving import running, until
from .support import BUSY, T0, RecordedLink, state

TIME = time.strftime("%H:%M:%S", time.localtime(T0))


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        (replace(BUSY, accept_since=T0), f"100 since {TIME}"),
        (replace(BUSY, accept_since=T0, changed=True), f"100 since {TIME}"),
        (BUSY, "100, last minute"),
        (replace(BUSY, commit_stale=True, running=0), "100, last busy minute"),
    ],
)
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_lower_edge_says_when_the_verifies_were(
    make_app: MakeApp, rates: Rates, words: str, size: tuple[int, int]
) -> None:
    app = make_app(RecordedLink(state(rates=rates)))
    async with running(app, size):
        panel = app.query_one(HistogramPanel)
        said = panel.text.split("\n")[-1]
        assert said.replace(" verifies", "") == words
        assert len(said) <= panel.inner_size()[0]


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
