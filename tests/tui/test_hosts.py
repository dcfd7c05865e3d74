"""The Hosts screen, going from host to host, host keys, and a link that is lost."""

from __future__ import annotations

import asyncio

import pytest

from dflash_console.hosts.transport import CommandRecord, Link, LinkStatus
from dflash_console.tui.fleet import HostView
from dflash_console.tui.link import ChooseUnit, LinkError
from dflash_console.tui.screens.command_log import CommandLogScreen
from dflash_console.tui.screens.dialog import ScrollText
from dflash_console.tui.screens.host_key import HostKeyScreen
from dflash_console.tui.series import Point
from dflash_console.tui.sparkline import sparkline
from dflash_console.tui.widgets.plot_panel import PlotPanel

from .driving import header, notices, running, until
from .fleets import (
    LOST,
    UP,
    a_fleet,
    key_error,
    make_hosts_app,
    notice,
    on_host,
    open_hosts,
    remote_link,
    table,
)
from .support import NOW, STOPPED_CLOCK, T0, RecordedLink, state


async def test_all_hosts_are_seen_at_a_glance() -> None:
    fleet = a_fleet()
    app = make_hosts_app(RecordedLink(state()), fleet)
    async with running(app) as pilot:
        await open_hosts(pilot)
        rows = {line[3:].split()[0]: line for line in table(app).split("\n") if not line.startswith("     ")}
        assert "running" in rows["gpu-a"]
        assert "DDTREE b8 k4" in rows["gpu-a"]
        assert "▆▅▆ ███" in rows["gpu-a"], "with the gap of its restart"
        assert "✓ confirmed" in rows["gpu-a"]
        assert "link lost" in rows["gpu-b"]
        assert "✗ 2 drift" in rows["gpu-b"]
        assert "not reached" in rows["gpu-c"]
        assert "has a question" in rows["gpu-d"]
        assert rows["embedded"].startswith("▸")
        assert "61.4" in rows["embedded"], "the host that is shown is read from the model"
        assert fleet.watched[-1] == "embedded"


async def test_the_chosen_row_says_where_the_host_is_and_what_is_wrong_with_it() -> None:
    app = make_hosts_app(RecordedLink(state()))
    async with running(app) as pilot:
        await open_hosts(pilot)
        await pilot.press("down", "down")
        assert "root@gpu-b · unit sglang-b.service · eight cards, second rack" in table(app)
        assert "link lost 12 s ago, trying again in 4 s: the host stopped answering" in table(app)
        await pilot.press("down")
        assert "did not answer within 10 s" in table(app)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_rows_fit_every_width(size: tuple[int, int]) -> None:
    app = make_hosts_app(RecordedLink(state()))
    async with running(app, size) as pilot:
        await open_hosts(pilot)
        assert max(len(line) for line in table(app).split("\n")) <= size[0] - 4
        assert "61.4" in table(app)


async def test_enter_goes_to_a_host_and_nothing_of_the_one_before_stays() -> None:
    first = RecordedLink(state())
    app = make_hosts_app(first)
    async with running(app) as pilot:
        await pilot.press("b")
        await open_hosts(pilot)
        await pilot.press("down", "enter")
        await until(lambda: "gpu-a ▸ sglang-k26-ddtree.service ▸ ● running" in header(app), "the other host")
        assert first.closed
        assert app.model.state is not None
        assert app.model.state.host == "gpu-a"
        assert not app.model.change, "an edit was meant for the host before"
        assert len(app.model.decode) <= 1
        assert app.pane.id == "dashboard"
        await pilot.press("4")
        await until(lambda: app.pane.id == "logs", "the log")


async def test_a_late_snapshot_of_the_host_before_is_dropped() -> None:
    from dflash_console.tui import messages

    app = make_hosts_app(RecordedLink(state()))
    async with running(app) as pilot:
        before = app.watching
        await open_hosts(pilot)
        await pilot.press("down", "enter")
        await until(lambda: app.model.state is not None and app.model.state.host == "gpu-a", "the other host")
        app.post_message(messages.StateArrived(state(), before))
        await pilot.pause()
        assert app.model.state is not None
        assert app.model.state.host == "gpu-a"


async def test_an_operation_goes_on_when_its_host_is_left_and_its_end_is_told() -> None:
    first = RecordedLink(state())
    first.hold.clear()
    app = make_hosts_app(first)
    async with running(app) as pilot:
        await pilot.press("r", "enter")
        await until(lambda: app.model.busy == "restarting", "the restart")
        await pilot.press("escape")
        await open_hosts(pilot)
        await pilot.press("down", "enter")
        await until(lambda: app.model.state is not None and app.model.state.host == "gpu-a", "the other host")
        assert "restarting on embedded goes on there" in notices(app)
        assert app.model.busy == ""
        assert not first.closed, "its operation needs the connection"
        first.hold.set()
        await until(lambda: "the operation has no result here" in notices(app), "how it ended")
        await until(lambda: first.closed, "the end of the connection")


async def test_a_host_is_added_and_removed() -> None:
    fleet = a_fleet()
    app = make_hosts_app(RecordedLink(state()), fleet)
    async with running(app) as pilot:
        await open_hosts(pilot)
        await pilot.press("n")
        await pilot.press(*"root@gpu e")
        await pilot.press("enter")
        assert "names no host that SSH could reach" in str(app.screen.query_one("#host-said").render())
        await pilot.press("backspace", "backspace", "minus", "e", "tab", "tab", *"unit", "enter")
        await until(lambda: "gpu-e" in fleet.rows, "the new host")
        assert fleet.rows["gpu-e"] == HostView("gpu-e", "root@gpu-e", "unit")
        await until(lambda: "▸… gpu-e" in table(app), "the cursor on it")
        await pilot.press("d", "enter")
        await until(lambda: "gpu-e" not in fleet.rows, "the removal")


async def test_this_machine_cannot_be_removed() -> None:
    app = make_hosts_app(RecordedLink(state()))
    async with running(app) as pilot:
        await open_hosts(pilot)
        await pilot.press("d")
        assert "this machine's own" in notices(app)


async def test_an_unknown_host_key_is_asked_about_and_accepted_only_by_y() -> None:
    accepted: list[bool] = []
    app = make_hosts_app(RecordedLink(state()))

    async def open_link() -> RecordedLink:
        if not accepted:
            raise key_error(accepted)
        return remote_link("gpu-a")

    app.watching._open_link = open_link
    async with app.run_test(size=(100, 30)) as pilot:
        await until(lambda: isinstance(app.screen, HostKeyScreen) and app.screen.takes_answers, "the question")
        shown = str(app.screen.query_one(".question").render())
        assert "SHA256:abc" in shown
        assert "gpu-a, reached through bastion" in shown
        await pilot.press("enter")
        await until(lambda: "It was not accepted" in " ".join(notice(app).split()), "the reason")
        assert not accepted, "enter says no"
        await pilot.press("f5")
        await until(lambda: isinstance(app.screen, HostKeyScreen) and app.screen.takes_answers, "the question again")
        await pilot.press("y")
        await until(lambda: "gpu-a ▸" in header(app), "the host")
        assert accepted == [True]
        assert notice(app) == ""


async def test_a_host_that_cannot_be_reached_is_tried_again_and_the_screens_stay_usable() -> None:
    tries: list[int] = []
    app = make_hosts_app(RecordedLink(state()))

    async def open_link() -> RecordedLink:
        tries.append(1)
        if len(tries) < 3:
            raise LinkError("gpu-a port 22 did not answer within 10 s: is it up, and is the way open?", again=True)
        return remote_link("gpu-a")

    app.watching._open_link = open_link
    async with app.run_test(size=(100, 30)) as pilot:
        await until(lambda: "did not answer within 10 s" in notice(app), "the reason")
        assert "F5 tries now" in notice(app)
        assert "✗ not connected" in header(app)
        await open_hosts(pilot)
        assert "gpu-c" in table(app)
        await pilot.press("f5")
        await until(lambda: "gpu-a ▸" in header(app), "the host, by the key or by itself")
        assert notice(app) == ""


async def test_of_several_units_one_is_chosen() -> None:
    fleet = a_fleet()
    fleet.links["gpu-a"] = lambda unit: remote_link("gpu-a")
    app = make_hosts_app(RecordedLink(state()), fleet, host="gpu-a")

    async def open_link() -> RecordedLink:
        raise ChooseUnit("gpu-a has several units: a.service, b.service; choose one with --unit", ("a.service", "b.service"))

    app.watching._open_link = open_link
    async with app.run_test(size=(100, 30)) as pilot:
        await until(lambda: len(app.screen_stack) == 2, "the question")
        await pilot.press("down", "enter")
        await until(lambda: app.model.state is not None, "the host")
        assert fleet.opened == [("gpu-a", "b.service")]


async def test_a_lost_link_is_said_in_the_header_and_the_figures_are_called_stale() -> None:
    link = remote_link("gpu-a")
    app = make_hosts_app(link, host="gpu-a")
    async with running(app) as pilot:
        link.connection = LOST
        await until(lambda: "✗ link lost 12 s ago, trying again in 4 s" in header(app), "the lost link")
        assert "stale" in header(app)
        assert "the host stopped answering" in notice(app)
        assert "stale" in app.query_one("#decode", PlotPanel).text
        assert "stale" in app.query_one("#requests").text  # type: ignore[attr-defined]
        link.connection = UP
        link.push(on_host("gpu-a", revision=2))
        await until(lambda: "● running" in header(app), "the healed link")
        await pilot.pause()
        assert "stale" not in app.query_one("#decode", PlotPanel).text
        assert notice(app) == ""


async def test_the_plots_go_on_without_the_host_so_that_they_show_the_gap() -> None:
    link = remote_link("gpu-a")
    app = make_hosts_app(link, host="gpu-a")
    async with running(app):
        app.model.wall -= 30
        link.connection = LOST
        await until(lambda: app.model.wall == STOPPED_CLOCK.wall(), "time that goes on")


async def test_a_changed_host_key_is_refused_with_both_fingerprints() -> None:
    link = remote_link("gpu-a")
    app = make_hosts_app(link, host="gpu-a")
    words = "the key of gpu-a has changed: it shows SHA256:new, known is SHA256:old (/home/me/.ssh/known_hosts, line 3)"
    async with running(app) as pilot:
        link.connection = Link(LinkStatus.REFUSED, NOW, words)
        await until(lambda: "SHA256:new" in notice(app), "the refusal")
        assert "SHA256:old" in notice(app)
        assert "line 3" in " ".join(notice(app).split())
        await pilot.press("f5")
        await until(lambda: link.reconnected == 1, "another try")


async def test_the_command_log_shows_what_was_run_and_what_it_changed() -> None:
    link = remote_link("gpu-a")
    link.records = (
        CommandRecord(T0, ("systemctl", "show", "--", "a.service"), 0, 0.04, False),
        CommandRecord(T0 + 1, ("systemctl", "restart", "--no-block", "a.service"), 0, 0.2, True),
        CommandRecord(T0 + 2, ("journalctl", "-o", "json", "line\none"), None, 31.0, False),
    )
    app = make_hosts_app(link, host="gpu-a")
    async with running(app) as pilot:
        await pilot.press("exclamation_mark")
        await until(lambda: isinstance(app.screen, CommandLogScreen), "the command log")

        def shown() -> str:
            return app.screen.query_one("#commands", ScrollText).text

        await until(lambda: "systemctl" in shown(), "the records")
        first, second, third = shown().strip().split("\n")
        assert "cut off" in first
        assert "changes  systemctl restart --no-block a.service" in second
        assert "status 0" in third
        assert "reads    systemctl show -- a.service" in third
        await pilot.press("c")
        assert shown().count("\n") == 1
        await pilot.press("c", "slash", *"show", "enter")
        assert shown().strip().endswith("systemctl show -- a.service")
        await pilot.press("y")
        assert "1 commands copied" in notices(app)


def test_a_curve_is_the_mean_of_its_cells_and_blank_where_nothing_is_known() -> None:
    points = [Point(0.5, 1.0), Point(1.5, None), Point(2.5, 2.0), Point(2.6, 2.0), Point(3.5, 0.0)]
    assert sparkline(points, 0.0, 4.0, 4) == "▅ █▁"
    assert sparkline([], 0.0, 4.0, 4) == "    "
    assert sparkline(points, 4.0, 4.0, 4) == ""


async def test_a_host_that_hangs_while_it_is_opened_does_not_hold_up_leaving() -> None:
    app = make_hosts_app(RecordedLink(state()))

    async def hang() -> RecordedLink:
        await asyncio.sleep(3600)
        raise AssertionError

    app.watching._open_link = hang
    async with asyncio.timeout(30):
        async with app.run_test(size=(100, 30)) as pilot:
            await pilot.pause()
            assert "embedded ▸ … connecting" in header(app)
            await pilot.press("q")
