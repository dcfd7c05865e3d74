"""Eight GPUs on the dashboard: a row each at every size, and at a glance which one is bad. The rows are derived ones."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from textual.widget import Widget

from dflash_console.state import Aged, HostState
from dflash_console.tui.widgets.change_bar import ChangeBar
from dflash_console.tui.widgets.connection_notice import ConnectionNotice
from dflash_console.tui.widgets.event_list import EventLine
from dflash_console.tui.widgets.gpu_panel import GpuPanel
from dflash_console.tui.widgets.key_line import KeyLine
from dflash_console.tui.widgets.panel import Panel
from dflash_console.tui.widgets.plot_panel import PlotPanel
from dflash_console.tui.widgets.prompt_dock import PromptDock
from tests.gpu_recordings import gpus, on_eight

from .conftest import MakeApp
from .driving import running, until
from .fleets import LOST, make_hosts_app
from .pictures import SnapCompare, after
from .support import BUSY, IDLE, NOW, T0, RecordedLink, state, wavy_past

SIZES = [
    pytest.param((80, 24), id="80x24"),
    pytest.param((100, 24), id="100x24"),
    pytest.param((120, 40), id="120x40"),
    pytest.param((200, 60), id="200x60"),
]
TROUBLED = ("eight-troubled", "apps-seven-and-a-stranger")
WORDS = {1: "slow 94°", 2: "ECC 3", 3: "MIG", 4: "reset", 5: "cannot be reached", 6: "error", 7: "stranger"}
"""What stands beside each bad one."""


def eight(rows: str | None = "eight-load", apps: str | None = "apps-eight-ranks", *, problem: str = "") -> HostState:
    rates = IDLE if rows == "eight-idle" else BUSY
    return on_eight(state(rates=rates), rows, apps, problems=[("gpus", problem)] if problem else [])


def a_link(found: HostState) -> RecordedLink:
    return RecordedLink(found, past=wavy_past(T0 + 134))


def shown(panel: GpuPanel) -> list[str]:
    """The lines inside the frame."""
    return panel.text.split("\n")[1:-1]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rows", ["eight-idle", "eight-load", "eight-troubled"])
async def test_all_eight_have_a_row_that_is_not_cut(make_app: MakeApp, size: tuple[int, int], rows: str) -> None:
    app = make_app(a_link(eight(rows, TROUBLED[1] if rows == TROUBLED[0] else "apps-eight-ranks")))
    async with running(app, size):
        panel = app.query_one(GpuPanel)
        await until(lambda: len(shown(panel)) >= 8, "the rows")
        lines = shown(panel)
        assert [line[0] for line in lines[:8]] == list("01234567")
        width, height = panel.inner_size()
        assert len(lines) <= height, "all rows are inside the frame"
        assert max(map(len, lines)) <= width
        assert not any("…" in line for line in lines[:8])
        assert panel.region.bottom <= min(app.query_one(KeyLine).region.y, size[1]), "nor is the panel itself cut"
        assert app.query_one("#decode", PlotPanel).inner_size()[1] >= 6, "and the plots are still plots"


@pytest.mark.parametrize("size", SIZES)
async def test_each_bad_gpu_is_marked_in_its_own_row_and_the_good_one_is_not(make_app: MakeApp, size: tuple[int, int]) -> None:
    app = make_app(a_link(eight(*TROUBLED)))
    async with running(app, size):
        panel = app.query_one(GpuPanel)
        await until(lambda: len(shown(panel)) >= 8, "the rows")
        for index, line in enumerate(shown(panel)[:8]):
            marked = "✗" in line or "!" in line
            assert marked is (index in WORDS), line
            assert WORDS.get(index, "") in line
        assert "7 of 8 to look at" in panel.text


@pytest.mark.parametrize("size", SIZES)
async def test_figures_stand_in_columns(make_app: MakeApp, size: tuple[int, int]) -> None:
    app = make_app(a_link(eight()))
    async with running(app, size):
        panel = app.query_one(GpuPanel)
        await until(lambda: len(shown(panel)) >= 8, "the rows")
        for mark in ("%", "G", "W", "°"):
            assert len({line.index(mark) for line in shown(panel)[:8]}) == 1, mark


async def test_the_ranks_are_counted_below_and_the_kind_and_memory_named_above(make_app: MakeApp) -> None:
    app = make_app(a_link(eight()))
    async with running(app, (120, 40)):
        panel = app.query_one(GpuPanel)
        await until(lambda: "8 of 8 ranks" in panel.text, "the ranks")
        assert panel.text.startswith("GPU · 8 × NVIDIA H200 · 140 GiB\n")
        assert [line.split()[-1] for line in shown(panel)[:8]] == [f"TP{number}" for number in range(8)]


async def test_a_missing_rank_is_marked_where_it_is_missing_and_told_below(make_app: MakeApp) -> None:
    app = make_app(a_link(eight(apps="apps-seven-ranks")))
    async with running(app, (120, 40)):
        panel = app.query_one(GpuPanel)
        await until(lambda: "no rank" in panel.text, "the mark")
        assert [line[0] for line in shown(panel)[:8] if "no rank" in line] == ["5"]
        assert "✗ 7 of 8 ranks hold GPU memory, TP5 does not" in panel.text


async def test_maximised_the_panel_tells_every_fault_in_a_sentence(make_app: MakeApp) -> None:
    app = make_app(a_link(eight(*TROUBLED)))
    async with running(app, (120, 40)) as pilot:
        panel = app.query_one(GpuPanel)
        await until(lambda: panel.display, "the panel")
        panel.focus()
        await pilot.press("z")
        await until(lambda: "is not this unit's" in " ".join(panel.text.split()), "the sentences")
        said = " ".join(panel.text.split())
        assert "nvidia-smi --gpu-reset -i 4" in said
        assert "GPU 5 (0000:9B:00.0) cannot be reached: Unknown Error." in said


async def test_figures_that_can_no_longer_be_read_are_called_stale_and_why(make_app: MakeApp) -> None:
    app = make_app(a_link(eight(problem="nvidia-smi on ct200 did not end within 10 s; the GPU driver may hang (dmesg tells)")))
    async with running(app, (120, 40)):
        panel = app.query_one(GpuPanel)
        await until(lambda: panel.text.split("\n")[0].endswith(" · stale"), "the mark")
        assert "nvidia-smi on ct200 did not end within 10 s" in panel.text
        assert panel.has_class("-stale")


async def test_a_host_whose_gpus_could_never_be_read_says_why(make_app: MakeApp) -> None:
    app = make_app(a_link(eight(None, None, problem="nvidia-smi on ct200 failed: no devices")))
    async with running(app, (80, 24)):
        panel = app.query_one(GpuPanel)
        await until(lambda: panel.display, "the panel")
        assert "failed: no devices" in " ".join(panel.text.split())


async def test_a_host_without_the_tool_has_no_panel(make_app: MakeApp) -> None:
    found = eight(problem="there is no nvidia-smi on ct200, so nothing is known of GPUs")
    app = make_app(a_link(replace(found, gpus=Aged((), NOW))))
    async with running(app, (80, 24)):
        assert not app.query_one(GpuPanel).display


async def test_more_gpus_than_rows_say_how_many_of_the_rest_are_bad(make_app: MakeApp) -> None:
    sixteen = [
        replace(row, index=row.index + 8, uuid=f"GPU-{row.index}") for row in gpus("eight-one-lost") if row.index is not None
    ]
    found = eight(apps=None)
    app = make_app(a_link(replace(found, gpus=Aged((*gpus("eight-load"), *sixteen), NOW))))
    async with running(app, (80, 24)):
        panel = app.query_one(GpuPanel)
        await until(lambda: "more" in panel.text, "the count")
        assert shown(panel)[-1] == "… 9 more, 1 bad: z"


async def test_few_gpus_leave_the_plots_their_rows(make_app: MakeApp) -> None:
    found = replace(eight(), gpus=Aged(gpus("eight-load")[:2], NOW))
    app = make_app(a_link(found))
    async with running(app, (80, 24)):
        panel = app.query_one(GpuPanel)
        await until(lambda: panel.display, "the panel")
        assert panel.region.height == 7
        assert app.query_one(EventLine).region.height == 1


@pytest.mark.parametrize("size", [(80, 24), (80, 30), (110, 24), (120, 30), (120, 40)])
async def test_the_prompt_dock_and_a_change_push_no_panel_off_the_screen(make_app: MakeApp, size: tuple[int, int]) -> None:
    app = make_app(a_link(eight(*TROUBLED)))
    async with running(app, size) as pilot:
        panel = app.query_one(GpuPanel)
        await until(lambda: panel.display, "the panel")

        def overhanging() -> list[str | None]:
            return [panel.id for panel in app.query(Panel) if panel.region.bottom > app.query_one(KeyLine).region.y]

        def has_rows(added: type[Widget]) -> bool:
            return app.query_one(added).region.height > 0

        for key, added in (("b", ChangeBar), ("p", PromptDock)):
            await pilot.press(key)
            # What is added has its rows first, and the panels give way in the layouts after that.
            await until(partial(has_rows, added), added.__name__)
            await until(lambda: not overhanging() and app.query_one("#decode", PlotPanel).region.height >= 8, f"room after {key}")


async def test_a_notice_above_the_plots_pushes_no_panel_off_the_screen() -> None:
    link = a_link(eight(*TROUBLED))
    link.connection = LOST
    app = make_hosts_app(link, host="ct200")
    async with running(app, (80, 24)):
        await until(lambda: bool(app.query_one(ConnectionNotice).text), "the notice")
        panel = app.query_one(GpuPanel)
        await until(lambda: panel.display and "more" in panel.text, "the panel in few rows")
        assert shown(panel)[-1] == "… 4 more, 4 bad: z"
        for other in app.query(Panel):
            assert other.region.bottom <= app.query_one(KeyLine).region.y, other.id


@pytest.mark.parametrize(
    ("accepted", "words"),
    [((9, 12, 15, 64), "last known, of 100 verifies"), ((9_000, 123_456), "last known"), ((), "last known")],
)
async def test_that_a_commit_length_is_an_old_one_is_never_cut(make_app: MakeApp, accepted: tuple[int, ...], words: str) -> None:
    app = make_app(a_link(replace(eight("eight-idle"), rates=replace(IDLE, accept_histogram=accepted))))
    async with running(app, (80, 24)):
        panel = app.query_one("#commit", PlotPanel)
        await until(lambda: "3.42" in panel.text, "the value")
        headline = panel.text.split("\n")[1]
        assert headline.rstrip().endswith(words)
        assert "…" not in headline


SHOWN = [pytest.param(size, id=f"{size[0]}x{size[1]}") for size in ((80, 24), (120, 40), (200, 60))]


@pytest.mark.parametrize("size", SHOWN)
def test_eight_gpus_under_load(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    assert snap_compare(make_app(a_link(eight())), terminal_size=size, run_before=after())


@pytest.mark.parametrize("size", SHOWN)
def test_seven_of_eight_in_trouble(snap_compare: SnapCompare, make_app: MakeApp, size: tuple[int, int]) -> None:
    assert snap_compare(make_app(a_link(eight(*TROUBLED))), terminal_size=size, run_before=after())


@pytest.mark.parametrize("size", SIZES[:3])
async def test_the_line_of_events_ends_with_a_whole_one_or_with_a_sign_that_it_goes_on(
    make_app: MakeApp, size: tuple[int, int]
) -> None:
    app = make_app(a_link(eight()))
    async with running(app, size):
        line = app.query_one(EventLine)
        await until(lambda: "ready after" in str(line.content), "the events")
        text = str(line.content)
        assert len(text) <= size[0]
        whole = ("ready after 7 s", "KV pool allocated", "top-k 4, confirmed", "…")
        assert text.rstrip().endswith(whole), text
