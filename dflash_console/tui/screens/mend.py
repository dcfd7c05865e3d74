"""Mending a drifting row whose cure is to write down what is in effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...evidence.reading import Known

if TYPE_CHECKING:
    from ...drift import TruthRow
    from ..app import ConsoleApp


def write_down(app: ConsoleApp, row: TruthRow) -> None:
    """Propose writing the value in effect into the configuration, so that the next start keeps it."""
    if row.now.known is Known.VALUE and row.now.value is not None:
        app.operations.propose({row.knob: row.now.value}, write_down=True)
