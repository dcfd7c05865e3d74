"""The plan, before anything is changed: what, how, what speaks against it. ``enter`` carries it out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Static

from ...formats import duration
from ..keymap import key_binding
from ..link import ApplyChoices, LinkError
from ..plan_words import change_lines, command_text, diff_text, findings_text, prediction_lines, unchanged_words
from ..planning import SHOWN_AFTER_S
from ..work import begin
from .dialog import ScrollText
from .pane import app_of
from .unasked import NOTICED_S, UnaskedDialog

if TYPE_CHECKING:
    from ...plan import Mode, Plan


MakeAgain = Callable[["Mode", bool, bool], Awaitable["Plan"]]
"""Makes a plan for a mode, for writing it down too, and for commit-confirm."""


class PlanScreen(UnaskedDialog[tuple["Plan", ApplyChoices]]):
    """Answers with the plan and the choices, or with nothing.

    A plan that took long to make opens when nobody expects it at the next key, so it waits for the keyboard to rest.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        key_binding("plan.apply", "enter,y", "go", "apply", "carry the plan out"),
        key_binding("plan.mode", "m", "mode", "hot/restart", "while the engine runs, or by a restart"),
        key_binding("plan.rollback", "o", "rollback", "roll back on failure", "roll back by itself when it is not confirmed"),
        key_binding("plan.drain", "d", "drain", "drain first", "let running requests end before the stop"),
        key_binding("plan.commit_confirm", "t", "timer", "commit-confirm", "the host goes back unless it is confirmed in time"),
        key_binding("plan.persist", "f", "persist", "write to the file too", "write a hot change to the file too"),
    ]
    topic = "plan"

    def __init__(
        self,
        plan: Plan,
        again: MakeAgain | None,
        *,
        running: int = 0,
        persist: bool = False,
        timer: bool = False,
        rolling_back: bool = False,
        unasked: bool = False,
    ) -> None:
        """
        Args:
            again: makes the plan anew; ``None``: there is one way.
            running: requests that run now.
            timer: the host can put the configuration back by itself (commit-confirm).
            rolling_back: the plan goes back to an earlier configuration; it is not rolled back in its turn.
            unasked: the plan took so long that the next keys may be meant for something else.
        """
        super().__init__("Roll back" if rolling_back else "Apply", unasked=unasked)
        self.rolling_back = rolling_back
        self._planning = False
        self._plan = plan
        self._again = again
        self._running_requests = running
        self._persist = persist
        self._timer = timer and again is not None
        self._commit_confirm = plan.undo_after_s is not None
        self._rollback = False
        self._drain = False

    def compose_body(self) -> ComposeResult:
        yield Static("", markup=False, id="plan-choices")
        yield ScrollText(Text(), id="plan")

    def on_mount(self) -> None:
        self._repaint()

    @property
    def _restart(self) -> bool:
        return self._plan.mode.value == "restart"

    @property
    def _drains(self) -> bool:
        # What was cut off is taken up where it was; it waits for no requests.
        return self._restart and not self._plan.takes_up

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        taken = super().check_action(action, parameters)
        if not taken:
            return taken
        if self._planning and action in ("go", "mode", "timer", "persist"):
            # While it is made anew, what is shown is not what was asked for; nor is it made anew twice at a time.
            return None
        if action == "go":
            return not self._plan.blocked
        if action == "rollback":
            return self._restart and not self.rolling_back
        if action == "drain":
            return self._drains
        if action == "timer":
            return self._restart and self._timer
        if action == "mode":
            return self._again is not None
        return not self._restart and self._again is not None if action == "persist" else True

    def action_go(self) -> None:
        self.dismiss((self._plan, ApplyChoices(self._rollback, self._drain)))

    def action_rollback(self) -> None:
        self._rollback = not self._rollback
        self._repaint()

    def action_drain(self) -> None:
        self._drain = not self._drain
        self._repaint()

    def action_persist(self) -> None:
        self._persist = not self._persist
        self._plan_again(self._plan.mode)

    def action_timer(self) -> None:
        """Have the host put the configuration back by itself unless the change is confirmed in time."""
        self._commit_confirm = not self._commit_confirm
        self._plan_again(self._plan.mode)

    def action_mode(self) -> None:
        from ...plan import Mode

        self._plan_again(Mode.HOT if self._restart else Mode.RESTART)

    def _plan_again(self, mode: Mode) -> None:
        if self._again is not None:
            self._planning = True
            self.refresh_bindings()
            self.set_timer(SHOWN_AFTER_S, self._repaint)
            begin(self, partial(self._make, self._again, mode), "planning again", exclusive=True)

    async def _make(self, again: MakeAgain, mode: Mode) -> None:
        clock = app_of(self).clock
        asked_at = clock.monotonic()
        try:
            self._plan = await again(mode, self._persist, self._commit_confirm)
        except LinkError as error:
            self.notify(str(error), severity="error", markup=False)
        self._planning = False
        self._repaint()
        if clock.monotonic() - asked_at > NOTICED_S:
            self.wait_anew()
        self.refresh_bindings()

    def _repaint(self) -> None:
        if not self.has_parts:
            return
        self.query_one("#plan-choices", Static).update(self._choices())
        sentences = self._sentences()
        # Diff and command stay as they are: whoever copies them wants no line ends of ours.
        self.query_one("#plan", ScrollText).show_text(sentences + self._files(), prose=len(sentences))

    def _choices(self) -> Text:
        variables = self.app.theme_variables
        how = Text(" ")
        if self._planning:
            return how.append("being made anew with this choice", style=variables.get("accent", ""))
        how.append("restart" if self._restart else "now, without a restart", style=f"bold {variables.get('accent', '')}")
        if self._restart:
            if not self.rolling_back:
                how.append(f"   roll back on failure: {'yes' if self._rollback else 'no'}", style="dim")
            if self._drains:
                how.append(f"   drain first: {'yes' if self._drain else 'no'}", style="dim")
            if self._timer or self._plan.undo_after_s is not None:
                how.append(f"   commit-confirm: {self._timer_words()}", style="dim")
            if self._running_requests:
                how.append(f"   {self._running_requests} running requests", style=variables.get("warning", ""))
        elif self._again is not None:
            how.append(f"   write to the file too: {'yes' if self._persist else 'no'}", style="dim")
        return how

    def _timer_words(self) -> str:
        after = self._plan.undo_after_s
        return "no" if after is None else f"the host goes back after {duration(after)} by itself"

    def _sentences(self) -> Text:
        plan, variables = self._plan, self.app.theme_variables
        text = Text()
        for words, proof in change_lines(plan):
            text.append(f"{words}\n", style="bold")
            text.append(f"  {proof}\n", style=variables.get("quiet", ""))
        if same := unchanged_words(plan):
            text.append(f"{same}\n", style=variables.get("quiet", ""))
        text.append("\n")
        text.append_text(findings_text(plan, variables))
        if plan.blocked:
            text.append("An error stands against it: it cannot be applied.\n", style=f"bold {variables.get('error', '')}")
        for line in prediction_lines(plan.predictions, restart=self._restart):
            text.append(f"· {line}\n", style=variables.get("quiet", ""))
        return text.append("\n")

    def _files(self) -> Text:
        plan, variables = self._plan, self.app.theme_variables
        text = diff_text(plan, variables)
        if self._restart:
            text.append("\nEffective command\n", style="bold")
            text.append(command_text(plan))
        return text
