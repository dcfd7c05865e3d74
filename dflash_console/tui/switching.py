"""From one host to another: what is built anew, and what is asked on the way."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from textual.widgets import ContentSwitcher

from .screens.dashboard import DashboardPane
from .work import begin

if TYPE_CHECKING:
    from .host_app import HostApp


async def fresh_panes(app: HostApp) -> None:
    """Put a new dashboard in place of all numbered screens, whose figures, answers and lines were another host's."""
    while len(app.screen_stack) > 1:
        app.pop_screen()
    root = app.screen_stack[0]
    root.minimize()
    switcher = root.query_one("#panes", ContentSwitcher)
    await switcher.remove_children()
    await switcher.mount(DashboardPane(app.model))
    switcher.current = "dashboard"
    if app.plots_loaded:
        app.pane.plots_ready()
    app.pane.focus_default()


def ask_for_unit(app: HostApp, units: tuple[str, ...]) -> None:
    """The host has several units: the one that is chosen is opened."""
    from .screens.choose import ChooseScreen

    host = app.watching.host

    def chosen(unit: str | None) -> None:
        if unit is not None and app.fleet is not None:
            begin(app, partial(open_host, app, host, unit), "opening a host", group="switch", exclusive=True)

    app.push_screen(ChooseScreen("Units", f"{host} has several units. Which one?", units), chosen)


async def open_host(app: HostApp, host: str, unit: str | None = None) -> None:
    """Show another of the configured hosts."""
    fleet = app.fleet
    if fleet is not None:
        await fleet.let_go(host)
        # In the console's own turn and to its end: no key and no message finds the old screens gone and the new ones not there.
        app.call_later(app.switch_host, host, lambda: fleet.open(host, unit), unit)
