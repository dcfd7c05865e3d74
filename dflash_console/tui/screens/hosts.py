"""All hosts at a glance; ``enter`` goes to one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from ..fleet import HostView, Look
from ..link import LinkError
from ..widgets.host_table import HostTable
from ..work import begin
from .pane import Pane, app_of

if TYPE_CHECKING:
    from ..fleet import NewHost
    from ..model import ConsoleModel

LEGEND = " ← shown on the other screens   – not known   ✗ not reached   ? has a question   F1 explains"


class HostsPane(Pane):
    """Looks at the hosts for as long as it is open."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "host", id="hosts.up", tooltip="the host above", show=False),
        Binding("down,j", "move(1)", "host", id="hosts.down", tooltip="the host below", show=False),
        Binding("enter", "open", "open", show=True, id="hosts.open", tooltip="show this host on all screens"),
        Binding("n", "add", "add", show=True, id="hosts.add", tooltip="add a host to the configuration"),
        Binding("d,delete", "remove", "remove", show=True, id="hosts.remove", tooltip="take a host out of the configuration"),
    ]
    default_focus = "#hosts-table"

    def __init__(self) -> None:
        super().__init__(id="hosts")

    def compose(self) -> ComposeResult:
        yield HostTable(id="hosts-table")
        yield Static(Text(LEGEND, style="dim"), id="hosts-legend")

    def on_mount(self) -> None:
        self.set_interval(1.0, self._tick)

    def _tick(self) -> None:
        app = app_of(self)
        if app.pane is self and len(app.screen_stack) == 1:
            self.show(app.model)

    def show(self, model: ConsoleModel) -> None:
        app = app_of(self)
        here = app.watching.host or (model.state.host if model.state is not None else "")
        if app.fleet is None:
            views: tuple[HostView, ...] = (HostView(here or "this machine", configured=True),)
        else:
            app.fleet.watch(here)
            views = app.fleet.views()
        views = tuple(_with_model(view, model) if view.name == here else view for view in views)
        table = self.query_one(HostTable)
        table.show_hosts(views, current=here, now=app.clock.monotonic(), wall=app.clock.wall())

    def action_move(self, by: int) -> None:
        self.query_one(HostTable).move(by)

    async def action_open(self) -> None:
        """Show the chosen host on all screens."""
        app, view = app_of(self), self.query_one(HostTable).current
        if view is None or app.fleet is None:
            return
        if view.name == app.watching.host and app.model.state is not None:
            await app.action_open_pane("dashboard")
            return
        from ..switching import open_host

        # A worker of the application: this pane is gone when it ends.
        begin(app, partial(open_host, app, view.name), "opening a host", group="switch", exclusive=True)

    async def on_host_table_picked(self, message: HostTable.Picked) -> None:
        message.stop()
        await self.action_open()

    def action_add(self) -> None:
        from .add_host import AddHostScreen

        view = self.query_one(HostTable).current
        address = view.name if view is not None and not view.configured else ""
        self.app.push_screen(AddHostScreen(address), self._added)

    def _added(self, host: NewHost | None) -> None:
        if host is not None:
            begin(self, partial(self._add, host), "adding a host", group="hosts")

    async def _add(self, host: NewHost) -> None:
        app = app_of(self)
        if app.fleet is None:
            return
        try:
            name = await app.fleet.add(host)
        except LinkError as error:
            self.notify(str(error), title="Not added", severity="error", timeout=12, markup=False)
            return
        self.show(app.model)
        self.query_one(HostTable).choose(name)
        self.notify(f"{name} is in the configuration; it is being looked at.", markup=False)

    def action_remove(self) -> None:
        from .confirm import ConfirmScreen

        app, view = app_of(self), self.query_one(HostTable).current
        if view is None or app.fleet is None:
            return
        if not view.address or not view.configured:
            said = "is not in the configuration file" if view.address else "is this machine's own: it cannot be removed"
            self.notify(f"{view.name} {said}.", severity="warning", markup=False)
            return
        question = f"{view.name} is taken out of the configuration file. On the host nothing changes."
        self.app.push_screen(
            ConfirmScreen("Remove this host?", question, yes="remove"), lambda yes: self._removed(view.name) if yes else None
        )

    def _removed(self, name: str) -> None:
        begin(self, partial(self._remove, name), "removing a host", group="hosts")

    async def _remove(self, name: str) -> None:
        app = app_of(self)
        if app.fleet is None:
            return
        try:
            await app.fleet.remove(name)
        except LinkError as error:
            self.notify(str(error), title="Not removed", severity="error", timeout=12, markup=False)
        else:
            self.show(app.model)


def _with_model(view: HostView, model: ConsoleModel) -> HostView:
    """The host that the console shows: what is known of it is in the model."""
    since = model.wall - 900.0
    look = Look.SEEN if model.state is not None else Look.FAILED if model.connection_problem else Look.CONNECTING
    return replace(
        view,
        look=look,
        state=model.state,
        link=model.link,
        problem=model.connection_problem,
        decode=model.decode.since(since),
        commit=model.commit.since(since),
        drift=model.drift,
    )
