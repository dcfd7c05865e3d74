"""The plan of a roll-back: what it shows before anybody says yes, and that showing it changes nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dflash_console.apply import Verdict, carry_out_roll_back, plan_roll_back, restart_service, stop_service
from dflash_console.hosts.unit_file import new_unit_file
from dflash_console.plan import Mode, PlanError
from tests.ports import free_port

from .conftest import MakeUnit
from .other_engines import another_engine
from .sessions import FAST, change, session_on, started


async def test_it_names_where_it_goes_and_changes_nothing_until_it_is_carried_out(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        first = unit.file.read_text()
        assert (await change(session, {"tree_budget": 16})).confirmed
        second = unit.file.read_text()
        plan = await plan_roll_back(session)
        assert plan is not None
        assert (plan.mode, plan.blocked) == (Mode.RESTART, False)
        assert [finding.message[:54] for finding in plan.findings] == ["goes back to the configuration that was confirmed on 2"]
        assert [(found.old, found.new) for found in plan.changes if found.knob == "tree_budget"] == [(16, 8)]
        assert '-    "16",' in plan.diff.splitlines()
        assert '+    "8",' in plan.diff.splitlines()
        assert plan.predictions.verify_width is None, "arithmetic about what is left is none about what comes back"
        assert unit.file.read_text() == second
        result = await carry_out_roll_back(session, plan, timeouts=FAST)
        assert (result.confirmed, result.rolled_back) == (True, True), result.reason
        assert unit.file.read_text() == first


async def test_what_was_changed_while_running_comes_back_without_a_restart_and_the_plan_says_so(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        assert (await change(session, {"tree_budget": 16}, Mode.HOT)).confirmed
        plan = await plan_roll_back(session)
        assert plan is not None
        assert (plan.mode, plan.diff) == (Mode.HOT, "")
        assert plan.hot_values == {"speculative_ddtree_budget": 8}
        assert "takes back what was changed while the engine ran and never written down" in [
            finding.message for finding in plan.findings
        ]


async def test_a_flag_that_is_no_setting_goes_back_in_sight_and_is_proven(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        other = str(free_port())
        assert (await change(session, {"flag:--port": other})).confirmed
        plan = await plan_roll_back(session)
        assert plan is not None
        assert ("flag:--port", other, str(unit.port)) in [(found.knob, found.old, found.new) for found in plan.changes]
        result = await carry_out_roll_back(session, plan, timeouts=FAST)
        assert result.confirmed, result.reason
        assert f"--port {unit.port} (this process's command line, --port)" in result.reason


async def test_what_no_setting_tells_is_said_to_be_unproven(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit(environment={"KEPT": "1"})
    async with session_on(tmp_path) as session:
        await started(session)
        unit.file.write_text(unit.file.read_text().replace('"KEPT" = "1"', '"KEPT" = "2"'))
        assert (await restart_service(session, timeouts=FAST)).confirmed
        plan = await plan_roll_back(session)
        assert plan is not None
        assert "the command stays as it is: what else changes is in the diff, and nothing but the start proves it" in [
            finding.message for finding in plan.warnings
        ]


async def test_variables_that_change_with_a_flag_are_said_to_be_unproven_though_the_flag_is_confirmed(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit(environment={"KEPT": "1", "SAME": "1"})
    async with session_on(tmp_path) as session:
        await started(session)
        unit.file.write_text(unit.file.read_text().replace('"KEPT" = "1"', '"KEPT" = "2"'))
        result = await change(session, {"flag:--port": str(free_port())})
        said = "not proven: environment variable KEPT, changed by this start: no line of its log tells it"
        assert result.confirmed
        assert "--port" in result.reason
        assert said in result.reason
        assert said in result.stages[-1].evidence
        assert "not proven" not in (await restart_service(session, timeouts=FAST)).reason, "the start before had it already"
        plan = await plan_roll_back(session)
        assert plan is not None
        back = await carry_out_roll_back(session, plan, timeouts=FAST)
        assert back.confirmed
        assert f"--port {unit.port}" in back.reason
        assert said in back.reason


async def test_beside_a_stopped_unit_it_leads_further_back_than_to_what_is_written(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        first = unit.file.read_text()
        assert (await change(session, {"tree_budget": 16})).confirmed
        assert (await stop_service(session, timeouts=FAST)).confirmed
        plan = await plan_roll_back(session)
        assert plan is not None
        assert (await carry_out_roll_back(session, plan, timeouts=FAST)).confirmed
        assert unit.file.read_text() == first


async def test_a_port_that_another_program_holds_stops_it_before_anything_is_touched(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        assert (await change(session, {"flag:--port": str(free_port())})).confirmed
        before, running = unit.file.read_text(), await session.service.state()
        with another_engine(unit.port, 8):
            plan = await plan_roll_back(session)
            assert plan is not None
            (error,) = plan.errors
            assert error.message.startswith(f"port {unit.port} of that configuration is held by pid ")
            result = await carry_out_roll_back(session, plan, timeouts=FAST)
        assert (result.verdict, [stage.name for stage in result.stages]) == (Verdict.REFUSED, ["checks"])
        assert (unit.file.read_text(), await session.service.state()) == (before, running)


async def test_a_unit_file_that_cannot_be_read_gives_way_to_the_configuration_that_was_confirmed_last(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8", "--api-key", "geheim")
    async with session_on(tmp_path) as session:
        await started(session)
        good = unit.file.read_text()
        for stopped in (False, True):
            if stopped:
                assert (await stop_service(session, timeouts=FAST)).confirmed
            unit.file.write_text(good.replace('"geheim",', '"other secret"\n"'))
            plan = await plan_roll_back(session)
            assert plan is not None
            assert not plan.blocked, plan.findings
            assert "geheim" not in plan.diff
            assert "other secret" not in plan.diff
            assert ["not valid TOML" in finding.message for finding in plan.warnings] == [True]
            result = await carry_out_roll_back(session, plan, timeouts=FAST)
            assert (result.confirmed, result.rolled_back) == (True, True), result.reason
            assert "tree budget 8 (log line" in result.reason
            assert unit.file.read_text() == good
            assert await plan_roll_back(session) is None, "what cannot be read is nowhere to go back to"


async def test_a_unit_file_that_is_gone_comes_back(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        good = unit.file.read_text()
        unit.file.unlink()
        plan = await plan_roll_back(session)
        assert plan is not None
        assert f"{unit.file} is not there, and is written again" in [finding.message for finding in plan.findings]
        result = await carry_out_roll_back(session, plan, timeouts=FAST)
        assert (result.confirmed, result.rolled_back) == (True, True), result.reason
        assert unit.file.read_text() == good


async def test_what_starts_no_engine_any_more_gives_way_to_the_configuration_that_was_confirmed_last(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        good = unit.file.read_text()
        unit.file.write_text(good.replace("ddtree-launch", "something-else"))
        plan = await plan_roll_back(session)
        assert plan is not None
        assert "no engine is named in the command line" in " ".join(finding.message for finding in plan.warnings)
        assert (await carry_out_roll_back(session, plan, timeouts=FAST)).confirmed
        assert unit.file.read_text() == good


async def test_an_engine_that_a_script_starts_is_not_taken_for_spoilt(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    script = tmp_path / "start.sh"
    engine = f"{sys.executable} -I {tmp_path / 'ddtree-launch'} serve --port {unit.port}"
    script.write_text(f"#!/bin/bash\nexec {engine}\n")
    good = new_unit_file(["/bin/bash", str(script)], description="wrapped", environment={"KEPT": "1"})
    unit.file.write_text(good)
    async with session_on(tmp_path) as session:
        await started(session)
        assert await plan_roll_back(session) is None
        unit.file.write_text(good.replace('"KEPT" = "1"', '"KEPT" = "2"'))
        plan = await plan_roll_back(session)
        assert plan is not None
        assert '-"KEPT" = "2"' in plan.diff.splitlines(), "what is there can be read, so the diff is a true one"
        assert "replaces_unread" not in [finding.code for finding in plan.findings]


async def test_a_file_that_was_damaged_after_a_change_that_was_never_confirmed_goes_back_to_what_was_before_that(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8", faults="16=exit")
    async with session_on(tmp_path) as session:
        before = unit.file.read_text()
        assert not (await change(session, {"tree_budget": 16})).confirmed
        unit.file.write_text("not toml")
        plan = await plan_roll_back(session)
        assert plan is not None
        assert "goes back to the configuration before the last change" in [finding.message for finding in plan.findings]
        assert (await carry_out_roll_back(session, plan, timeouts=FAST)).confirmed
        assert unit.file.read_text() == before


async def test_a_unit_file_that_is_not_even_text_is_left_alone_and_where_the_kept_one_lies_is_said(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        unit.file.write_bytes(b"\xff\xfe")
        with pytest.raises(PlanError, match=f"not UTF-8.* is kept in {session.service.keep}"):
            await plan_roll_back(session)
        assert unit.file.read_bytes() == b"\xff\xfe"


async def test_there_is_none_where_nothing_earlier_is_known(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        assert await plan_roll_back(session) is None
