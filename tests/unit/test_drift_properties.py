"""What holds of drift whatever a host's sources say: what was not read makes no mismatch, and agreement is no drift."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from hypothesis import given
from hypothesis import strategies as st

from dflash_console.drift import Verdict, drift_items, truth_table
from dflash_console.evidence.reading import Known
from dflash_console.hosts.service import RunState

from .drift_host import COMMAND, READY, Host, confirmation, hot, reported

WINDOWS = st.sampled_from([None, 8, 512, 2048])
BUDGETS = st.sampled_from([1, 8, 16])


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    def command() -> tuple[str, ...]:
        window = draw(WINDOWS)
        flags = () if window is None else ("--speculative-draft-window-size", str(window))
        return (*COMMAND[:8], "--speculative-ddtree-budget", str(draw(BUDGETS)), *flags)

    changes = draw(
        st.lists(
            st.sampled_from([hot("speculative_ddtree_budget", 8, 16), hot("speculative_draft_window_size", 0, 512)]), max_size=2
        )
    )
    info = reported(
        speculative_ddtree_budget=draw(BUDGETS), speculative_draft_window_size=draw(WINDOWS), layers_window=draw(WINDOWS)
    )
    return Host(
        written=command(),
        loaded=command(),
        process=command(),
        log=(confirmation(budget=draw(BUDGETS), window=draw(WINDOWS), layers=draw(WINDOWS)), READY, *changes),
        server=draw(st.sampled_from([info, None])),
        state=draw(st.sampled_from(list(RunState))),
    )


PARTS = ("written", "loaded", "process", "log", "server", "drafter")


@given(hosts(), st.sets(st.sampled_from(PARTS)))
def test_a_source_that_was_not_read_never_makes_a_mismatch(host: Host, missing: set[str]) -> None:
    less = host.without(missing)
    whole = truth_table(host.snapshot())
    before = {row.knob for row in drift_items(whole)}
    in_effect = {row.knob: row.now.value for row in whole.rows}
    for row in drift_items(truth_table(less.snapshot())):
        known = [reading for reading in row.readings.values() if reading.known is not Known.UNKNOWN]
        assert len(known) >= 2, "a mismatch needs two sources that were read"
        # Without its best witness a weaker one speaks for a setting: the log of a change that the report has overtaken.
        another_witness = row.now.value is not None and row.now.value != in_effect.get(row.knob)
        assert row.knob in before or another_witness or row.knob == "compact_cache", "nothing drifts because less is known"


@given(st.sets(st.sampled_from(PARTS), min_size=5))
def test_one_source_alone_never_drifts(missing: set[str]) -> None:
    host = Host(server=reported()).without(missing)
    assert drift_items(truth_table(host.snapshot())) == ()


@given(BUDGETS, WINDOWS)
def test_the_same_values_everywhere_are_in_order(budget: int, window: int | None) -> None:
    flags = () if window is None else ("--speculative-draft-window-size", str(window))
    command = (*COMMAND[:8], "--speculative-ddtree-budget", str(budget), *flags)
    info = reported(speculative_ddtree_budget=budget, speculative_draft_window_size=window, compact_cache=window is not None)
    # The report's start values are those of the same start.
    info = replace(
        info,
        startup=MappingProxyType({**info.startup, "speculative_ddtree_budget": budget, "speculative_draft_window_size": window}),
    )
    table = truth_table(Host(command, command, command, (confirmation(budget=budget, window=window), READY), info).snapshot())
    assert drift_items(table) == ()
    assert {row.verdict for row in table.rows} <= {Verdict.OK, Verdict.NOTE}
