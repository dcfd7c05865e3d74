"""How fast is it: throughput and commit length over time, and what stands behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal

from ... import formats
from ..event_words import event_words
from ..figures import counted_words, live_figures, uncounted_words
from ..widgets.event_list import EventLine, EventPanel
from ..widgets.field import LeavingInput
from ..widgets.gpu_panel import GpuPanel
from ..widgets.histogram import HistogramPanel
from ..widgets.panel import Panel
from ..widgets.plot_panel import PlotPanel
from ..widgets.prompt_dock import FOLDED_ROWS, OPEN_ROWS, PromptDock
from ..widgets.requests_panel import RequestsPanel
from .pane import Pane

if TYPE_CHECKING:
    from ...state import HostState
    from ..model import ConsoleModel


FEW_GPUS = 4
"""So many have a row each in the least height of the lower panels; for more, the plots give up some of theirs."""
ROWS_FOR_MANY = 19
"""Rows that eight GPUs take with their frame (10), beside plots of the least height (8) and the newest event's line."""
ROWS_FOR_ALL = 16
"""Rows that plots, lower panels and the event's line take at least; with fewer, the prompt dock takes the lower panels' place."""


class DashboardPane(Pane):
    """Two plots, the histogram, requests, GPUs and the newest events."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "prompt", "prompt", show=True, id="prompt.open", tooltip="open the prompt dock under the plots"),
        Binding("P", "close_prompt", "close the prompt", id="prompt.hide", tooltip="close the prompt dock", show=False),
        Binding("x", "stop_prompt", "stop the prompt", show=True, id="prompt.stop", tooltip="stop the prompts that run"),
    ]
    edits = True
    default_focus = "#decode"

    def __init__(self, model: ConsoleModel) -> None:
        super().__init__(id="dashboard")
        self._model = model
        self._log_seen: object = None
        self._many_gpus = False
        self._dock_left = False
        self._dock_opens = False
        """It was opened and does not have the focus yet: where the focus goes before is no leaving of it."""

    def compose(self) -> ComposeResult:
        with Horizontal(id="plots"):
            yield PlotPanel(
                "Decode throughput",
                self._model.decode,
                id="decode",
                unit="tok/s",
                colour="plot-decode",
                write=formats.tokens_per_second,
                topic="decode",
                least_top=10.0,
            )
            yield PlotPanel(
                "Commit length",
                self._model.commit,
                id="commit",
                unit="tokens per verify",
                colour="plot-commit",
                write=formats.commit_length,
                topic="commit",
                floor=1.0,
                least_top=3.0,
            )
        with Horizontal(id="figures"):
            yield HistogramPanel("none yet: p runs a prompt", id="histogram")
            yield RequestsPanel("Requests", id="requests")
            yield GpuPanel("GPU", id="gpu")
            yield EventPanel("Events", id="events")
        yield EventLine(id="event-line")
        yield PromptDock()

    def show(self, model: ConsoleModel) -> None:
        state = model.state
        if state is None:
            return
        figures = live_figures(state, model.busy, model.ending)
        end = model.wall
        marks = tuple(model.marks)
        self.query_one("#decode", PlotPanel).show_value(
            figures.decode,
            end=end,
            span=model.span,
            marks=marks,
            baseline=model.baseline,
            stale=model.stale,
            source=figures.decode_source,
            remark=figures.decode_note,
        )
        self.query_one("#commit", PlotPanel).show_value(
            figures.commit,
            end=end,
            span=model.span,
            marks=marks,
            stale=model.stale or figures.commit_stale,
            source=figures.commit_source,
            remark=figures.commit_note,
        )
        for panel in self.query(Panel):
            panel.mark_stale(model.stale and panel.id != "events")
        self.query_one(HistogramPanel).show_counts(
            figures.rates.accept_histogram, counted_words(figures.rates), uncounted_words(figures.rates)
        )
        self.query_one(RequestsPanel).show_rates(figures.rates)
        self._show_gpus(state)
        log = None if state.log is None else state.log.value
        if log is not self._log_seen:
            self._log_seen = log
            events = () if log is None else event_words(log)
            self.query_one(EventPanel).show_events(events)
            self.query_one(EventLine).show_events(events)

    def _show_gpus(self, state: HostState) -> None:
        rows = state.gpus.value if state.gpus is not None else ()
        report = None
        if rows:
            # Imported with the first GPU: most of the console's first screens have none.
            from ...gpu_report import gpu_report

            report = gpu_report(state)
        # A host without the tool has no GPUs; of others it is said why they cannot be read.
        problem = state.problems.get("gpus", "") if state.gpus is None or rows else ""
        self.query_one(GpuPanel).show_gpus(report, problem)
        self.set_class(bool(rows or problem), "-gpus")
        self._many_gpus = len(rows) > FEW_GPUS
        self._make_room()

    def on_resize(self) -> None:
        self._make_room()

    def _make_room(self) -> None:
        """A row for each of many GPUs, where that leaves the plots theirs: a notice and the prompt dock take rows too."""
        dock = self.query_one(PromptDock)
        height = self.size.height
        folded = self._dock_left and height - OPEN_ROWS < ROWS_FOR_ALL
        if folded and (not dock.answered or height - FOLDED_ROWS < ROWS_FOR_ALL):
            dock.display = False
        dock.fold(folded)
        rows = height - (0 if not dock.display else FOLDED_ROWS if folded else OPEN_ROWS)
        self.set_class(dock.display and not folded, "-docked")
        self.set_class(self._many_gpus and rows >= ROWS_FOR_MANY, "-many-gpus")
        self.set_class(rows < ROWS_FOR_ALL, "-short")

    def plots_ready(self) -> None:
        for panel in self.query(PlotPanel):
            panel.enable()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        dock = self.query_one(PromptDock)
        if action == "close_prompt":
            return bool(dock.display)
        return dock.running if action == "stop_prompt" else True

    def action_prompt(self) -> None:
        self._dock_left, self._dock_opens = False, True
        self.query_one(PromptDock).open()
        self._make_room()

    def action_close_prompt(self) -> None:
        self.query_one(PromptDock).display = False
        self._make_room()
        self.focus_default()

    def action_stop_prompt(self) -> None:
        self.query_one(PromptDock).stop()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Whoever clicks or tabs out of the dock leaves it as with ``escape``, and whoever clicks into it is back in it."""
        left = self.query_one(PromptDock) not in event.widget.ancestors_with_self
        if left and self._dock_opens:
            return
        self._dock_opens = False
        if left != self._dock_left:
            self._dock_left = left
            self._make_room()

    def on_leaving_input_left(self, message: LeavingInput.Left) -> None:
        """``escape`` in the dock: back to the plots. Its answers go on; where it had taken the lower panels' place, they come
        back, and of the dock a line stays when there are answers."""
        message.stop()
        self._dock_left = True
        self.focus_default()
        self._make_room()
