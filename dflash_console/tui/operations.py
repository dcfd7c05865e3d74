"""From a key to an operation on the host: propose, ask, carry out in a worker, show how it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from textual.worker import Worker

from ..hosts.service import RunState
from . import draft, messages
from .facts import current_value
from .link import ApplyChoices, Control, LinkError
from .planning import Late, Planning
from .work import begin

if TYPE_CHECKING:
    from ..apply.records import ApplyResult, StageEvent
    from ..knobs import Value
    from ..plan import Mode, Plan
    from ..state import HostState
    from .course import Course
    from .host_app import HostApp
    from .link import HostLink, OnStage
    from .screens.apply import ApplyScreen
    from .screens.plan import PlanScreen

WORDS = {
    Control.START: "starting",
    Control.RESTART: "restarting",
    Control.STOP: "stopping",
    Control.RESUME: "resuming",
}

_ENDING = {"restart": "restarting", "stop": "stopping"}
"""Stages in which an operation ends the start that runs."""


class Operations:
    """At most one operation at a time. Its worker belongs to the application, so it goes on whatever screen is open."""

    def __init__(self, app: HostApp) -> None:
        self._app = app
        self._model = app.model
        self._watching = app.watching
        """The host that this is about, which may not be the one on the screen any more."""
        self._worker: Worker[None] | None = None
        self._course: Course | None = None
        """The operation that runs, or ran last."""
        self._screen: ApplyScreen | None = None
        """What shows it, or showed it last."""
        self._quiet = False
        self.planning = Planning(app)
        """The plan that is being made."""

    # Asking

    def propose(self, settings: Mapping[str, Value], *, write_down: bool = False) -> None:
        """Make a plan for these settings and show it; nothing changes before it is accepted.

        Args:
            write_down: they are in effect already, and only the file lacks them; else they are the edits on the screen.
        """
        link, state = self._may_change(), self._app.model.state
        if link is None or state is None or not settings:
            return
        said = draft.words(draft.DraftChange(settings), {name: current_value(state, name) for name in settings})
        self._plan(
            f"writing down {draft.value_words(settings)}" if write_down else said,
            partial(self._settings_screen, link, state, settings, write_down),
            edits=None if write_down else settings,
        )

    async def _settings_screen(
        self, link: HostLink, state: HostState, settings: Mapping[str, Value], persist: bool, late: Late
    ) -> PlanScreen:
        from ..config import EMBEDDED
        from ..plan import Mode
        from .screens.plan import PlanScreen

        plan = await link.plan(state, settings, Mode.AUTO, persist=persist)

        async def again(mode: Mode, persist: bool, commit_confirm: bool) -> Plan:
            newest = self._app.model.state
            assert newest is not None
            return await link.plan(newest, settings, mode, persist=persist, commit_confirm=commit_confirm)

        # The supervisor of this machine's units has no timer that would outlive this machine.
        timer = state.host != EMBEDDED
        return PlanScreen(plan, again, running=self._running_requests, persist=persist, timer=timer, unasked=late())

    def propose_drop_in(self, *, release: bool) -> None:
        """Show the plan that carries the console's drop-in over to a changed unit, or (``release``) removes it."""
        link = self._may_change()
        if link is not None:
            said = "removing the console's drop-in" if release else "carrying the drop-in over"
            self._plan(said, partial(self._whole_screen, partial(link.plan_drop_in, release=release), False))

    def roll_back(self) -> None:
        """Show the plan that undoes what was cut off, else goes back to the last confirmed configuration; nothing changes before
        it is accepted."""
        link = self._may_change()
        if link is not None:
            self._plan("a roll-back", partial(self._whole_screen, link.plan_roll_back, True))

    async def _whole_screen(self, make: Callable[[], Awaitable[Plan]], rolling_back: bool, late: Late) -> PlanScreen:
        from .screens.plan import PlanScreen

        plan = await make()
        return PlanScreen(plan, None, running=self._running_requests, rolling_back=rolling_back, unasked=late())

    @property
    def _running_requests(self) -> int:
        return 0 if self._app.model.state is None else self._app.model.state.rates.running or 0

    def _plan(
        self, said: str, make: Callable[[Late], Awaitable[PlanScreen]], *, edits: Mapping[str, Value] | None = None
    ) -> None:
        def opened(screen: PlanScreen) -> None:
            self._app.push_screen(screen, partial(self._accepted, screen.rolling_back))

        self.planning.make(said, make, opened, edits=edits)

    def _accepted(self, rolling_back: bool, answer: tuple[Plan, ApplyChoices] | None) -> None:
        # What may be changed is asked again: something else may have begun since the plan was shown.
        link = None if answer is None else self._may_change()
        if answer is None or link is None:
            return
        plan, choices = answer
        if rolling_back:
            self._begin("rolling back", lambda on_stage: link.roll_back(plan, choices, on_stage))
        else:
            self._begin("applying", lambda on_stage: link.apply(plan, choices, on_stage))

    def restart(self) -> None:
        """Restart, or start when nothing runs; running requests are named before they are cut."""
        state = self._app.model.state
        if state is not None and state.service is not None and state.service.value.state is not RunState.RUNNING:
            self.control(Control.START)
            return
        running = self._running_requests
        cut = f" {running} running requests would be cut." if running else ""
        self._ask(Control.RESTART, "Restart the engine?", f"It is confirmed from the log of the new start.{cut}", "restart")

    def stop(self) -> None:
        """Stop the service after a question."""
        self._ask(Control.STOP, "Stop the engine?", "Running requests are cut.", "stop")

    def _ask(self, control: Control, title: str, question: str, yes: str) -> None:
        from .screens.confirm import ConfirmScreen

        if self._may_change() is not None:
            screen = ConfirmScreen(title, question, yes=yes)
            self._app.push_screen(screen, lambda answer: self.control(control) if answer else None)

    def offer_unfinished(self, sentence: str) -> None:
        """An earlier console left an operation unfinished: resume it or undo it."""
        from .screens.unfinished import UnfinishedScreen

        def answered(resume: bool | None) -> None:
            if resume is not None:
                self.control(Control.RESUME) if resume else self.roll_back()

        self._app.push_screen(UnfinishedScreen(sentence), answered)

    def control(self, control: Control, *, quiet: bool = False) -> None:
        """Carry it out now. ``quiet`` shows the stages only when it does not end well."""
        link = self._may_change()
        if link is not None:
            self._begin(WORDS[control], lambda on_stage: link.control(control, on_stage), quiet=quiet)

    def _may_change(self) -> HostLink | None:
        link = self._app.link
        if link is None:
            self._app.notify("Not connected to a host yet.", severity="warning")
        elif link.read_only:
            why = "--read-only was given, or the configuration file says read_only = true"
            self._app.notify(f"Read only ({why}): nothing is changed on this host.", severity="warning", markup=False)
        elif self._app.model.busy:
            self._app.notify(f"{self._app.model.busy} is under way.", severity="warning")
            self.show()
        else:
            return link
        return None

    # Carrying out

    def _begin(self, word: str, operate: Callable[[OnStage], Awaitable[ApplyResult]], *, quiet: bool = False) -> None:
        from .course import Course

        state = self._app.model.state
        course = Course(word, "" if state is None else state.host)
        self._course, self._screen, self._quiet = course, None, quiet
        self._model.busy = word
        self._show_busy()
        self._worker = begin(self._app, partial(self._operate, course, operate), word, group="operation")
        if not quiet:
            self.show()

    async def _operate(self, course: Course, operate: Callable[[OnStage], Awaitable[ApplyResult]]) -> None:
        def stage(event: StageEvent) -> None:
            self._app.post_message(messages.StageArrived(self, course, event))

        try:
            result = await operate(stage)
        except LinkError as error:
            self._app.post_message(messages.OperationEnded(self, course, None, str(error)))
        except Exception as error:
            # Whatever it was, an operation that is over must not stand as under way for ever.
            sentence = f"an error of the console's own ended it ({type(error).__name__}); the operation's journal is on disk"
            self._app.post_message(messages.OperationEnded(self, course, None, sentence))
            raise
        else:
            self._app.post_message(messages.OperationEnded(self, course, result))

    def show(self, *, unasked: bool = False) -> None:
        """Open the stages of the operation that runs, or ran last; ``unasked``: by itself, over what the user is doing."""
        from .screens.apply import ApplyScreen

        if self._course is not None and not self._shown:
            # One that was closed is not opened again: its timers are stopped for good, the one that repaints it among them.
            self._screen = ApplyScreen(self._course, unasked=unasked)
            self._app.push_screen(self._screen)

    @property
    def _shown(self) -> bool:
        return self._screen is not None and self._screen in self._app.screen_stack

    def stop_waiting(self) -> None:
        """Cancel: what was asked of the host goes on there; the operation's journal stays for the next start."""
        if self._worker is not None and self._course is not None:
            self._worker.cancel()
            words = "stopped waiting; the operation's journal is on disk"
            self._app.post_message(messages.OperationEnded(self, self._course, None, words))

    def stage_arrived(self, course: Course, event: StageEvent) -> None:
        """Show a stage, unless its operation is over already."""
        if not course.over:
            if course.begins(event) and event.stage.name in _ENDING:
                self._model.begin_ending(_ENDING[event.stage.name])
            course.take_stage(event)
            self._course_moved()

    def _course_moved(self) -> None:
        if self._screen is not None and self._shown:
            self._screen.course_moved()

    def ended(self, course: Course, result: ApplyResult | None, sentence: str) -> None:
        """The operation is over: say how. The first end counts: one may come by itself while the user stops waiting for it."""
        if course.over:
            return
        app = self._app
        course.take_result(result, sentence)
        self._model.busy = ""
        self._model.begin_ending("")
        self._worker = None
        self._show_busy()
        self._course_moved()
        if self._quiet and not course.good and not self.elsewhere:
            self.show(unasked=True)
        if not self._shown:
            words = sentence if result is None else result.words
            title = course.host if self.elsewhere else ""
            app.notify(words, title=title, severity="information" if course.good else "error", timeout=8, markup=False)

    def _show_busy(self) -> None:
        """What runs, or has ended, shows at once in the header and in the screen that is open, not with the next snapshot."""
        if not self.elsewhere and self._app.screen_stack:
            self._app.show_header()
            self._app.pane.show(self._model)

    @property
    def running(self) -> bool:
        """Whether an operation is under way."""
        return self._worker is not None

    @property
    def elsewhere(self) -> bool:
        """Whether the console shows another host now."""
        return self._watching is not self._app.watching

    @property
    def words(self) -> str:
        """``applying on gpu-a``."""
        return "" if self._course is None else f"{self._course.word} on {self._course.host}"

    async def close_left(self) -> None:
        """Close a host that was left while its operation ran."""
        if self.elsewhere:
            await self._watching.close()
