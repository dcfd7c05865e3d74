"""The numbered screens and the dialogs over them. A screen's module is imported when it is first opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..model import ConsoleModel
    from .pane import Pane


def make_pane(name: str, model: ConsoleModel) -> Pane:
    """The numbered screen called ``name``.

    Raises:
        KeyError: there is none.
    """
    if name == "configure":
        from .configure import ConfigurePane

        return ConfigurePane(model)
    if name == "truth":
        from .truth import TruthPane

        return TruthPane()
    if name == "logs":
        from .logs import LogsPane

        return LogsPane()
    if name == "playground":
        from .playground import PlaygroundPane

        return PlaygroundPane()
    if name == "hosts":
        from .hosts import HostsPane

        return HostsPane()
    raise KeyError(name)
