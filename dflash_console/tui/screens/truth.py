"""Six sources, one table, and a verdict in words for each setting."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from ...evidence.reading import Known
from ...hosts.service import RunState
from ...knobs import KNOBS, Value
from ..drift_badge import drift_evidence
from ..widgets.truth_view import TruthView
from .pane import Pane, app_of

if TYPE_CHECKING:
    from ...drift import TruthTable
    from ..model import ConsoleModel


LEGEND = " – not named by this source   ? not read   ✓ in effect   ! to know   ✗ drift"


def unwritten(table: TruthTable | None) -> dict[str, Value]:
    """The settings in effect that a restart would lose, with their values."""
    rows = () if table is None else table.rows
    return {
        row.knob: row.now.value
        for row in rows
        if row.key == "a" and row.knob in KNOBS and row.now.known is Known.VALUE and row.now.value is not None
    }


class TruthPane(Pane):
    """The drift table of the newest snapshot; judged anew only when a source says something else."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "row", id="truth.up", tooltip="the row above", show=False),
        Binding("down,j", "move(1)", "row", id="truth.down", tooltip="the row below", show=False),
        Binding("a", "write_down", "write down", show=True, id="truth.write_down", tooltip="write what is in effect to the file"),
        Binding(
            "e",
            "rebase",
            "carry over",
            show=True,
            id="truth.rebase",
            tooltip="carry the console's drop-in over to the changed unit",
        ),
        Binding(
            "E",
            "release",
            "release",
            show=True,
            id="truth.release",
            tooltip="remove the console's drop-in: the unit's own command",
        ),
        Binding("enter", "mend", "mend", show=True, id="truth.mend", tooltip="press the key that mends this row"),
    ]
    edits = True
    needed_keys = ("operation.restart", "operation.rollback")
    default_focus = "#truth-table"

    def __init__(self) -> None:
        super().__init__(id="truth")
        self._evidence: tuple[object, ...] = ()
        self._table: TruthTable | None = None

    def compose(self) -> ComposeResult:
        yield TruthView(id="truth-table")
        yield Static(Text(LEGEND, style="dim"), id="truth-legend")

    def show(self, model: ConsoleModel) -> None:
        state = model.state
        if state is None:
            return
        evidence = drift_evidence(state)
        if evidence == self._evidence:
            return
        self._evidence = evidence
        from ...drift import truth_table

        self._table = truth_table(state)
        running = state.service is not None and state.service.value.state is RunState.RUNNING
        self.query_one(TruthView).show_table(self._table, running=running)

    def action_move(self, by: int) -> None:
        self.query_one(TruthView).move(by)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "write_down":
            return bool(unwritten(self._table)) and not app_of(self).model.change
        if action in ("rebase", "release"):
            return self._shadowed
        return True

    @property
    def _shadowed(self) -> bool:
        """Whether the console's drop-in hides a later change of the unit."""
        state = app_of(self).model.state
        return state is not None and state.config is not None and bool(state.config.value.shadowed)

    def action_rebase(self) -> None:
        """Propose the drop-in anew, made from the unit as it is now."""
        app_of(self).operations.propose_drop_in(release=False)

    def action_release(self) -> None:
        """Propose to remove the drop-in."""
        app_of(self).operations.propose_drop_in(release=True)

    def action_write_down(self) -> None:
        """Propose writing every hot change that the configuration lacks into it."""
        app_of(self).operations.propose(unwritten(self._table), write_down=True)

    def action_mend(self) -> None:
        """Do what the row's key would do."""
        row = self.query_one(TruthView).current
        if row is None or not row.key:
            self.notify("No key mends this row.", severity="information")
        elif row.key == "a":
            self.action_write_down()
        else:
            self.app.simulate_key(row.key)
