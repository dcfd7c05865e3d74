"""A drop-in that hides a change of the unit is drift of its own kind."""

from __future__ import annotations

from dflash_console.drift import DriftKind, Verdict, drift_items, truth_table
from dflash_console.drift.verdicts import DROP_IN
from dflash_console.hosts.service import ConfigSource, ServiceConfig
from dflash_console.state import Aged, HostState

COMMAND = ("ddtree-launch", "serve", "--port", "30000")


def state(shadowed: str) -> HostState:
    config = ServiceConfig((ConfigSource("/e.service", ""),), COMMAND, COMMAND, shadowed=shadowed)
    return HostState("h", "e.service", config=Aged(config, 0.0))


def test_a_shadowed_unit_is_drift_with_the_words_and_no_key_that_would_restart_it() -> None:
    (row,) = drift_items(truth_table(state("zz hides a change (-1 +2)")))
    assert (row.knob, row.verdict, row.kind, row.key) == (DROP_IN, Verdict.DRIFT, DriftKind.SHADOWED, "")
    assert row.message == "zz hides a change (-1 +2)"


def test_without_a_shadow_there_is_no_such_row() -> None:
    assert truth_table(state("")).row(DROP_IN) is None
