"""The tree view: one verify at a time, the newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ..link import LinkError
from ..tree import VerifyPicture, draw_tree, mean_lengths, summary
from ..work import begin
from .dialog import Dialog, ScrollText

if TYPE_CHECKING:
    from ..app import ConsoleApp

LIMIT = 100


class TreeScreen(Dialog[None]):
    """Left and right walk through the recorded verifies."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1)", "verify", show=True, id="tree.earlier", tooltip="the verify before", priority=True),
        Binding("right", "step(1)", "verify", show=True, id="tree.later", tooltip="the next verify", priority=True),
    ]
    topic = "tree"

    def __init__(self, pictures: tuple[VerifyPicture, ...]) -> None:
        super().__init__("One verify")
        self._pictures = pictures
        self._index = len(pictures) - 1

    def compose_body(self) -> ComposeResult:
        yield ScrollText(Text(), id="tree")

    def on_mount(self) -> None:
        if not self.has_parts:
            return
        self._repaint()

    def action_step(self, by: int) -> None:
        self._index = max(0, min(len(self._pictures) - 1, self._index + by))
        self._repaint()

    def _repaint(self) -> None:
        picture = self._pictures[self._index]
        variables = self.app.theme_variables
        text = Text()
        text.append(f"{summary(picture)}\n", style="bold")
        means = mean_lengths(self._pictures)
        if means is not None:
            text.append(
                f"of {len(self._pictures)} recorded: commit {means[0]:.2f}, expected {means[1]:.2f}\n\n",
                style=variables.get("quiet", ""),
            )
        lines = draw_tree(picture, accepted=variables.get("success", ""), quiet=variables.get("quiet", ""))
        text.append_text(Text("\n").join(lines))
        self.query_one(ScrollText).show_text(text)


def open_tree(app: ConsoleApp) -> None:
    """Fetch the newest recorded verifies and open the view; says why when there are none."""
    link = app.link
    if link is None:
        return

    async def fetch() -> None:
        try:
            pictures = await link.verifies(LIMIT)
        except LinkError as error:
            app.notify(str(error), severity="warning", markup=False)
            return
        if pictures:
            app.push_screen(TreeScreen(pictures))
        else:
            app.notify("No verify is recorded yet: send a prompt from the playground first.", severity="warning")

    begin(app, fetch, "reading a verify", group="tree", exclusive=True)
