"""All bindings of all screens, for the keymap's check and the documentation."""

from __future__ import annotations

from textual.binding import Binding

from .keymap import APP_BINDINGS


def all_bindings() -> list[Binding]:
    """Every binding that has an id, the application's first."""
    from .screens.configure import ConfigurePane
    from .screens.dashboard import DashboardPane
    from .screens.hosts import HostsPane
    from .screens.logs import LogsPane
    from .screens.playground import PlaygroundPane
    from .screens.truth import TruthPane
    from .widgets.field import LeavingInput
    from .widgets.toggle import Toggle

    owners = (
        DashboardPane.BINDINGS,
        ConfigurePane.BINDINGS,
        TruthPane.BINDINGS,
        LogsPane.BINDINGS,
        PlaygroundPane.BINDINGS,
        HostsPane.BINDINGS,
        LeavingInput.BINDINGS,
        Toggle.BINDINGS,
    )
    bindings = [binding for binding in APP_BINDINGS if isinstance(binding, Binding)]
    for owner in owners:
        bindings += [binding for binding in owner if isinstance(binding, Binding)]
    return bindings
