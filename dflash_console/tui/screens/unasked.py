"""Dialogs that open by themselves, over whatever the user is doing."""

from __future__ import annotations

from typing import Generic

from textual import events
from textual.timer import Timer

from .dialog import Dialog, Result

SETTLE_S = 0.6
"""Seconds without a key: whoever types a sentence pauses less between two letters, and reads no dialog meanwhile."""

NOTICED_S = 0.25
"""Seconds from a key to the dialog that it asks for, after which that opens as if by itself: the next keys may be meant for what
was there before."""


class UnaskedDialog(Dialog[Result], Generic[Result]):
    """Takes no answer before the keyboard has rested: what is being typed elsewhere is none. ``escape`` closes it at any time."""

    def __init__(self, title: str, *, unasked: bool = True) -> None:
        """``unasked``: it opens by itself; else somebody has just asked for it, and it takes answers at once."""
        super().__init__(title)
        self._unasked = unasked
        self._rests: Timer | None = None

    @property
    def takes_answers(self) -> bool:
        """The keyboard has rested since it opened, or it was asked for."""
        return not self._unasked

    def on_screen_resume(self) -> None:
        super().on_screen_resume()
        self._wait_for_rest()

    def on_key(self, event: events.Key) -> None:
        if event.key != "escape":
            self._wait_for_rest()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if self._unasked and action != "leave" and hasattr(self, f"action_{action}"):
            # None: the key stands for something, and is taken, but does nothing yet.
            return None
        return super().check_action(action, parameters)

    def wait_anew(self) -> None:
        """What it shows is another thing now: take no answer before the keyboard has rested again."""
        self._unasked = True
        self._wait_for_rest()
        self.refresh_bindings()

    def _wait_for_rest(self) -> None:
        if not self._unasked:
            return
        if self._rests is not None:
            self._rests.stop()
        self._rests = self.set_timer(SETTLE_S, self._rested)

    def _rested(self) -> None:
        self._unasked = False
        self.refresh_bindings()
