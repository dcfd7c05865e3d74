"""What the host on the screens says, and what changes by it: snapshots, ages, drift, the end of an operation, another host."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from ..hosts.service import RunState
from . import messages
from .changing import ChangingApp
from .clock import Clock
from .facts import connection_words, header_facts
from .link import Control
from .model import ConsoleModel
from .series import span_of_past
from .watching import OpenLink, Watching
from .widgets.connection_notice import ConnectionNotice
from .widgets.header import StatusHeader
from .work import begin

if TYPE_CHECKING:
    from textual.driver import Driver

    from ..hosts.transport import Link
    from ..state import HostState
    from .fleet import Fleet
    from .link import HostLink
    from .operations import Operations


class HostApp(ChangingApp):
    """The part of the console that belongs to the host that is shown.

    Its handlers take what workers post; the last of it may come when the console is being left and its screens are gone.
    """

    def __init__(self, open_link: OpenLink, *, clock: Clock | None, host: str, fleet: Fleet | None) -> None:
        super().__init__()
        self.fleet = fleet
        self.clock = clock or Clock()
        self.watching = Watching(self, open_link, host)
        self._operations: Operations | None = None
        self._header_shown = 0.0
        self._drift_evidence: tuple[object, ...] = ()
        self._invocation: str | None = None
        self.plots_loaded = False
        self.own_units: set[str] = set()
        """Units of this machine with the embedded engine that were shown: what is told about when the console is left."""

    def get_driver_class(self) -> type[Driver]:
        from textual.drivers.linux_driver import LinuxDriver

        from .pasting import PasteDriver

        chosen = super().get_driver_class()
        return PasteDriver if chosen is LinuxDriver else chosen

    def show_tabs(self) -> None:
        """Show which numbered screen is open."""
        raise NotImplementedError

    def keys_named(self, identity: str) -> str:
        """The keys of the action of this name as the user's keymap has them, in words."""
        raise NotImplementedError

    def load_plots(self) -> None:
        """Import the plotting library, once; :class:`~dflash_console.tui.messages.PlotLibraryLoaded` tells when."""
        raise NotImplementedError

    def begin_watching(self) -> None:
        """Begin watching the host."""
        begin(self, self.watching.run, "watching the host", group="watch")

    @property
    def link(self) -> HostLink | None:
        """The host that is shown, once it is open."""
        return self.watching.link

    @property
    def connection(self) -> Link | None:
        """The connection to the host shown; ``None`` for this machine, and before there is one."""
        return None if self.link is None else self.link.connection

    @property
    def operations(self) -> Operations:
        """What carries changes out; made when first needed."""
        if self._operations is None:
            from .operations import Operations

            self._operations = Operations(self)
        return self._operations

    async def switch_host(self, host: str, open_link: OpenLink, unit: str | None = None) -> None:
        """Show another host, or another unit. Nothing of the one before stays on a screen; an operation there goes on."""
        from .switching import fresh_panes

        left, self.watching = self.watching, Watching(self, open_link, host, unit)
        operations, self._operations = self._operations, None
        if operations is not None:
            operations.planning.give_up()
        self.workers.cancel_group(self, "watch")
        for group in ("past", "baseline", "connect"):
            self.workers.cancel_group(self, group)
        if operations is not None and operations.running:
            self.notify(f"{operations.words} goes on there; its end is told here.", markup=False)
        else:
            begin(self, left.close, "leaving a host", group="leave")
        self.model = ConsoleModel(span=self.model.span)
        self._invocation, self._drift_evidence = None, ()
        await fresh_panes(self)
        self.show_tabs()
        self.show_header()
        self.show_change()
        self.refresh_bindings()
        self.begin_watching()

    def _late(self, message: messages.HostMessage) -> bool:
        """Whether the message is of a host that was left, or of a console that is being left."""
        return not self.screen_stack or message.source not in (None, self.watching)

    def on_state_arrived(self, message: messages.StateArrived) -> None:
        if self._late(message):
            return
        first = self.model.state is None
        if message.state.embedded:
            self.own_units.add(message.state.unit)
        self.model.take_state(message.state, self.clock.wall())
        if first:
            self.refresh_bindings()
            self.call_after_refresh(self.watching.painted.set)
        self.model.connection_problem, self.model.next_try = "", None
        self._judge_age()
        self._judge_drift()
        self.show_header()
        self.pane.show(self.model)
        invocation = None if message.state.service is None else message.state.service.value.invocation_id
        if invocation != self._invocation:
            # The start before may have been a plain one, which is what baselines are measured in.
            self._invocation = invocation
            baseline = partial(self._read_baseline, self.watching)
            begin(self, baseline, "reading the baseline", group="baseline", exclusive=True)
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
        message.operations.stage_arrived(message.course, message.event)

    def on_operation_ended(self, message: messages.OperationEnded) -> None:
        if not self.screen_stack:
            return
        message.operations.ended(message.course, message.result, message.sentence)
        if message.operations.elsewhere:
            begin(self, message.operations.close_left, "leaving a host", group="leave")
        self.show_header()

    def on_past_arrived(self, message: messages.PastArrived) -> None:
        if self._late(message):
            return
        self.model.take_past(message.past)
        self.model.span = span_of_past(message.past.decode, self.model.span, self.clock.wall())
        self.show_tabs()
        self.pane.show(self.model)

    def on_link_failed(self, message: messages.LinkFailed) -> None:
        if self._late(message):
            return
        self.model.connection_problem, self.model.next_try = message.sentence, message.next_try
        self.show_header()

    def on_unit_wanted(self, message: messages.UnitWanted) -> None:
        if not self._late(message):
            from .switching import ask_for_unit

            ask_for_unit(self, message.units)

    def tick(self) -> None:
        """Ages go on when nothing arrives. Costs one line of text; nothing is repainted when it is the same."""
        if not self.is_running:
            return  # The screens are being taken down, piece by piece, while timers still run.
        if self.planning:
            self.operations.planning.show()
        # Where snapshots come every second, each has shown the header already; its settings take a millisecond to put together.
        if self.screen_stack and time.monotonic() - self._header_shown > 0.9:
            if self._judge_age():
                self.pane.show(self.model)
            self.show_header()

    @property
    def planning(self) -> bool:
        """Whether a plan is being made."""
        return self._operations is not None and self._operations.planning.making

    def show_change(self) -> None:
        super().show_change()
        if self._operations is not None:
            self._operations.planning.change_is(self.model.change.values)

    def _judge_age(self) -> bool:
        return self.model.judge_age(self.connection, self.clock.monotonic(), self.clock.wall())

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

    def show_header(self) -> None:
        """Show the newest facts in the first line, and what is wrong with the connection under it."""
        self._header_shown = time.monotonic()
        facts = header_facts(
            self.model.state,
            now=self.clock.monotonic(),
            wall=self.clock.wall(),
            drift=self.model.drift,
            busy=self.model.busy,
            ending=self.model.ending,
            problem=self.model.connection_problem,
            host=self.watching.host,
            link=self.model.link,
        )
        root = self.screen_stack[0]
        for header in root.query(StatusHeader):
            header.show_facts(facts)
        for notice in root.query(ConnectionNotice):
            notice.show_problem(*connection_words(self.model, self.clock.monotonic()))
