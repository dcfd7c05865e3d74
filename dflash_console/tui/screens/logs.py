"""The log of this start or of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.worker import Worker

from .. import messages
from ..log_book import Level, LogBook, LogFilter, PatternError, compile_search
from ..widgets.field import LeavingInput
from ..widgets.log_view import LogView
from .pane import Pane, app_of

if TYPE_CHECKING:
    from ..link import HostLink
    from ..model import ConsoleModel

_LEVEL_WORDS = {
    Level.REQUEST: "all lines",
    Level.BATCH: "without requests",
    Level.INFO: "without batches and requests",
    Level.WARNING: "warnings and errors",
    Level.ERROR: "errors",
}


class LogsPane(Pane):
    """Follows the host's log while it is open; what was read stays when another screen is opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "follow", "follow", show=True, id="log.follow", tooltip="stay at the newest line"),
        Binding("slash", "search", "search", show=True, id="log.search", tooltip="regular expression"),
        Binding("n", "find(1)", "next", show=True, id="log.next"),
        Binding("N", "find(-1)", "next", show=True, id="log.previous", tooltip="previous match"),
        Binding("l", "level", "level", show=True, id="log.level", tooltip="filter by level"),
        Binding("t", "this_start", "this start/all", show=True, id="log.starts"),
        Binding("c", "confirmation", "confirmation", show=True, id="log.confirmation", tooltip="to the confirmation line"),
        Binding("enter", "fold", "open", id="log.fold", tooltip="open or close a traceback", show=False),
        Binding("y", "copy", "copy", show=True, id="log.copy", tooltip="copy the line (and to a file)"),
        Binding("S", "save", "save", show=True, id="log.save", tooltip="save what is shown"),
        Binding("T", "tree", "tree", show=True, id="log.tree", tooltip="draw one verify"),
        Binding("up,k", "move(-1)", "up", id="log.up", show=False),
        Binding("down,j", "move(1)", "down", id="log.down", show=False),
        Binding("pageup", "page(-1)", "page up", id="log.page_up", show=False),
        Binding("pagedown", "page(1)", "page down", id="log.page_down", show=False),
        Binding("left", "sideways(-20)", "left", id="log.left", show=False),
        Binding("right", "sideways(20)", "right", id="log.right", show=False),
        Binding("home,g", "home", "first line", id="log.home", show=False),
        Binding("end,G", "follow", "last line", id="log.end", show=False),
        Binding("escape", "end_search", "end the search", id="log.end_search", show=False),
    ]
    default_focus = "#log"

    def __init__(self) -> None:
        super().__init__(id="logs")
        self._book = LogBook()
        self._level = Level.BATCH
        self._this_start = True
        self._generation = 0
        self._worker: Worker[None] | None = None
        self._invocation: str | None = None

    def compose(self) -> ComposeResult:
        yield LogView(self._book, id="log")
        search = LeavingInput(placeholder="search (regular expression), enter finds, esc leaves", id="log-search")
        search.display = False
        yield search

    def on_mount(self) -> None:
        self._titles()

    @property
    def view(self) -> LogView:
        return self.query_one(LogView)

    def show(self, model: ConsoleModel) -> None:
        """Begin to follow once the host is known; a new start is read from its beginning."""
        state = model.state
        invocation = None if state is None or state.service is None else state.service.value.invocation_id
        if state is not None and (self._worker is None or (self._this_start and invocation != self._invocation)):
            self._invocation = invocation
            self._read_anew()

    def _read_anew(self) -> None:
        link = app_of(self).link
        if link is None:
            return
        if self._worker is not None:
            self._worker.cancel()
        self._generation += 1
        self._book.clear()
        self.view.opened.clear()
        self.view.refresh_rows()
        self._worker = self.run_worker(self._follow(link, self._generation, self._this_start), name="log", exit_on_error=False)
        self._titles()

    async def _follow(self, link: HostLink, generation: int, this_start: bool) -> None:
        from ..link import LinkError

        try:
            async for lines in link.follow(this_start=this_start):
                self.post_message(messages.LogArrived(generation, lines))
        except LinkError as error:
            self.app.call_later(self._failed, str(error))

    def _failed(self, sentence: str) -> None:
        self.notify(sentence, title="Log", severity="error", markup=False)

    def on_log_arrived(self, message: messages.LogArrived) -> None:
        message.stop()
        if message.generation == self._generation:
            self._book.add_all(message.lines)
            self.view.refresh_rows()
            self._titles()

    def on_log_view_follow_changed(self) -> None:
        self._titles()

    def _titles(self) -> None:
        view = self.view
        which = "this start" if self._this_start else "all starts"
        view.border_title = f"Log of {which}"
        following = "following" if view.follow else "standing still: f follows"
        parts = [f"{view.rows:,} lines", _LEVEL_WORDS[self._level], following]
        view.border_subtitle = " · ".join(parts)

    # Keys

    def action_follow(self) -> None:
        self.view.set_follow(True)

    def action_move(self, by: int) -> None:
        self.view.move(by)

    def action_page(self, direction: int) -> None:
        self.view.move(direction * max(1, self.view.scrollable_content_region.height - 2))

    def action_sideways(self, by: int) -> None:
        self.view.scroll_relative(x=by, animate=False)

    def action_home(self) -> None:
        self.view.move(-self.view.rows)

    def action_level(self) -> None:
        self._level = Level((self._level + 1) % len(Level))
        self.view.filter = LogFilter(self._level)
        self.view.refresh_rows()
        self._titles()

    def action_this_start(self) -> None:
        self._this_start = not self._this_start
        self._read_anew()

    def action_confirmation(self) -> None:
        index = self._book.confirmation()
        if index is None:
            self.notify("The log that is shown has no confirmation line.", severity="warning")
        elif not self.view.go_to_entry(index):
            self.notify("The level filter hides the confirmation line: l changes it.", severity="warning")

    def action_fold(self) -> None:
        self.view.toggle_fold()

    def action_search(self) -> None:
        field = self.query_one("#log-search", LeavingInput)
        field.display = True
        field.focus()

    def on_input_submitted(self, event: LeavingInput.Submitted) -> None:
        event.stop()
        try:
            self.view.search = compile_search(event.value)
        except PatternError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        event.input.display = False
        self.focus_default()
        if self.view.search is not None and not self.view.find(-1):
            self.notify(f"No line matches {event.value}.", severity="warning", markup=False)
        self.view.refresh()

    def on_leaving_input_left(self, message: LeavingInput.Left) -> None:
        message.stop()
        self.query_one("#log-search", LeavingInput).display = False
        self.focus_default()

    def action_end_search(self) -> None:
        self.view.search = None
        self.view.refresh()

    def action_find(self, direction: int) -> None:
        if not self.view.find(direction):
            self.notify("/ searches first." if self.view.search is None else "No line matches.", severity="warning")

    def action_copy(self) -> None:
        text = self.view.cursor_text()
        if text:
            self.app.copy_to_clipboard(text)
            self._say_saved("Copied; also in", text, "line")

    def action_save(self) -> None:
        self._say_saved("Saved", self.view.shown_text(), "log")

    def _say_saved(self, verb: str, text: str, kind: str) -> None:
        try:
            path = app_of(self).save_text(text, kind)
        except OSError as error:
            self.notify(f"The file could not be written: {error.strerror}", severity="error", markup=False)
        else:
            self.notify(f"{verb} {path}", markup=False)

    def action_tree(self) -> None:
        from .tree import open_tree

        open_tree(app_of(self))
