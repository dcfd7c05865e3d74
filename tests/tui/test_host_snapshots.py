"""Pictures of what is about hosts: all at a glance, a host key, a lost link, the commands that were run."""

from __future__ import annotations

import pytest

from dflash_console.hosts.transport import CommandRecord, Link, LinkStatus
from dflash_console.tui.app import ConsoleApp
from dflash_console.tui.screens.command_log import CommandLogScreen
from dflash_console.tui.screens.dialog import ScrollText
from dflash_console.tui.screens.host_key import HostKeyScreen
from dflash_console.tui.widgets.connection_notice import ConnectionNotice

from .fleets import LOST, UP, key_error, make_hosts_app, on_host
from .pictures import SnapCompare, after
from .support import EIGHT_GPUS, NOW, T0, RecordedLink, state, wavy_past

SIZES = [pytest.param(size, id="{}x{}".format(*size)) for size in ((80, 24), (120, 40), (200, 60))]


def a_server(**changes: object) -> RecordedLink:
    link = RecordedLink(on_host("gpu-a", **changes), past=wavy_past(T0 + 134))  # type: ignore[arg-type]
    link.connection = UP
    return link


@pytest.mark.parametrize("size", SIZES)
def test_hosts(snap_compare: SnapCompare, size: tuple[int, int]) -> None:
    app = make_hosts_app(RecordedLink(state(), past=wavy_past(T0 + 134)))
    assert snap_compare(app, terminal_size=size, run_before=after("7", "down", "down"))


@pytest.mark.parametrize("size", SIZES)
def test_a_lost_link(snap_compare: SnapCompare, size: tuple[int, int]) -> None:
    link = a_server(gpus=EIGHT_GPUS)
    link.connection = LOST
    app = make_hosts_app(link, host="gpu-a")
    shown = after(until_shown=lambda app: bool(app.query_one(ConnectionNotice).text))
    assert snap_compare(app, terminal_size=size, run_before=shown)


def test_a_changed_host_key(snap_compare: SnapCompare) -> None:
    link = a_server()
    words = (
        "the key of root@gpu-a has changed: it shows ssh-ed25519 SHA256:Zq0m7XkqEPyKBoIrVbMUHCRH0nB8xTxtyyqDFqFZJ5A, known is "
        "SHA256:2Xc3mVbq1ysT8eVvFm0jJxN0zD9oKQWnXx4rFzqjv9s (/home/me/.ssh/known_hosts, line 3). Somebody may be listening in "
        "between. If the host was really set up anew, remove the line (ssh-keygen -R 'gpu-a' -f /home/me/.ssh/known_hosts) and "
        "connect again"
    )
    link.connection = Link(LinkStatus.REFUSED, NOW - 30, words)
    app = make_hosts_app(link, host="gpu-a")
    shown = after(until_shown=lambda app: bool(app.query_one(ConnectionNotice).text))
    assert snap_compare(app, terminal_size=(80, 24), run_before=shown)


def test_adding_a_host(snap_compare: SnapCompare) -> None:
    app = make_hosts_app(RecordedLink(state()))
    assert snap_compare(app, terminal_size=(100, 30), run_before=after("7", "n", *"gpu e"))


@pytest.mark.parametrize("size", SIZES[:2])
def test_commands(snap_compare: SnapCompare, size: tuple[int, int]) -> None:
    link = a_server()
    link.records = (
        CommandRecord(T0, ("env", "TZ=UTC", "LC_ALL=C", "systemctl", "show", "--", "a.service"), 0, 0.04, False),
        CommandRecord(T0 + 1, ("systemctl", "daemon-reload"), 0, 0.31, True),
        CommandRecord(T0 + 2, ("systemctl", "restart", "--no-block", "a.service"), 0, 0.2, True),
        CommandRecord(T0 + 3, ("nvidia-smi", "--query-gpu=index,name,utilization.gpu", "--format=csv"), None, 15.0, False),
        CommandRecord(
            T0 + 4, ("stat", "-L", "-c", "%s %a %u %g %.9Y %i", "--", "/run/systemd/system/a.service.d"), 1, 0.1, False
        ),
    )
    app = make_hosts_app(link, host="gpu-a")

    def shown(app: ConsoleApp) -> bool:
        return isinstance(app.screen, CommandLogScreen) and "systemctl" in app.screen.query_one("#commands", ScrollText).text

    assert snap_compare(app, terminal_size=size, run_before=after("exclamation_mark", until_shown=shown))


def test_an_unknown_host_key(snap_compare: SnapCompare) -> None:
    from textual.pilot import Pilot

    from .driving import until

    app = make_hosts_app(RecordedLink(state()))

    async def open_link() -> RecordedLink:
        raise key_error([])

    app.watching._open_link = open_link

    async def run(pilot: Pilot[None]) -> None:
        await until(lambda: isinstance(app.screen, HostKeyScreen) and app.screen.takes_answers, "the question")
        await pilot.pause(0.3)
        await pilot.pause()

    assert snap_compare(app, terminal_size=(80, 24), run_before=run)
