"""When the drift verdict has to be judged anew: when what it stands on has changed, and not when the same was read again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dflash_console.drift import drift_items, truth_table
from dflash_console.evidence.journal import LogLine
from dflash_console.evidence.process import ProcessEvidence
from dflash_console.evidence.start_log import StartLog
from dflash_console.hosts.service import ConfigSource, RunState, ServiceConfig
from dflash_console.hosts.stranger import Stranger
from dflash_console.state import Aged, HostState
from dflash_console.tui.drift_badge import drift_badge, drift_evidence
from dflash_console.tui.facts import Tone, header_facts

from .support import COMMAND, NOW, T0, state

HOT = "[2026-11-29 16:01:00] Hot change applied. speculative_ddtree_budget: 8 -> 16 (from /set_internal_state)"


def with_line(snapshot: HostState, text: str) -> HostState:
    assert snapshot.log is not None
    log = snapshot.log.value
    line = LogLine(text, invocation_id="aa" * 16, number=log.lines + 1)
    return replace(snapshot, log=Aged(log.add(line), NOW + 1))


def test_the_same_evidence_read_again_and_an_access_line_change_nothing() -> None:
    assert drift_evidence(state()) == drift_evidence(state(at=NOW + 5, revision=2))
    access = with_line(state(), '[2026-11-29 16:01:00] INFO: 127.0.0.1:40000 - "GET /metrics HTTP/1.1" 200 OK')
    assert drift_evidence(access) == drift_evidence(state())


def test_another_value_from_any_source_is_other_evidence() -> None:
    first = drift_evidence(state())
    assert drift_evidence(state(speculative_ddtree_budget=16)) != first, "the server"
    assert drift_evidence(with_line(state(), HOT)) != first, "the log"
    assert drift_evidence(state(ready=False)) != first, "readiness"
    assert drift_evidence(replace(state(), config=None)) != first, "the configuration"
    assert drift_evidence(replace(state(), gpu_holders=Aged((), NOW))) != first, "the processes on the GPUs"


def test_a_report_asked_after_a_hot_change_is_other_evidence_than_one_from_before() -> None:
    before = with_line(state(), HOT)
    assert before.log is not None
    after = replace(before, report_after=before.log.value.lines)
    assert drift_evidence(after) != drift_evidence(before)


def test_plain_decoding_with_a_trees_flags_left_in_the_file_is_confirmed_by_the_algorithm_that_its_log_names() -> None:
    plain = (
        "ddtree-launch: warning: --speculative-ddtree-budget has no effect with speculative_algorithm=None.",
        "[2026-11-29 16:00:00] server_args=ServerArgs(speculative_algorithm=None)",
        "[2026-11-29 16:00:04] The server is fired up and ready to roll!",
    )
    left = tuple("NONE" if word == "DDTREE" else word for word in COMMAND)
    shown = state(texts=plain, algorithm="PLAIN", speculation=False, speculative_ddtree_budget=0, speculative_ddtree_topk=0)
    shown = replace(
        shown,
        config=Aged(ServiceConfig((ConfigSource("u", ""),), left, left), NOW),
        process=Aged(ProcessEvidence(4242, left), NOW),
    )
    assert drift_badge(shown).words == "✓ confirmed"
    silent = replace(shown, log=Aged(StartLog().add_all(LogLine(text) for text in plain[2:]), NOW))
    assert drift_badge(silent).words == "? not confirmed"


def test_another_program_on_the_engines_port_is_said_in_the_header_and_is_no_engine_that_loads() -> None:
    ours = state()
    found = Stranger(30000, (8,), "pid 8 (python3)", "python3 -m http.server 30000")
    taken = replace(ours, ready=False, server=None, stranger=Aged(found, NOW))
    assert drift_evidence(taken) != drift_evidence(replace(taken, stranger=None))
    badge = drift_badge(taken)
    assert badge.words == "✗ port taken"
    facts = header_facts(taken, now=NOW, wall=T0, drift=badge)
    assert (facts.symbol, facts.state, facts.tone) == ("✗", "another program answers", Tone.BAD)
    assert header_facts(ours, now=NOW, wall=T0, drift=badge).state == "running"


@pytest.mark.parametrize(
    ("run", "words", "tone"),
    [
        (RunState.STOPPED, "! port taken", Tone.WARN),
        (RunState.MISSING, "! port taken", Tone.WARN),
        (RunState.FAILED, "✗ port taken", Tone.BAD),
    ],
)
def test_the_header_calls_a_taken_port_bad_exactly_where_drift_counts_it(run: RunState, words: str, tone: Tone) -> None:
    found = Stranger(30000, (8,), "pid 8 (python3)", beside=False)
    taken = replace(state(run=run), stranger=Aged(found, NOW))
    badge = drift_badge(taken)
    assert (badge.words, badge.tone) == (words, tone)
    assert len(drift_items(truth_table(taken))) == (tone is Tone.BAD)


SPOILT = "/u/service.toml: not valid TOML: Expected '=' after a key in a key/value pair (at line 1, column 5)"


@pytest.mark.parametrize("run", [RunState.RUNNING, RunState.STOPPED, RunState.FAILED])
def test_a_unit_file_that_cannot_be_read_is_said_in_the_header_and_nothing_is_confirmed(run: RunState) -> None:
    spoilt = ServiceConfig((ConfigSource("/u/service.toml", "bad"),), (), COMMAND, problems=(SPOILT,))
    shown = replace(state(run=run), config=Aged(spoilt, NOW))
    assert drift_evidence(shown) != drift_evidence(state(run=run))
    badge = drift_badge(shown)
    assert (badge.words, badge.tone) == ("? unit file", Tone.WARN)
    note = header_facts(shown, now=NOW, wall=T0, drift=badge).note
    assert note == "unit file: not valid TOML: Expected '=' after a key in a key/value pair (at line 1, column 5)"


def test_a_unit_file_that_was_read_once_and_cannot_be_any_more_confirms_nothing() -> None:
    gone = replace(state(), problems={"config": "/u/service.toml: permission denied"})
    assert drift_evidence(gone) != drift_evidence(state())
    assert drift_badge(gone).words == "? unit file"
    cut = replace(state(), problems={"config": "the connection was lost", "service": "the connection was lost"})
    assert drift_badge(cut).words == "✓ confirmed", "the header says that the link is lost, and what it shows is called stale"


def test_beside_a_unit_that_does_not_run_the_header_counts_the_drift_that_status_counts_and_confirms_nothing() -> None:
    stopped = state(run=RunState.STOPPED)
    assert drift_badge(stopped).words == ""
    config = ServiceConfig((ConfigSource("u", ""),), COMMAND, COMMAND, shadowed="the drop-in hides a change of the unit (-1 +2)")
    assert drift_badge(replace(stopped, config=Aged(config, NOW))).words == "✗ 1 drift"
