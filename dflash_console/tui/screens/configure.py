"""Every setting with its value, the change being put together, and what applying it would do."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.timer import Timer
from textual.widgets import Input

from ...knobs import KnobError, find_knob
from .. import messages
from ..focus import take_focus
from ..knob_rows import knob_rows
from ..plan_words import command_text, diff_text, findings_text, prediction_lines
from ..verify_curve import curve_lines
from ..widgets.field import LeavingInput, ValueInput
from ..widgets.knob_table import KnobTable
from ..work import begin
from .dialog import ScrollText
from .pane import Pane, app_of

if TYPE_CHECKING:
    from ...plan import Plan
    from ..link import HostLink
    from ..model import ConsoleModel

PREVIEW_DELAY = 0.2
"""Seconds without a key press before a plan is made for the preview."""


class ConfigurePane(Pane):
    """Settings on the left, what would be written and what to expect on the right."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "setting", id="settings.up", tooltip="the setting above", show=False),
        Binding("down,j", "move(1)", "setting", id="settings.down", tooltip="the setting below", show=False),
        Binding("enter", "edit", "edit", show=True, id="settings.edit", tooltip="type a value"),
        Binding("delete,backspace", "forget", "take back", id="settings.forget", tooltip="take this edit back", show=False),
        Binding("plus,equals_sign", "step_current(1)", "value", show=True, id="settings.next", tooltip="the next value"),
        Binding("minus", "step_current(-1)", "value", show=True, id="settings.previous", tooltip="the previous value"),
        Binding("F", "flag", "any flag", id="settings.flag", tooltip="set any flag by its name", show=False),
        Binding(
            "P", "save_profile", "save profile", show=True, id="settings.save_profile", tooltip="save these settings as a profile"
        ),
        Binding("L", "load_profile", "profiles", show=True, id="settings.load_profile", tooltip="load or compare a profile"),
    ]
    edits = True
    needed_keys = ("operation.restart", "operation.rollback")
    default_focus = "#knobs"

    def __init__(self, model: ConsoleModel) -> None:
        super().__init__(id="configure")
        self._model = model
        self._timer: Timer | None = None
        self._asking = ""
        self._planned_for: object = None

    def compose(self) -> ComposeResult:
        with Horizontal(id="configure-columns"):
            with Vertical(id="configure-left"):
                yield KnobTable(id="knobs")
                findings = ScrollText(Text(), id="findings")
                findings.add_class("framed")
                yield findings
            with Vertical(id="configure-right"):
                written = ScrollText(Text(), id="written")
                written.border_title = "What will be written"
                written.add_class("framed")
                yield written
                expect = ScrollText(Text(), id="expect")
                expect.border_title = "What to expect"
                expect.add_class("framed")
                yield expect
        field = ValueInput(id="knob-input")
        field.display = False
        yield field

    def on_mount(self) -> None:
        self._timer = self.set_timer(PREVIEW_DELAY, self._preview, pause=True)
        self._mark_idle(True)
        self._idle_texts()

    # Showing

    def show(self, model: ConsoleModel) -> None:
        if model.state is None:
            return
        self.query_one(KnobTable).show_rows(knob_rows(model.state, model.change))
        self._mark_idle(not model.change)
        if not model.change:
            self._text("findings", self._help_text())
        elif self._planned_for is None:
            self._preview_soon()

    def change_edited(self, model: ConsoleModel) -> None:
        self.show(model)
        if model.change:
            last = list(model.change.values)[-1]
            self.query_one(KnobTable).choose(last)
            self._preview_soon()
        else:
            self._planned_for = None
            self._idle_texts()

    def _mark_idle(self, idle: bool) -> None:
        """While nothing is edited, a small terminal leaves out the panels that would say so, and explains the setting there."""
        self.set_class(idle, "-idle")
        self.query_one("#findings", ScrollText).border_title = "What it is" if idle else "Before you apply"

    def _idle_texts(self) -> None:
        quiet = self.app.theme_variables.get("quiet", "")
        self._text("written", Text("Nothing is edited. + and - step the setting, enter types a value.", style=quiet))
        self._text("expect", Text("–", style=quiet))
        self._text("findings", self._help_text())

    def _help_text(self) -> Text:
        row = self.query_one(KnobTable).current
        if row is None:
            return Text()
        knob = find_knob(row.name)
        text = Text()
        text.append(f"{knob.title}: ", style="bold")
        text.append(knob.help)
        if knob.flags:
            text.append(f"\n{knob.flags[0]}", style=self.app.theme_variables.get("quiet", ""))
        if knob.name == "tree_budget":
            text.append(self._verify_costs())
        return text

    def _verify_costs(self) -> str:
        """What an engine that sizes trees itself has measured; empty for others."""
        state = self._model.state
        if state is None or state.server is None:
            return ""
        server = state.server.value
        lines = curve_lines(server.verify_curve, self.query_one("#findings", ScrollText).scrollable_content_region.width)
        if not lines:
            return ""
        nodes = server.number("avg_tree_nodes")
        trees = f" (trees so far: {nodes:.1f} nodes on average)" if nodes else ""
        return "\n".join((f"\n\nOne verify, as measured here{trees}:", *lines))

    def _text(self, identity: str, text: Text, *, prose: int = 0) -> None:
        self.query_one(f"#{identity}", ScrollText).show_text(text, prose=prose)

    def on_knob_table_moved(self) -> None:
        if not self._model.change:
            self._text("findings", self._help_text())

    # Preview

    def _preview_soon(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(PREVIEW_DELAY, self._preview)

    def _preview(self) -> None:
        link = app_of(self).link
        if link is not None and self._model.state is not None and self._model.change:
            self._planned_for = self._model.change
            begin(self, partial(self._plan, link), "planning", group="preview", exclusive=True)

    async def _plan(self, link: HostLink) -> None:
        from ...plan import Mode
        from ..link import LinkError

        assert self._model.state is not None
        try:
            plan = await link.plan(self._model.state, self._model.change.values, Mode.AUTO)
        except LinkError as error:
            self.post_message(messages.PlanFailed(str(error)))
        else:
            self.post_message(messages.PlanMade(plan))

    def on_plan_made(self, message: messages.PlanMade) -> None:
        message.stop()
        if self._model.change:
            self._show_plan(message.plan)

    def on_plan_failed(self, message: messages.PlanFailed) -> None:
        message.stop()
        self._text("findings", Text(f"✗ {message.sentence}", style=self.app.theme_variables.get("error", "")))

    def _show_plan(self, plan: Plan) -> None:
        colours = self.app.theme_variables
        written = diff_text(plan, colours)
        written.append("\nEffective command\n", style="bold")
        written.append(command_text(plan))
        self._text("written", written)
        restart = plan.mode.value == "restart"
        self._text("expect", Text("\n".join(prediction_lines(plan.predictions, restart=restart))))
        findings = findings_text(plan, colours)
        self._text("findings", findings, prose=len(findings))

    # Editing

    def action_move(self, by: int) -> None:
        self.query_one(KnobTable).move(by)

    def action_step_current(self, direction: int) -> None:
        row = self.query_one(KnobTable).current
        if row is not None:
            self.app.call_later(self.app.run_action, f"app.step({row.name!r}, {direction})")

    def action_forget(self) -> None:
        row = self.query_one(KnobTable).current
        if row is not None and row.edited:
            app_of(self).forget_edit(row.name)

    def on_knob_table_chosen(self, message: KnobTable.Chosen) -> None:
        message.stop()
        self.action_edit()

    def action_edit(self) -> None:
        row = self.query_one(KnobTable).current
        if row is None:
            return
        knob = find_knob(row.name)
        self._ask(row.name, f"{knob.title} ({knob.unit})" if knob.unit else knob.title, row.new if row.new not in "–?" else "")
        # What is typed first takes the old value's place, an arrow key keeps it.
        self.query_one("#knob-input", LeavingInput).select_all()

    def action_flag(self) -> None:
        self._ask("flag", "any flag, as --its-name value", "--")

    def action_save_profile(self) -> None:
        self._ask("profile", "save these settings as the profile called", "")

    def _ask(self, what: str, title: str, value: str) -> None:
        self._asking = what
        field = self.query_one("#knob-input", LeavingInput)
        field.border_title = title
        field.value = value
        field.display = True
        take_focus(field)

    def on_leaving_input_left(self, message: LeavingInput.Left) -> None:
        message.stop()
        self._end_field()

    def _end_field(self) -> None:
        self.query_one("#knob-input", LeavingInput).display = False
        self.focus_default()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the typed value; a value that the setting cannot take is said and the field stays open."""
        event.stop()
        text = event.value.strip()
        if self._asking == "profile":
            if text:
                self._end_field()
                self._save_profile(text)
            return
        name, value = self._asking, text
        if name == "flag":
            flag, _, value = text.partition("=") if "=" in text.split(" ", 1)[0] else text.partition(" ")
            # Whoever pastes a whole flag behind the dashes that stand there has them twice.
            name = f"flag:--{flag.lstrip('-')}"
        try:
            knob = find_knob(name)
            parsed = knob.parse(value)
        except KnobError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        self._end_field()
        app_of(self).edit(knob.name, parsed)

    # Profiles

    def _save_profile(self, name: str) -> None:
        from ..profiles import save_profile

        save_profile(app_of(self), name)

    def action_load_profile(self) -> None:
        from ..profiles import choose_profile

        choose_profile(app_of(self))
