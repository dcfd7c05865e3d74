"""Hosts as tests of the screens need them: rows and links given beforehand, and a console opened on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from textual.pilot import Pilot

from dflash_console.hosts.transport import Link, LinkStatus
from dflash_console.state import HostState
from dflash_console.tui.app import ConsoleApp, ConsoleSettings
from dflash_console.tui.facts import DriftBadge, Tone
from dflash_console.tui.fleet import HostView, Look, NewHost
from dflash_console.tui.link import KeyQuestion, LinkError, UnknownHostKey
from dflash_console.tui.series import Point
from dflash_console.tui.widgets.connection_notice import ConnectionNotice
from dflash_console.tui.widgets.host_table import HostTable

from .support import IDLE, NOW, STOPPED_CLOCK, T0, RecordedLink, state

UP = Link(LinkStatus.UP, NOW - 60)
LOST = Link(LinkStatus.LOST, NOW + 0.4 - 12, "the host stopped answering", next_try=NOW + 0.4 + 4)


def on_host(name: str, unit: str = "sglang-k26-ddtree.service", **changes: object) -> HostState:
    """A snapshot of a server's unit."""
    found = state(**changes)  # type: ignore[arg-type]
    assert found.service is not None
    service = replace(found.service, value=replace(found.service.value, unit=unit))
    return replace(found, host=name, unit=unit, embedded=False, service=service)


def remote_link(name: str, **changes: object) -> RecordedLink:
    link = RecordedLink(on_host(name, **changes))  # type: ignore[arg-type]
    link.connection = UP
    return link


class RecordedFleet:
    """Hosts whose rows and links are given beforehand."""

    def __init__(self, *views: HostView) -> None:
        self.rows = {view.name: view for view in views}
        self.links: dict[str, Callable[[str | None], RecordedLink]] = {}
        self.watched: list[str] = []
        self.opened: list[tuple[str, str | None]] = []
        self.closed = False

    def views(self) -> tuple[HostView, ...]:
        return tuple(self.rows.values())

    def watch(self, besides: str) -> None:
        self.watched.append(besides)

    async def let_go(self, host: str) -> None:
        pass

    async def open(self, host: str, unit: str | None) -> RecordedLink:
        self.opened.append((host, unit))
        return self.links[host](unit)

    async def add(self, host: NewHost) -> str:
        name = host.name or host.address.rpartition("@")[2]
        if name in self.rows:
            raise LinkError(f"there is a host called {name} already: give this one another name")
        self.rows[name] = HostView(name, host.address, host.unit, host.note)
        return name

    async def remove(self, host: str) -> None:
        del self.rows[host]

    async def close(self) -> None:
        self.closed = True


def curve(*values: float | None) -> tuple[Point, ...]:
    return tuple(Point(T0 - 700 + 60 * index, value) for index, value in enumerate(values))


def a_fleet() -> RecordedFleet:
    """The embedded host, a server that works, one in drift, one that cannot be reached and one whose key is new."""
    fleet = RecordedFleet(
        HostView("embedded", note="this machine's embedded engine"),
        HostView(
            "gpu-a",
            "root@gpu-a",
            look=Look.SEEN,
            state=on_host("gpu-a"),
            link=UP,
            decode=curve(98, 97, 99, None, 150, 151, 149),
            commit=curve(2, 2, 2.1, None, 4.4, 4.5, 4.4),
            drift=DriftBadge("✓ confirmed", Tone.GOOD),
        ),
        HostView(
            "gpu-b",
            "root@gpu-b",
            "sglang-b.service",
            note="eight cards, second rack",
            look=Look.SEEN,
            state=on_host("gpu-b", "sglang-b.service", rates=IDLE),
            link=LOST,
            drift=DriftBadge("✗ 2 drift", Tone.BAD),
        ),
        HostView("gpu-c", "root@10.0.0.9", look=Look.FAILED, problem="10.0.0.9 port 22 did not answer within 10 s: is it up"),
        HostView("gpu-d", look=Look.FAILED, problem="the key of gpu-d is not known yet", needs_answer=True, address="gpu-d"),
    )
    fleet.links["gpu-a"] = lambda unit: remote_link("gpu-a")
    return fleet


def make_hosts_app(link: RecordedLink, fleet: RecordedFleet | None = None, host: str = "embedded") -> ConsoleApp:
    async def open_link() -> RecordedLink:
        return link

    return ConsoleApp(open_link, ConsoleSettings(), clock=STOPPED_CLOCK, host=host, fleet=fleet or a_fleet())


def table(app: ConsoleApp) -> str:
    return app.query_one(HostTable).text


def notice(app: ConsoleApp) -> str:
    return app.screen_stack[0].query_one(ConnectionNotice).text


async def open_hosts(pilot: Pilot[None]) -> None:
    await pilot.press("7")
    await pilot.pause()


def key_error(accepted: list[bool]) -> UnknownHostKey:
    async def trust() -> None:
        accepted.append(True)

    question = KeyQuestion("gpu-a, reached through bastion,", "ssh-ed25519", "SHA256:abc", "/home/me/.ssh/known_hosts")
    return UnknownHostKey("the key of gpu-a is not known yet: ssh-ed25519 SHA256:abc", question, trust)
