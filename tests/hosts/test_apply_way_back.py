"""The plan of a roll-back: what it shows before anybody says yes, and that showing it changes nothing."""

from __future__ import annotations

from pathlib import Path

from dflash_console.apply import carry_out_roll_back, plan_roll_back
from dflash_console.plan import Mode

from .conftest import MakeUnit
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


async def test_there_is_none_where_nothing_earlier_is_known(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        assert await plan_roll_back(session) is None
