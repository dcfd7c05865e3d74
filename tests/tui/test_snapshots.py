"""Pictures of every screen at two sizes, with a stopped clock. ``pytest tests/tui/test_snapshots.py --snapshot-update`` takes
them anew; look at them before they are committed."""

from __future__ import annotations

import pytest

from dflash_console.tui.screens.compare import CompareScreen
from dflash_console.tui.screens.dialog import ScrollText
from dflash_console.tui.screens.plan import PlanScreen
from dflash_console.tui.tree import read_pictures

from .conftest import MakeApp
from .pictures import SnapCompare, after
from .recorded import HOT, ROUND
from .support import EIGHT_GPUS, START_LINES, T0, RecordedLink, state, wavy_past

SIZES = [pytest.param((80, 24), id="80x24"), pytest.param((120, 40), id="120x40")]


def a_link(**changes: object) -> RecordedLink:
    link = RecordedLink(state(**changes), past=wavy_past(T0 + 134))  # type: ignore[arg-type]
    link.pictures = read_pictures([ROUND])
    return link


@pytest.mark.parametrize("size", SIZES)
def test_dashboard(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    assert snap_compare(make_app(a_link()), terminal_size=size, run_before=after())


@pytest.mark.parametrize("size", SIZES)
def test_dashboard_with_gpus_and_a_change(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    assert snap_compare(make_app(a_link(gpus=EIGHT_GPUS)), terminal_size=size, run_before=after("b", "w"))


@pytest.mark.parametrize("size", SIZES)
def test_dashboard_with_the_prompt(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    assert snap_compare(make_app(a_link()), terminal_size=size, run_before=after("p", "enter"))


@pytest.mark.parametrize("size", SIZES)
def test_configure(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    app = make_app(a_link())
    # The preview comes a moment after the last key.
    shown = after("2", "b", "W", until_shown=lambda app: "layers-window" in app.query_one("#written", ScrollText).text)
    assert snap_compare(app, terminal_size=size, run_before=shown)


@pytest.mark.parametrize("size", SIZES)
def test_plan(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    app = make_app(a_link())
    shown = after("b", "a", until_shown=lambda app: isinstance(app.screen, PlanScreen))
    assert snap_compare(app, terminal_size=size, run_before=shown)


@pytest.mark.parametrize("size", SIZES)
def test_truth(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    app = make_app(a_link(texts=HOT, speculative_ddtree_budget=16))
    assert snap_compare(app, terminal_size=size, run_before=after("3"))


@pytest.mark.parametrize("size", SIZES)
def test_logs(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    assert snap_compare(make_app(a_link()), terminal_size=size, run_before=after("4", "c"))


@pytest.mark.parametrize("size", SIZES)
def test_playground(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    assert snap_compare(make_app(a_link()), terminal_size=size, run_before=after("5", "enter"))


@pytest.mark.parametrize("size", SIZES)
def test_tree(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    assert snap_compare(make_app(a_link()), terminal_size=size, run_before=after("4", "T"))


@pytest.mark.parametrize("size", SIZES)
def test_comparison(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    app = make_app(a_link())
    shown = after("5", "enter", "enter", "C", until_shown=lambda app: isinstance(app.screen, CompareScreen))
    assert snap_compare(app, terminal_size=size, run_before=shown)


def test_dashboard_in_the_light_theme(snap_compare: SnapCompare, make_app: MakeApp) -> None:
    app = make_app(a_link(), theme="light")
    assert snap_compare(app, terminal_size=(120, 40), run_before=after())


def test_a_loading_engine_in_high_contrast(snap_compare: SnapCompare, make_app: MakeApp) -> None:
    app = make_app(a_link(ready=False, texts=START_LINES[:6]), theme="high-contrast")
    assert snap_compare(app, terminal_size=(80, 24), run_before=after())
