"""A plot is drawn when its picture changes, and not when it is shown again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.text import Text

from dflash_console.tui import plotting
from dflash_console.tui.widgets import plot_panel
from dflash_console.tui.widgets.plot_panel import PlotPanel

from .conftest import MakeApp
from .driving import running, until
from .support import IDLE, NOW, RecordedLink, state, wavy_past


async def test_an_idle_plot_is_drawn_once_and_a_new_value_or_colour_draws_it_again(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[plotting.PlotSpec] = []

    def counted(spec: plotting.PlotSpec, colours: plotting.PlotColours, width: int, height: int) -> list[Text]:
        drawn.append(spec)
        return plotting.draw(spec, colours, width, height)

    monkeypatch.setattr(plot_panel, "draw", counted)
    app = make_app(RecordedLink(state(rates=IDLE), past=wavy_past(NOW)))
    async with running(app) as pilot:
        await until(lambda: app.plots_loaded, "the plotting library")
        await pilot.pause()
        panel = app.query_one("#decode", PlotPanel)
        drawn.clear()
        before = panel.text
        panel.redraw()
        assert (drawn, panel.text) == ([], before)
        panel._baseline = 30.0
        panel.redraw()
        assert [spec.baseline for spec in drawn] == [30.0]
        other = panel._plot_colours()
        monkeypatch.setattr(panel, "_plot_colours", lambda: replace(other, line=(1, 2, 3)))
        panel.redraw()
        assert len(drawn) == 2
