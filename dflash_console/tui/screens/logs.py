"""The log of this start or of all."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.worker import Worker

from .. import messages
from ..focus import take_focus
from ..keymap import key_binding
from ..log_book import Level, LogBook, LogFilter, PatternError, compile_search
from ..widgets.field import LeavingInput
from ..widgets.log_view import LogView
from ..work import begin
from .pane import Pane, app_of

if TYPE_CHECKING:
    from ..link import HostLink
    from ..model import ConsoleModel

RETRY_S = 5.0
"""Until the log is tried again that could not be read."""
AT_ONCE = 500
"""Stored lines taken in one go: some milliseconds, between which keys are answered."""

_LEVEL_WORDS = {
    Level.REQUEST: "all lines",
    Level.BATCH: "without requests",
    Level.INFO: "without batches and requests",
    Level.WARNING: "warnings and errors",
    Level.ERROR: "errors",
}


def _key(identity: str, key: str, action: str, footer: str, tooltip: str) -> Binding:
    return key_binding(f"log.{identity}", key, action, footer, tooltip)


class LogsPane(Pane):
    """Follows the host's log while it is open; what was read stays when another screen is opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        _key("follow", "f", "follow", "follow", "follow: stay at the newest line"),
        _key("search", "slash", "search", "search", "search (a regular expression)"),
        _key("next", "n", "find(1)", "next", "search: the next match"),
        _key("previous", "N", "find(-1)", "next", "search: the match before"),
        _key("level", "l", "level", "level", "show lines from another level on"),
        _key("rank", "R", "rank", "rank", "show one rank's lines alone, or all again"),
        _key("wrap", "w", "wrap", "wrap", "wrap long lines, or not"),
        _key("starts", "t", "this_start", "this start/all", "the log of this start, or of all"),
        _key("confirmation", "c", "confirmation", "confirmation", "jump to the confirmation line"),
        _key("fold", "enter", "fold", "", "open or close a traceback"),
        _key("copy", "y", "copy", "copy", "copy the line, also to a file"),
        _key("save", "S", "save", "save", "save the lines that are shown"),
        _key("tree", "T", "tree", "tree", "draw one verify"),
        _key("up", "up,k", "move(-1)", "", "a line up"),
        _key("down", "down,j", "move(1)", "", "a line down"),
        _key("page_up", "pageup", "page(-1)", "", "a page up"),
        _key("page_down", "pagedown", "page(1)", "", "a page down"),
        _key("left", "left", "sideways(-20)", "", "scroll to the left"),
        _key("right", "right", "sideways(20)", "", "scroll to the right"),
        _key("home", "home,g", "home", "", "the first line"),
        _key("end", "end,G", "follow", "", "the last line"),
        _key("end_search", "escape", "end_search", "", "end the search"),
    ]
    default_focus = "#log"

    def __init__(self) -> None:
        super().__init__(id="logs")
        self._book = LogBook()
        self._level = Level.BATCH
        self._rank: int | None = None
        self._this_start = True
        self._generation = 0
        self._worker: Worker[None] | None = None
        self._invocation: str | None = None
        self._try_at: float | None = None
        """When the log is read again that could not be read, by the monotonic clock; ``None`` while it is being read."""
        self._said = ""
        """Why, as it was told last."""

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
        """Begin to follow once the host is known. A new start is read from its beginning, and so is a log that could not be."""
        state = model.state
        invocation = None if state is None or state.service is None else state.service.value.invocation_id
        again = self._try_at is not None and not model.stale and app_of(self).clock.monotonic() >= self._try_at
        if state is not None and (self._worker is None or again or (self._this_start and invocation != self._invocation)):
            self._invocation = invocation
            self._read_anew()

    def _read_anew(self) -> None:
        link = app_of(self).link
        if link is None:
            return
        if self._worker is not None:
            self._worker.cancel()
        self._generation += 1
        self._try_at = None
        self._book.clear()
        self.view.start_anew()
        self._worker = begin(self, partial(self._follow, link, self._generation, self._this_start), "following the log")
        self._titles()

    async def _follow(self, link: HostLink, generation: int, this_start: bool) -> None:
        from ..link import LinkError

        try:
            async for lines in link.follow(this_start=this_start):
                for start in range(0, len(lines), AT_ONCE):
                    self.post_message(messages.LogArrived(generation, lines[start : start + AT_ONCE]))
        except LinkError as error:
            self.app.call_later(self._failed, generation, str(error))

    def _failed(self, generation: int, sentence: str) -> None:
        if generation != self._generation:
            return
        self._try_at = app_of(self).clock.monotonic() + RETRY_S
        if sentence != self._said:
            self._said = sentence
            self.notify(sentence, title="Log", severity="error", markup=False)

    def on_log_arrived(self, message: messages.LogArrived) -> None:
        message.stop()
        if message.generation == self._generation:
            self._said = ""
            self._book.add_all(message.lines)
            self.view.take_lines()
            self._titles()

    def on_log_view_follow_changed(self) -> None:
        self._titles()

    def _titles(self) -> None:
        view = self.view
        which = "this start" if self._this_start else "all starts"
        view.border_title = f"Log of {which}"
        following = "following" if view.follow else "standing still: f follows"
        parts = [f"{view.rows:,} {'rows' if view.wrapped else 'lines'}", _LEVEL_WORDS[self._level]]
        parts += [f"rank {self._rank} alone"] if self._rank is not None else []
        parts += ["wrapped"] if view.wrapped else []
        parts.append(following)
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
        self._filter()

    def action_rank(self) -> None:
        """Walk through the ranks that the log names, and back to all of them."""
        ranks: list[int | None] = [None, *self._book.ranks()]
        if len(ranks) == 1:
            self.notify("The log that is shown names no rank.", severity="warning")
            return
        here = ranks.index(self._rank) if self._rank in ranks else 0
        self._rank = ranks[(here + 1) % len(ranks)]
        self._filter()

    def _filter(self) -> None:
        self.view.show_only(LogFilter(self._level, rank=self._rank))
        self._titles()

    def action_wrap(self) -> None:
        self.view.wrap(not self.view.wrapped)
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
        take_focus(field)

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

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # The line of a plan that is being made says that the same key gives it up.
        return not app_of(self).planning if action == "end_search" else True

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
            self.save_text(text, "line", "Copied; also in")

    def action_save(self) -> None:
        self.save_text(self.view.lines.plain(), "log", "Saved")

    def action_tree(self) -> None:
        from .tree import open_tree

        open_tree(app_of(self))
