"""The terminal console: one header, numbered screens, one host."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.screen import Screen
from textual.theme import Theme
from textual.widgets import ContentSwitcher

from ..formats import span as span_words
from ..hosts.service import RunState
from . import messages
from .changing import ChangingApp
from .clock import Clock
from .facts import connection_words, header_facts
from .keymap import APP_BINDINGS, EDIT_ACTIONS, NUMBERS, PANES, check_keymap
from .link import Control
from .model import ConsoleModel
from .resources import STYLESHEET, themes_folder
from .screens.dashboard import DashboardPane
from .screens.pane import Pane
from .series import SPANS
from .themes import DEFAULT_THEME, load_themes
from .watching import OpenLink, Watching
from .widgets.change_bar import ChangeBar
from .widgets.connection_notice import ConnectionNotice
from .widgets.header import StatusHeader
from .widgets.key_line import KeyLine
from .widgets.panel import Panel, Recoloured
from .widgets.tab_line import TabLine

if TYPE_CHECKING:
    from ..hosts.transport import Link
    from ..state import HostState
    from .fleet import Fleet
    from .link import HostLink
    from .operations import Operations

NARROW = 100
"""Columns below which the layout is the narrow one."""
BROAD = 160
"""Columns from which everything has room beside everything."""


@dataclass(frozen=True)
class ConsoleSettings:
    """What the console takes from the configuration file."""

    theme: str = DEFAULT_THEME
    keymap: Mapping[str, str] = field(default_factory=dict)
    user_themes: Path | None = None
    exports: Path | None = None
    """Where saved logs and answers go."""
    crashes: Path | None = None
    """Where reports of the console's own errors go; ``None`` shows them as Textual does."""


class ConsoleApp(ChangingApp):
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
        super().__init__()
        self.clock = clock or Clock()
        self._settings = settings or ConsoleSettings()
        self.watching = Watching(self, open_link, host)
        self.fleet = fleet
        self._operations: Operations | None = None
        self._header_shown = 0.0
        self._drift_evidence: tuple[object, ...] = ()
        self.plots_loaded = False
        self._invocation: str | None = None
        self.failure = ""
        """One sentence when an error of the console's own ended it."""
        self._load_theme()
        self._load_keymap()

    def _fatal_error(self) -> None:
        # Textual would print a traceback with local variables; those can hold prompts and keys.
        error, folder = self._exception, self._settings.crashes
        if error is None or folder is None:
            super()._fatal_error()
            return
        from .crash import save_report, sentence

        self.failure = sentence(error, save_report(error, folder))
        self._close_messages_no_wait()

    # Start

    def _load_theme(self) -> None:
        folders = (themes_folder(),) + ((self._settings.user_themes,) if self._settings.user_themes else ())
        themes, self._theme_problems = load_themes(folders)
        for theme in themes:
            self.register_theme(theme)
        self._user_themes = frozenset(theme.name for theme in themes)
        wanted = self._settings.theme
        names = [name for name in (wanted, f"ddtree-{wanted}") if name in self.available_themes]
        if not names:
            self._theme_problems += (f"there is no theme {wanted}; known: {', '.join(sorted(self.available_themes))}",)
        self.theme = names[0] if names else DEFAULT_THEME

    def _load_keymap(self) -> None:
        self._key_problems: tuple[str, ...] = ()
        self._keys: dict[str, str] = {}
        if not self._settings.keymap:
            return
        self._keys, self._key_problems = check_keymap(self._settings.keymap, self._known_bindings())
        self.set_keymap(self._keys)

    @property
    def user_theme_names(self) -> frozenset[str]:
        """Themes from the user's own folder."""
        return self._user_themes

    @staticmethod
    def _known_bindings() -> frozenset[str]:
        from .all_bindings import all_bindings

        return frozenset(binding.id for binding in all_bindings() if binding.id)

    def compose(self) -> ComposeResult:
        yield StatusHeader()
        yield TabLine(PANES, NUMBERS)
        yield ConnectionNotice()
        with ContentSwitcher(initial="dashboard", id="panes"):
            yield DashboardPane(self.model)
        yield ChangeBar()
        yield KeyLine()

    def on_mount(self) -> None:
        self._show_tabs()
        self.theme_changed_signal.subscribe(self, self._recolour)
        self.call_after_refresh(self._start)

    def _start(self) -> None:
        self.pane.focus_default()
        self._show_header()
        self._watch()
        self.set_interval(1.0, self._tick)
        self.show_problems((*self._theme_problems, *self._key_problems))

    def show_problems(self, problems: Iterable[str]) -> None:
        """Say what is wrong with the configuration file."""
        for problem in problems:
            self.notify(problem, title="Configuration", severity="warning", timeout=12, markup=False)

    def _watch(self) -> None:
        self.run_worker(self.watching.run(), name="watch", group="watch", exit_on_error=False)

    def load_plots(self) -> None:
        """Import the plotting library in a thread, once."""
        if not self.plots_loaded:
            self.run_worker(self._load_plots, name="plots", group="plots", exclusive=True, thread=True, exit_on_error=False)

    def _load_plots(self) -> None:
        from .plotting import load_library

        load_library()
        self.post_message(messages.PlotLibraryLoaded())

    @property
    def link(self) -> HostLink | None:
        """The host that is shown, once it is open."""
        return self.watching.link

    async def switch_host(self, host: str, open_link: OpenLink, unit: str | None = None) -> None:
        """Show another host, or another unit. Nothing of the one before stays on a screen; an operation there goes on."""
        from .switching import fresh_panes

        left, self.watching = self.watching, Watching(self, open_link, host, unit)
        operations, self._operations = self._operations, None
        self.workers.cancel_group(self, "watch")
        for group in ("past", "baseline", "connect", "plan"):
            self.workers.cancel_group(self, group)
        if operations is not None and operations.running:
            self.notify(f"{operations.words} goes on there; its end is told here.", markup=False)
        else:
            self.run_worker(left.close(), name="leave", group="leave", exit_on_error=False)
        self.model = ConsoleModel(span=self.model.span)
        self._invocation, self._drift_evidence = None, ()
        await fresh_panes(self)
        self._show_tabs()
        self._show_header()
        self.show_change()
        self.refresh_bindings()
        self._watch()

    # What arrives. The last of it may come when the console is being left and its screens are gone.

    def _late(self, message: messages.HostMessage) -> bool:
        """Whether the message is of a host that was left, or of a console that is being left."""
        return not self.screen_stack or message.source not in (None, self.watching)

    def on_state_arrived(self, message: messages.StateArrived) -> None:
        if self._late(message):
            return
        first = self.model.state is None
        self.model.take_state(message.state, self.clock.wall())
        if first:
            self.refresh_bindings()
            self.call_after_refresh(self.watching.painted.set)
        self.model.connection_problem, self.model.next_try = "", None
        self._judge_age()
        self._judge_drift()
        self._show_header()
        self.pane.show(self.model)
        invocation = None if message.state.service is None else message.state.service.value.invocation_id
        if invocation != self._invocation:
            # The start before may have been a plain one, which is what baselines are measured in.
            self._invocation = invocation
            baseline = self._read_baseline(self.watching)
            self.run_worker(baseline, name="baseline", group="baseline", exclusive=True, exit_on_error=False)
        if self.model.change:
            self.show_change()

    def on_link_opened(self, message: messages.LinkOpened) -> None:
        if self._late(message):
            return
        if message.unfinished:
            self.operations.offer_unfinished(message.unfinished)
        elif self.model.state is not None:
            self._start_stopped_engine(self.model.state)

    def _start_stopped_engine(self, state: HostState) -> None:
        """The embedded engine is part of the console: it is started when it does not run. A server never is."""
        if state.service is None:
            return
        stopped = state.service.value.state is RunState.STOPPED
        if state.embedded and stopped and self.link is not None and not self.link.read_only:
            self.operations.control(Control.START, quiet=True)

    async def _read_baseline(self, watching: Watching) -> None:
        if watching.link is not None:
            self.post_message(messages.BaselineArrived((await watching.link.past(1.0)).baseline, watching))

    def on_baseline_arrived(self, message: messages.BaselineArrived) -> None:
        if self._late(message):
            return
        if message.tok_s is not None:
            self.model.baseline = message.tok_s

    def on_stage_arrived(self, message: messages.StageArrived) -> None:
        if not self.screen_stack:
            return
        message.operations.stage_arrived(message.event)

    def on_operation_ended(self, message: messages.OperationEnded) -> None:
        if not self.screen_stack:
            return
        message.operations.ended(message.result, message.sentence)
        if message.operations.elsewhere:
            self.run_worker(message.operations.close_left(), name="leave", group="leave", exit_on_error=False)
        self._show_header()

    def on_past_arrived(self, message: messages.PastArrived) -> None:
        if self._late(message):
            return
        self.model.take_past(message.past)
        if not message.past.decode:
            # Nothing is known from before: a longer span would be an empty plot with a sliver at its edge.
            self.model.span = SPANS[0]
            self._show_tabs()
        self.pane.show(self.model)

    def on_link_failed(self, message: messages.LinkFailed) -> None:
        if self._late(message):
            return
        self.model.connection_problem, self.model.next_try = message.sentence, message.next_try
        self._show_header()

    def on_unit_wanted(self, message: messages.UnitWanted) -> None:
        if not self._late(message):
            from .switching import ask_for_unit

            ask_for_unit(self, message.units)

    def on_plot_library_loaded(self) -> None:
        self.plots_loaded = True
        for pane in self.query(Pane):
            pane.plots_ready()

    def _tick(self) -> None:
        """Ages go on when nothing arrives. Costs one line of text; nothing is repainted when it is the same."""
        # Where snapshots come every second, each has shown the header already; its settings take a millisecond to put together.
        if self.screen_stack and time.monotonic() - self._header_shown > 0.9:
            if self._judge_age():
                self.pane.show(self.model)
            self._show_header()

    def _judge_age(self) -> bool:
        return self.model.judge_age(self.connection, self.clock.monotonic(), self.clock.wall())

    @property
    def connection(self) -> Link | None:
        """The connection to the host shown; ``None`` for this machine, and before there is one."""
        return None if self.link is None else self.link.connection

    def _judge_drift(self) -> None:
        """The drift table's verdict, judged anew only when something that it reads has changed."""
        state = self.model.state
        if state is None:
            return
        from .drift_badge import drift_badge, drift_evidence

        evidence = drift_evidence(state)
        if evidence != self._drift_evidence:
            self._drift_evidence = evidence
            self.model.drift = drift_badge(state)

    def _show_header(self) -> None:
        self._header_shown = time.monotonic()
        facts = header_facts(
            self.model.state,
            now=self.clock.monotonic(),
            wall=self.clock.wall(),
            drift=self.model.drift,
            busy=self.model.busy,
            problem=self.model.connection_problem,
            host=self.watching.host,
            link=self.model.link,
        )
        root = self.screen_stack[0]
        for header in root.query(StatusHeader):
            header.show_facts(facts)
        for notice in root.query(ConnectionNotice):
            notice.show_problem(*connection_words(self.model, self.clock.monotonic()))

    def _recolour(self, theme: Theme) -> None:
        """Texts carry their colours with them, so another theme means writing them anew."""
        for widget in self.screen_stack[0].query("*"):
            if isinstance(widget, Recoloured):
                widget.redraw()
        self.pane.show(self.model)

    # Panes

    @property
    def pane(self) -> Pane:
        """The numbered screen that is open."""
        switcher = self.screen_stack[0].query_one("#panes", ContentSwitcher)
        return switcher.query_one(f"#{switcher.current}", Pane)

    async def action_open_pane(self, name: str) -> None:
        switcher = self.screen_stack[0].query_one("#panes", ContentSwitcher)
        self.screen_stack[0].minimize()
        if not switcher.query(f"#{name}"):
            from .screens import make_pane

            await switcher.mount(make_pane(name, self.model))
            if self.plots_loaded:
                switcher.query_one(f"#{name}", Pane).plots_ready()
        switcher.current = name
        self._show_tabs()
        self.pane.show(self.model)
        self.pane.focus_default()
        self.refresh_bindings()

    async def on_tab_line_picked(self, message: TabLine.Picked) -> None:
        await self.action_open_pane(message.pane)

    def _show_tabs(self) -> None:
        root = self.screen_stack[0]
        current = root.query_one("#panes", ContentSwitcher).current or "dashboard"
        words = f"span {span_words(self.model.span)}  - +" if current == "dashboard" else ""
        root.query_one(TabLine).show_tabs(current, words)

    # The change being put together

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that edit are alive on the screens that show what they edit; the others are not even listed."""
        if action not in EDIT_ACTIONS:
            return True
        over = [screen for screen in self.screen_stack[1:] if not isinstance(screen, CommandPalette)]
        if over or not self.pane.edits or self.model.state is None:
            return False
        if action in ("apply", "discard"):
            return bool(self.model.change)
        return True

    # Operations on the host

    @property
    def operations(self) -> Operations:
        """What carries changes out; made when first needed."""
        if self._operations is None:
            from .operations import Operations

            self._operations = Operations(self)
        return self._operations

    def action_apply(self) -> None:
        self.operations.propose(dict(self.model.change.values))

    def action_restart(self) -> None:
        self.operations.restart()

    def action_stop(self) -> None:
        self.operations.stop()

    def action_rollback(self) -> None:
        self.operations.rollback()

    # Everything else

    def action_span(self, direction: int) -> None:
        index = SPANS.index(self.model.span) + direction
        if 0 <= index < len(SPANS):
            self.model.span = SPANS[index]
            self._show_tabs()
            self.pane.show(self.model)

    def action_maximise(self) -> None:
        screen = self.screen_stack[0]
        if screen.maximized is not None:
            screen.minimize()
        elif isinstance(self.focused, Panel):
            screen.maximize(self.focused)

    def action_explain(self) -> None:
        from .screens.help import ExplainScreen

        widget = self.focused
        name = "console"
        while widget is not None:
            name = getattr(widget, "topic", "") or name
            if name != "console":
                break
            widget = widget.parent  # type: ignore[assignment]
        self.push_screen(ExplainScreen(name))

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
        return self._keys.get(binding.id or "", binding.key)

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
