"""The frame of everything that opens over a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from ..keymap import key_names
from ..widgets.key_line import KeyLine
from ..wrapping import hung

Result = TypeVar("Result")


class Dialog(ModalScreen[Result]):
    """A framed box; ``escape`` leaves it without an answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "close", show=True, id="dialog.leave", tooltip="close a dialog without an answer"),
    ]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._dialog_title = title
        self._withdrawn = False

    def compose(self) -> ComposeResult:
        box = Vertical(classes="dialog")
        box.border_title = Text(self._dialog_title)
        with box:
            yield from self.compose_body()
            yield KeyLine()

    def compose_body(self) -> ComposeResult:
        """The widgets inside the frame."""
        yield Static("")

    @property
    def has_parts(self) -> bool:
        """Whether its widgets are there; they never come where it was closed as it opened, and it is mounted all the same."""
        return bool(self.query(KeyLine))

    def written_keys(self, *actions: str) -> str:
        """The keys of these actions as they are bound, the user's keymap included, in words: ``n, enter or esc``."""
        bound = self.active_bindings.items()
        keys = [
            key_names(key)
            for action in actions
            for key, active in bound
            if active.node is self and active.binding.action == action
        ]
        return " or ".join(filter(None, (", ".join(keys[:-1]), *keys[-1:])))

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Close it with an answer; once. What was on its way meanwhile, a second enter for one, closes nothing else."""
        return super().dismiss(result) if self.is_active else AwaitComplete()

    def withdraw(self) -> None:
        """Nobody waits for the answer any more: close it, at once or when nothing lies over it."""
        self._withdrawn = True
        self.dismiss(None)

    def on_screen_resume(self) -> None:
        if self._withdrawn:
            self.dismiss(None)

    def action_leave(self) -> None:
        self.dismiss(None)


class PickDialog(Dialog[Result]):
    """One of a few names, walked with keys; the subclass binds ``step`` and takes what is picked."""

    def __init__(self, title: str, names: Sequence[str]) -> None:
        super().__init__(title)
        self._names = tuple(names)
        self._index = 0

    @property
    def picked(self) -> str:
        """The name under the mark."""
        return self._names[self._index]

    def compose_body(self) -> ComposeResult:
        yield ScrollText(Text(), id="names")

    def on_mount(self) -> None:
        self._repaint()

    def action_step(self, by: int) -> None:
        self._index = (self._index + by) % len(self._names)
        self._repaint()

    def heading(self) -> Text:
        """What stands above the names."""
        return Text()

    def details(self, name: str) -> Text:
        """What stands under the name that is marked."""
        return Text()

    def _repaint(self) -> None:
        if not self.has_parts:
            return
        text = self.heading()
        for name in self._names:
            chosen = name == self.picked
            text.append(f"{'▸' if chosen else ' '} {name}\n", style="bold" if chosen else "")
            if chosen:
                text.append_text(self.details(name))
        self.query_one(ScrollText).show_text(text)


class _Folded(Static):
    """A text whose first part is sentences, which are folded anew for each width."""

    def __init__(self, text: Text) -> None:
        super().__init__(text, markup=False)
        self._whole = text
        self._prose = 0

    def show(self, text: Text, prose: int) -> None:
        self._whole, self._prose = text, prose
        self._fold()

    def on_resize(self) -> None:
        if self._prose:
            self._fold()

    def _fold(self) -> None:
        width = self.content_size.width
        if not self._prose or not width:
            self.update(self._whole)
            return
        sentences, rest = self._whole.divide([self._prose])
        self.update(hung(sentences, width, self.app.console).append_text(rest))


class ScrollText(VerticalScroll, can_focus=True):
    """A long text that scrolls with the usual keys. Never read as markup."""

    def __init__(self, text: Text, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._text = text
        self._static = _Folded(text)

    def compose(self) -> ComposeResult:
        yield self._static

    @property
    def text(self) -> str:
        return self._text.plain

    def show_text(self, text: Text, *, prose: int = 0) -> None:
        """Replace the text; nothing happens when it is the same.

        Args:
            prose: so many of the first characters are sentences, a line each, and go on beneath their beginnings.
        """
        if text != self._text:
            self._text = text
            self._static.show(text, prose)
