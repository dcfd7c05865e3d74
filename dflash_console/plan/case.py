"""What the checks of a plan look at: the settings wanted, the command lines before and after, and what is known of the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..state import HostState
from .predict import Wanted
from .records import Change, KnobChange, Mode, Survey


@dataclass(frozen=True)
class Case:
    """One plan, as the checks see it."""

    state: HostState
    change: Change
    mode: Mode
    survey: Survey
    old_command: tuple[str, ...]
    command: tuple[str, ...]
    changes: tuple[KnobChange, ...]
    writes: bool
    hot_refusals: Mapping[str, str]
    """Setting → why the running engine will not take it; empty when the mode is not hot."""

    @property
    def wanted(self) -> Wanted:
        return Wanted(self.state, self.command, self.change.settings, self.restart)

    @property
    def restart(self) -> bool:
        return self.mode is Mode.RESTART
