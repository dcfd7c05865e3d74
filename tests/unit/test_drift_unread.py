"""A unit file that cannot be read is a source that is missing: nothing agrees with it, and what it gives is not known."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import replace

import pytest

from dflash_console.commands.drift import print_drift
from dflash_console.commands.output import Output
from dflash_console.commands.status import live_figures, print_status, status_json
from dflash_console.doctor import CheckStatus
from dflash_console.drift import Severity, Verdict, drift_items, truth_table
from dflash_console.drift.verdicts import UNIT_FILE
from dflash_console.effective import configured
from dflash_console.evidence.reading import Known
from dflash_console.host_checks import check_configuration
from dflash_console.hosts.service import ConfigSource, RunState, ServiceConfig
from dflash_console.knobs import Source
from dflash_console.plan import Change, Mode, Survey
from dflash_console.plan.maker import make_plan
from dflash_console.state import Aged, HostState

from .drift_host import COMMAND, Host, reported

WHY = "/u/service.toml: not valid TOML: Expected '=' after a key in a key/value pair (at line 1, column 5)"


def running(state: RunState = RunState.RUNNING) -> HostState:
    return replace(Host(server=reported(), state=state).snapshot(), ready=state is RunState.RUNNING)


def spoilt(state: RunState = RunState.RUNNING) -> HostState:
    """The file was read and makes no sense."""
    config = ServiceConfig((ConfigSource("/u/service.toml", "bad"),), (), COMMAND, problems=(WHY,))
    return replace(running(state), config=Aged(config, 0.0))


def withheld(state: RunState = RunState.RUNNING) -> HostState:
    """It was read once and cannot be any more."""
    return replace(running(state), problems={"config": WHY})


def drift_words(state: HostState) -> str:
    said = io.StringIO()
    print_drift(Output(json_wanted=False, stdout=said), state, truth_table(state))
    return said.getvalue()


def status_words(state: HostState) -> str:
    said = io.StringIO()
    print_status(Output(json_wanted=False, stdout=said), state, live_figures(state), truth_table(state))
    return said.getvalue()


@pytest.mark.parametrize("unread", [spoilt(), withheld()], ids=["spoilt", "withheld"])
def test_what_it_asks_for_is_unknown_and_no_setting_is_called_in_order(unread: HostState) -> None:
    assert configured(unread, "tree_budget").known is Known.UNKNOWN
    table = truth_table(unread)
    row = table.row("tree_budget")
    assert row is not None
    assert (row.readings[Source.UNIT].known, row.readings[Source.UNIT].why) == (Known.UNKNOWN, WHY)
    assert {row.verdict for row in table.rows} <= {Verdict.UNKNOWN, Verdict.NOTE}
    assert not drift_items(table), "what cannot be read contradicts nothing"
    unit_file = table.row(UNIT_FILE)
    assert unit_file is not None
    assert table.rows[0] is unit_file, "in sight at once, also in a small terminal"
    assert unit_file.message == f"{WHY}; until that is mended nobody knows what the next start would run"


@pytest.mark.parametrize("run", [RunState.RUNNING, RunState.STOPPED])
def test_status_and_drift_say_why_and_that_nothing_is_known(run: RunState) -> None:
    for unread in (spoilt(run), withheld(run)):
        assert WHY in drift_words(unread)
        assert "no setting can disagree" not in drift_words(unread)
        said = status_words(unread)
        assert WHY in said
        assert "all sources agree" not in said
        assert "not given" not in said
        problems = status_json(unread, live_figures(unread), truth_table(unread))["problems"]
        assert isinstance(problems, Mapping)
        assert problems["config"] == WHY
    assert "all sources agree" in status_words(running())


def test_the_drift_between_the_sources_that_were_read_is_still_found() -> None:
    other = Host(server=reported(speculative_ddtree_budget=16)).snapshot()
    other = replace(other, ready=True, problems={"config": WHY})
    assert [row.knob for row in drift_items(truth_table(other))] == ["tree_budget"]


def test_a_part_that_cannot_be_read_is_a_note_where_the_command_is_known_all_the_same() -> None:
    config = ServiceConfig((ConfigSource("/e.service", ""),), COMMAND, COMMAND, problems=("/e.d/x.conf: permission denied",))
    row = truth_table(replace(running(), config=Aged(config, 0.0))).row(UNIT_FILE)
    assert row is not None
    assert (row.verdict, row.message) == (Verdict.NOTE, "/e.d/x.conf: permission denied")


def test_a_file_that_does_not_mean_what_it_seems_to_is_said_by_drift_status_doctor_and_a_plan() -> None:
    remark = "/e.service:5: '#' inside a command is no comment"
    config = ServiceConfig((ConfigSource("/e.service", ""),), COMMAND, COMMAND, remarks=(remark,))
    state = replace(running(), config=Aged(config, 0.0))
    row = truth_table(state).rows[0]
    assert (row.knob, row.verdict, row.message, row.severity) == (UNIT_FILE, Verdict.NOTE, remark, Severity.WARNING)
    assert remark in drift_words(state)
    assert f"! {remark}" in status_words(state)
    assert status_json(state, live_figures(state), truth_table(state))["remarks"] == [remark]
    check = check_configuration(state)
    assert (check.status, check.message) == (CheckStatus.WARNING, remark)
    plan = make_plan(state, Change({"tree_budget": 16}, Mode.RESTART), Survey(), target="/e.d/x.conf", render=lambda command: ())
    said = [finding.message for finding in plan.findings if finding.code == "unit_misread"]
    assert said == [f"the unit does not mean what it seems to: {remark}"]


def test_status_does_not_say_that_all_agree_where_settings_are_unknown() -> None:
    """A script starts the engine: neither file nor process tells its flags, and its log has not been seen."""
    script = ("/bin/bash", "/srv/start.sh")
    state = replace(Host(written=script, loaded=script, process=script, log=None).snapshot(), ready=True)
    said = status_words(state)
    assert "all sources agree" not in said
    assert "no drift is seen, and not known: algorithm, draft_window" in said


def test_where_all_can_be_read_there_is_no_such_row() -> None:
    assert truth_table(running()).row(UNIT_FILE) is None


DENIED = "permission denied: this user may not read it"


@pytest.mark.parametrize(
    ("problem", "missing", "source"),
    [
        ("drafter", "drafter", Source.TRAINED),
        ("process", "process", Source.PROCESS),
        ("server", "server", Source.SERVER),
        ("log", "log", Source.LOG),
    ],
)
def test_why_a_source_could_not_be_read_is_said_in_each_of_its_cells(problem: str, missing: str, source: Source) -> None:
    state = replace(running(), problems={problem: DENIED}, **{missing: None})  # type: ignore[arg-type]
    unknown = [row.readings[source] for row in truth_table(state).rows if row.readings[source].known is Known.UNKNOWN]
    assert unknown
    assert {reading.why for reading in unknown} == {DENIED}


def test_a_log_that_could_not_be_read_is_named_as_what_keeps_settings_unknown() -> None:
    """Stock SGLang does not say what is in effect, so that only its log could."""
    stock = replace(running(), server=None, log=None, problems={"log": DENIED})
    table = truth_table(stock)
    assert table.unreadable == ("log",)
    assert DENIED in [row.message for row in table.rows if row.verdict is Verdict.UNKNOWN]
    assert truth_table(replace(stock, problems={})).unreadable == (), "nobody has tried to read it"


def test_a_unit_file_that_could_not_be_read_is_named_so_too() -> None:
    assert truth_table(withheld()).unreadable == ("unit file",)
    never = replace(running(), config=None, problems={"config": WHY})
    assert truth_table(never).unreadable == ("unit file",)
    assert truth_table(running()).unreadable == ()


def test_what_was_read_before_stays_and_what_keeps_nothing_from_being_judged_is_not_named() -> None:
    last_known = replace(running(), problems={"log": DENIED})
    assert truth_table(last_known).rows == truth_table(running()).rows
    without_server = replace(running(), server=None, problems={"server": DENIED})
    assert truth_table(without_server).unreadable == ()
