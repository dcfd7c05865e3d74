"""The terminal console: one header, numbered screens, one host."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.filter import LineFilter
from textual.screen import Screen
from textual.theme import Theme
from textual.widgets import ContentSwitcher

from ..formats import span as span_words
from . import messages
from .clock import Clock
from .escapes import EscapeFilter
from .focus import hand_to_field
from .host_app import HostApp
from .keymap import APP_BINDINGS, EDIT_ACTIONS, NUMBERS, OPERATIONS, PANES, editing_panes, key_names
from .resources import STYLESHEET, themes_folder
from .screens.dashboard import DashboardPane
from .screens.pane import Pane
from .series import SPANS
from .settings import ConsoleSettings as ConsoleSettings
from .settings import dress, keymap_problems
from .watching import OpenLink
from .widgets.change_bar import ChangeBar
from .widgets.connection_notice import ConnectionNotice
from .widgets.header import StatusHeader
from .widgets.key_line import KeyLine
from .widgets.panel import Panel, Recoloured
from .widgets.tab_line import TabLine
from .work import begin

if TYPE_CHECKING:
    from .fleet import Fleet

KEYS_CHECKED_AFTER_S = 1.0
"""The names of a keymap are checked when the screen stands: it takes every screen's import."""
NARROW = 100
"""Columns below which the layout is the narrow one."""
BROAD = 160
"""Columns from which everything has room beside everything."""


class ConsoleApp(HostApp):
    """The console on one host.

    Opens before anything is known of the host: the first paint needs no HTTP client, no database and no plotting library;
    they are imported by workers afterwards.
    """

    TITLE = "ddtree-console"
    CSS_PATH = themes_folder() / STYLESHEET
    BINDINGS: ClassVar[list[BindingType]] = APP_BINDINGS
    COMMAND_PALETTE_BINDING = "colon"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-wide"), (BROAD, "-broad")]  # noqa: RUF012 - Textual's own form
    ENABLE_COMMAND_PALETTE = True

    def __init__(
        self,
        open_link: OpenLink,
        settings: ConsoleSettings | None = None,
        *,
        clock: Clock | None = None,
        host: str = "",
        fleet: Fleet | None = None,
    ) -> None:
        """
        Args:
            open_link: opens the first host.
            host: its name, to be shown until it answers.
            fleet: all configured hosts; without it there is only the first one.
        """
        super().__init__(open_link, clock=clock, host=host, fleet=fleet)
        self._settings = settings or ConsoleSettings()
        self.failure = ""
        """One sentence when an error of the console's own ended it."""
        self._looks = dress(self, self._settings)
        self._pane: Pane | None = None
        self._escapes = EscapeFilter()

    def get_line_filters(self) -> Sequence[LineFilter]:
        return (*super().get_line_filters(), self._escapes)

    def _fatal_error(self) -> None:
        # Textual would print a traceback with local variables; those can hold prompts and keys.
        error, folder = self._exception, self._settings.crashes
        if error is None or folder is None:
            super()._fatal_error()
            return
        from .crash import save_report, sentence

        self.failure = sentence(error, save_report(error, folder))
        self._close_messages_no_wait()

    def tell_error(self, error: Exception, doing: str) -> bool:
        """Report an error of the console's own that the screens outlive; false where there is no folder for reports."""
        if self._settings.crashes is None:
            return False
        from .crash import save_report, told

        self.notify(told(error, doing, save_report(error, self._settings.crashes)), severity="error", timeout=20, markup=False)
        return True

    @property
    def user_theme_names(self) -> frozenset[str]:
        """Themes from the user's own folder."""
        return self._looks.user_themes

    def compose(self) -> ComposeResult:
        yield StatusHeader()
        yield TabLine(PANES, NUMBERS)
        yield ConnectionNotice()
        with ContentSwitcher(initial="dashboard", id="panes"):
            yield DashboardPane(self.model)
        yield ChangeBar()
        yield KeyLine()

    def on_mount(self) -> None:
        self.show_tabs()
        self.theme_changed_signal.subscribe(self, self._recolour)
        self.call_after_refresh(self._start)

    def _start(self) -> None:
        self.pane.focus_default()
        self.show_header()
        self.begin_watching()
        self.set_interval(1.0, self.tick)
        self.show_problems(self._looks.problems)
        self.set_timer(KEYS_CHECKED_AFTER_S, lambda: self.show_problems(keymap_problems(self._settings)))

    def show_problems(self, problems: Iterable[str]) -> None:
        """Say what is wrong with the configuration file."""
        for problem in problems:
            self.notify(problem, title="Configuration", severity="warning", timeout=12, markup=False)

    def load_plots(self) -> None:
        """Import the plotting library in a thread, once."""
        if not self.plots_loaded:
            begin(self, self._load_plots, "loading the plots", group="plots", exclusive=True)

    async def _load_plots(self) -> None:
        from .plotting import load_library

        await asyncio.to_thread(load_library)
        self.post_message(messages.PlotLibraryLoaded())

    def on_plot_library_loaded(self) -> None:
        self.plots_loaded = True
        for pane in self.query(Pane):
            pane.plots_ready()

    def _recolour(self, theme: Theme) -> None:
        """Texts carry their colours with them, so another theme means writing them anew."""
        for widget in self.screen_stack[0].query("*"):
            if isinstance(widget, Recoloured):
                widget.redraw()
        self.pane.show(self.model)

    @property
    def pane(self) -> Pane:
        """The numbered screen that is open; while another host's take the place of all, the one that was."""
        switcher = self.screen_stack[0].query_one("#panes", ContentSwitcher)
        self._pane = next(iter(switcher.query(f"#{switcher.current}").results(Pane)), self._pane)
        assert self._pane is not None, "the console is composed with one"
        return self._pane

    async def action_open_pane(self, name: str) -> None:
        switcher = self.screen_stack[0].query_one("#panes", ContentSwitcher)
        self.screen_stack[0].minimize()
        if not switcher.query(f"#{name}"):
            from .screens import make_pane

            await switcher.mount(make_pane(name, self.model))
            if self.plots_loaded:
                switcher.query_one(f"#{name}", Pane).plots_ready()
        switcher.current = name
        self.show_tabs()
        self.pane.show(self.model)
        self.pane.focus_default()
        self.refresh_bindings()

    async def on_tab_line_picked(self, message: TabLine.Picked) -> None:
        await self.action_open_pane(message.pane)

    def show_tabs(self) -> None:
        root = self.screen_stack[0]
        current = root.query_one("#panes", ContentSwitcher).current or "dashboard"
        words = f"span {span_words(self.model.span)}  - +" if current == "dashboard" else ""
        root.query_one(TabLine).show_tabs(current, words)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that edit are alive on the screens that show what they edit; the others are not even listed."""
        if action == "give_up_plan":
            # On every screen, for so is the line that tells of it.
            return self.planning
        if action not in EDIT_ACTIONS:
            return True
        over = [screen for screen in self.screen_stack[1:] if not isinstance(screen, CommandPalette)]
        if over or not self.pane.edits or self.model.state is None:
            return False
        if action in ("apply", "discard"):
            return bool(self.model.change)
        return True

    def on_key(self, event: events.Key) -> None:
        """Say why a key that changes the server does nothing here. What a field takes as text does not come so far, or late."""
        if hand_to_field(self, event):
            event.prevent_default()
            return
        state = self.model.state
        if len(self.screen_stack) > 1 or (self.pane.edits and state is not None) or event.key in self.screen.active_bindings:
            return
        for binding in APP_BINDINGS:
            if isinstance(binding, Binding) and binding.action in OPERATIONS and event.key in self.keys_of(binding).split(","):
                said = f"{key_names(event.key)} ({binding.description})"
                if state is None:
                    said += " has nothing to work on: not connected to a host yet."
                else:
                    said += f" works on {editing_panes(self.keys_of)}, for the host that they show: {state.host}."
                self.notify(said, severity="warning", markup=False)

    def action_apply(self) -> None:
        self.operations.propose(dict(self.model.change.values))

    def action_restart(self) -> None:
        self.operations.restart()

    def action_stop(self) -> None:
        self.operations.stop()

    def action_rollback(self) -> None:
        self.operations.roll_back()

    def action_give_up_plan(self) -> None:
        self.operations.planning.give_up()

    def action_span(self, direction: int) -> None:
        index = SPANS.index(self.model.span) + direction
        if 0 <= index < len(SPANS):
            self.model.span = SPANS[index]
            self.show_tabs()
            self.pane.show(self.model)

    def action_maximise(self) -> None:
        screen = self.screen_stack[0]
        if screen.maximized is not None:
            screen.minimize()
        elif isinstance(self.focused, Panel):
            screen.maximize(self.focused)

    def action_explain(self) -> None:
        from .screens.help import ExplainScreen

        around = () if self.focused is None else self.focused.ancestors_with_self
        topics = (getattr(node, "topic", "") for node in around)
        self.push_screen(ExplainScreen(next(filter(None, topics), "console")))

    def action_command_log(self) -> None:
        from .screens.command_log import CommandLogScreen

        if self.link is None:
            self.notify("Not connected to a host yet: nothing was run.", severity="warning")
        else:
            self.push_screen(CommandLogScreen(self.link, self.watching.host or "this machine"))

    def action_connect(self) -> None:
        """Try the connection now."""
        self.watching.try_now()

    def action_help(self) -> None:
        from .screens.help import HelpScreen

        bindings = [binding for binding in (*self.pane.BINDINGS, *APP_BINDINGS) if isinstance(binding, Binding)]
        self.push_screen(HelpScreen([replace(binding, key=self.keys_of(binding)) for binding in bindings]))

    def keys_of(self, binding: Binding) -> str:
        """The binding's keys as the user's keymap has them."""
        return self._looks.keys.get(binding.id or "", binding.key)

    def keys_named(self, identity: str) -> str:
        bindings = (binding for binding in APP_BINDINGS if isinstance(binding, Binding) and binding.id == identity)
        return key_names(self.keys_of(next(bindings)))

    def action_leave(self) -> None:
        """Quit; asks only when an operation is under way."""
        if not self.model.busy:
            self.exit()
            return
        from .screens.confirm import ConfirmScreen

        question = f"{self.model.busy} is under way. It leaves its journal behind: the next start resumes it or rolls back."
        self.push_screen(ConfirmScreen("Quit now?", question, yes="quit"), lambda answer: self.exit() if answer else None)

    async def action_quit(self) -> None:
        self.action_leave()

    def action_command_palette(self) -> None:
        from .palette import Palette

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette())

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        from .palette import commands

        yield from commands(self)

    def save_text(self, text: str, kind: str) -> Path:
        """Write ``text`` to a new file among the exports; its path. Raises: OSError."""
        from .export import save_text

        if self._settings.exports is None:
            raise OSError(2, "no folder for exports is set")
        return save_text(self._settings.exports, text, kind)

    async def on_unmount(self) -> None:
        await self.watching.close()
        if self.fleet is not None:
            await self.fleet.close()
