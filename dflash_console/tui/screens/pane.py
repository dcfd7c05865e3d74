"""What all numbered screens have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import Vertical
from textual.widget import Widget

from ..focus import take_focus

if TYPE_CHECKING:
    from ..app import ConsoleApp
    from ..model import ConsoleModel


def app_of(widget: Widget) -> ConsoleApp:
    """The console that the widget is part of."""
    from ..app import ConsoleApp

    app = widget.app
    assert isinstance(app, ConsoleApp)
    return app


class Pane(Vertical):
    """One numbered screen under the common header. It reads the model and never a host."""

    edits = False
    """Whether the keys that edit settings work here."""
    needed_keys: tuple[str, ...] = ()
    """The console's keys, by their names, that are needed here before its others, where the last line has no room for all."""
    default_focus = ""
    """Selector of the widget that is focused when the pane is shown."""

    def show(self, model: ConsoleModel) -> None:
        """Show the newest snapshot; called when one arrives while the pane is visible, and when it becomes visible."""

    def change_edited(self, model: ConsoleModel) -> None:
        """The change being put together is another one now."""

    def plots_ready(self) -> None:
        """The plotting library is loaded."""

    def save_text(self, text: str, kind: str, verb: str) -> None:
        """Write ``text`` to a new file among the exports and say where: ``Saved PATH``."""
        try:
            path = app_of(self).save_text(text, kind)
        except OSError as error:
            self.notify(f"The file could not be written: {error.strerror}", severity="error", markup=False)
        else:
            self.notify(f"{verb} {path}", markup=False)

    def focus_default(self) -> None:
        """Give the focus to the pane's main widget."""
        if self.default_focus:
            take_focus(self.query_one(self.default_focus))
