"""A drop-in that hides a change of the unit is drift of its own kind."""

from __future__ import annotations

import io
from dataclasses import replace

from dflash_console.commands.drift import print_drift
from dflash_console.commands.output import Output
from dflash_console.drift import DriftKind, Verdict, drift_items, truth_table
from dflash_console.drift.verdicts import DROP_IN
from dflash_console.evidence.process import ProcessEvidence
from dflash_console.hosts.service import ConfigSource, RunState, ServiceConfig, ServiceState
from dflash_console.state import Aged, HostState

COMMAND = ("ddtree-launch", "serve", "--port", "30000")


def state(shadowed: str) -> HostState:
    config = ServiceConfig((ConfigSource("/e.service", ""),), COMMAND, COMMAND, shadowed=shadowed)
    return HostState("h", "e.service", config=Aged(config, 0.0))


def test_a_shadowed_unit_is_drift_with_the_words_and_the_key_that_carries_the_drop_in_over() -> None:
    (row,) = drift_items(truth_table(state("zz hides a change (-1 +2)")))
    assert (row.knob, row.verdict, row.kind, row.key) == (DROP_IN, Verdict.DRIFT, DriftKind.SHADOWED, "e")
    assert row.message == "zz hides a change (-1 +2)"


def test_beside_a_unit_that_does_not_run_the_command_says_the_drift_that_it_exits_with() -> None:
    stopped = replace(state("zz hides a change (-1 +2)"), service=Aged(ServiceState("e.service", RunState.STOPPED), 0.0))
    said = io.StringIO()
    print_drift(Output(json_wanted=False, stdout=said), stopped, truth_table(stopped))
    assert said.getvalue() == (
        "e.service is not running, so no setting can disagree with its unit file yet\n✗ zz hides a change (-1 +2)\n"
    )


def test_without_a_shadow_there_is_no_such_row() -> None:
    assert truth_table(state("")).row(DROP_IN) is None


def test_a_drop_in_that_another_one_overrides_is_drift_that_names_the_winner() -> None:
    ours, winner = "/e.service.d/zz-ddtree-console.conf", "/e.service.d/zzz.conf"
    sources = tuple(ConfigSource(path, "") for path in ("/e.service", ours, winner))
    config = ServiceConfig(sources, COMMAND, COMMAND, command_path=winner)
    (row,) = drift_items(truth_table(HostState("h", "e.service", config=Aged(config, 0.0))))
    assert (row.knob, row.kind) == (DROP_IN, DriftKind.OVERRIDDEN)
    assert row.message.startswith(f"another drop-in wins: {winner}")
    config = ServiceConfig(sources, COMMAND, COMMAND, command_path=ours)
    assert truth_table(HostState("h", "e.service", config=Aged(config, 0.0))).row(DROP_IN) is None


def test_the_file_that_was_written_last_is_named_when_it_is_not_the_unit_file() -> None:
    sources = (ConfigSource("/e.service", "", 50.0), ConfigSource("/etc/default/e", "", 112.0))
    wanted = (*COMMAND, "--speculative-ddtree-budget", "16")
    state = HostState(
        "h",
        "e.service",
        service=Aged(ServiceState("e.service", RunState.RUNNING, "a", 7, started_at=100.0), 0.0),
        config=Aged(ServiceConfig(sources, wanted, COMMAND), 0.0),
        process=Aged(ProcessEvidence(7, COMMAND), 0.0),
    )
    row = truth_table(state).row("tree_budget")
    assert row is not None
    assert "older than /etc/default/e, by 12 s: no restart happened since it was written" in row.message
