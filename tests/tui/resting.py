"""Rests of the keyboard that come when a test says so, and not when a busy machine has not got round to the next key in time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dflash_console.tui.screens import unasked
from dflash_console.tui.screens.unasked import UnaskedDialog


class Rest:
    """In the place of the timer of one rest."""

    def __init__(self, dialog: UnaskedDialog[object], callback: Callable[[], None]) -> None:
        self._dialog = dialog
        self._callback = callback
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True

    def come(self) -> None:
        if not self.stopped:
            self._dialog.call_later(self._callback)


class Rests(list[Rest]):
    """All that dialogs began to wait for, the newest last."""

    def come(self) -> None:
        """Nobody has pressed a key for long enough."""
        for rest in self:
            rest.come()


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> Rests:
    begun = Rests()
    set_timer = UnaskedDialog.set_timer

    def begin(dialog: UnaskedDialog[object], delay: float, callback: Callable[[], None]) -> object:
        if delay != unasked.SETTLE_S:
            return set_timer(dialog, delay, callback)
        begun.append(Rest(dialog, callback))
        return begun[-1]

    monkeypatch.setattr(UnaskedDialog, "set_timer", begin)
    return begun
