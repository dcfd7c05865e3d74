"""The plan that is being made: one at a time, told when it takes long, given up with a key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from textual.timer import Timer
from textual.worker import Worker

from .link import LinkError
from .widgets.change_bar import ChangeBar
from .work import begin

if TYPE_CHECKING:
    from ..knobs import Value
    from .host_app import HostApp
    from .screens.plan import PlanScreen

SHOWN_AFTER_S = 0.3
"""Seconds that a plan takes before it is told that it is being made: a line that comes and goes at once would only flicker."""

Late = Callable[[], bool]
"""Whether the plan has taken so long that it opens unasked."""


@dataclass(eq=False)
class _Asked:
    """One plan, from its key on."""

    words: str
    edits: Mapping[str, Value] | None
    at: float
    """By the console's monotonic clock."""
    shown: bool = False


class Planning:
    """Makes plans for the keys that ask for one. The same plan asked for again is the one that is being made; another takes its
    place."""

    def __init__(self, app: HostApp) -> None:
        self._app = app
        self._asked: _Asked | None = None
        self._worker: Worker[None] | None = None
        self._timer: Timer | None = None

    @property
    def making(self) -> bool:
        """Whether a plan is being made."""
        return self._asked is not None

    def make(
        self,
        words: str,
        make: Callable[[Late], Awaitable[PlanScreen]],
        opened: Callable[[PlanScreen], None],
        *,
        edits: Mapping[str, Value] | None = None,
    ) -> None:
        """Make a plan in a worker, beside the screens.

        Args:
            words: what it is a plan of (``tree budget 8 → 16``): no two plans have the same ones.
            make: makes the plan and the dialog that shows it.
            opened: takes that dialog.
            edits: the edits of which it is, where it is of edits: when they are others, it is given up.
        """
        if self._asked is not None and (self._asked.words, self._asked.edits) == (words, edits):
            return
        self.give_up()
        asked = self._asked = _Asked(words, edits, self._app.clock.monotonic())
        self._timer = self._app.set_timer(SHOWN_AFTER_S, partial(self._tell, asked))
        self._worker = begin(self._app, partial(self._work, asked, make, opened), "planning", group="plan")

    async def _work(
        self, asked: _Asked, make: Callable[[Late], Awaitable[PlanScreen]], opened: Callable[[PlanScreen], None]
    ) -> None:
        from .screens.unasked import NOTICED_S

        clock = self._app.clock
        try:
            screen = await make(lambda: clock.monotonic() - asked.at > NOTICED_S)
        except LinkError as error:
            self._app.notify(str(error), title="No plan", severity="error", timeout=12, markup=False)
        else:
            opened(screen)
        finally:
            if self._asked is asked:
                self._forget()

    def give_up(self) -> None:
        """Make no plan after all; what was asked of the host for it is not waited for."""
        if self._worker is not None:
            self._worker.cancel()
        self._forget()

    def change_is(self, values: Mapping[str, Value]) -> None:
        """The edits are these now: a plan of others is not what the user wants any more."""
        if self._asked is not None and self._asked.edits not in (None, values):
            self.give_up()
            self._app.notify("The plan is given up: the change is another one now.")

    def _forget(self) -> None:
        if self._asked is None:
            return
        self._asked, self._worker = None, None
        if self._timer is not None:
            self._timer.stop()
        self.show()

    def _tell(self, asked: _Asked) -> None:
        asked.shown = True
        self.show()

    def show(self) -> None:
        """Bring the line of the plan up to date, which tells for how long it has been made."""
        # The console may be about to end, with its screens gone.
        for bar in (bar for root in self._app.screen_stack[:1] for bar in root.query(ChangeBar)):
            if self._asked is None or not self._asked.shown:
                bar.show_plan("", 0.0, "")
            else:
                seconds = self._app.clock.monotonic() - self._asked.at
                bar.show_plan(self._asked.words, seconds, self._app.keys_named("operation.give_up_plan"))
