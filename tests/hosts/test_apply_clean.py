"""Applies that work: every stage with its evidence, confirmed by the very start or change they caused."""

from __future__ import annotations

import time
from pathlib import Path

from dflash_console.apply import StageEvent, StageStatus, Verdict, apply_plan, restart_service, roll_back, stop_service
from dflash_console.apply.restart import STAGES
from dflash_console.evidence.command import flag_value
from dflash_console.knobs import KNOBS, OFF, Value
from dflash_console.plan import Change, Mode

from .conftest import MakeUnit
from .sessions import FAST, change, session_on, stage, started


async def test_a_start_is_confirmed_by_its_own_log_and_an_answered_prompt(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit("--speculative-draft-window-size", "512")
    async with session_on(tmp_path) as session:
        result = await started(session)
        assert result.verdict is Verdict.CONFIRMED
        assert [found.name for found in result.stages] == list(STAGES)
        assert stage(result, "draft runner").evidence.endswith("draft_window_size=512, compact_cache=True")
        assert stage(result, "draft runner").line is not None
        assert "tokens in" in stage(result, "prompt").evidence
        assert result.invocation_id == (await session.service.state()).invocation_id


async def test_a_restart_apply_writes_restarts_and_proves_every_value(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        first = await started(session)
        result = await change(session, {"draft_window": 512, "tree_budget": 16})
        assert (result.verdict, result.confirmed, result.rolled_back) == (Verdict.CONFIRMED, True, False)
        assert result.invocation_id != first.invocation_id
        assert "compact draft cache 512 (log line" in result.reason
        assert "tree budget 16 (log line" in result.reason
        assert "is gone" in stage(result, "restart").evidence
        text = unit.file.read_text()
        assert '"--speculative-draft-window-size",\n    "512",\n' in text
        assert '"--speculative-ddtree-budget",\n    "16",\n' in text


async def test_twenty_clean_applies_are_all_confirmed(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    invocations: set[str | None] = set()
    async with session_on(tmp_path) as session:
        for number in range(20):
            wanted: dict[str, Value | None] = {
                "tree_budget": number + 1,
                "tree_topk": number % 8 + 1,
                "draft_window": 64 * (number + 1),
            }
            result = await change(session, wanted)
            assert result.verdict is Verdict.CONFIRMED, result.reason
            invocations.add(result.invocation_id)
    assert len(invocations) == 20


async def test_a_hot_change_keeps_the_process_and_is_confirmed_at_once(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        before = await session.service.state()
        text = unit.file.read_text()
        begun = time.monotonic()
        result = await change(session, {"draft_window": 512, "tree_budget": 16}, Mode.HOT)
        assert time.monotonic() - begun < FAST.hot, "a bound for a busy machine; a benchmark measures the two seconds"
        assert (result.verdict, result.mode) == (Verdict.CONFIRMED, Mode.HOT)
        assert "Hot change applied." in stage(result, "log line").evidence
        assert await session.service.state() == before
        assert unit.file.read_text() == text


async def test_auto_takes_the_hot_way_when_the_engine_takes_every_setting_and_restarts_otherwise(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        assert (await session.plan(Change({"tree_budget": 16}))).mode is Mode.RESTART, "nothing runs yet"
        await started(session)
        assert (await session.plan(Change({"tree_budget": 16, "draft_window": OFF}))).mode is Mode.HOT
        assert (await session.plan(Change({"tree_budget": 16, "layers_window": OFF}))).mode is Mode.RESTART


async def test_a_persisted_hot_change_is_in_the_file_too(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        result = await change(session, {"tree_budget": 32}, Mode.HOT, persist=True)
        assert result.confirmed, result.reason
        assert flag_value((await session.service.configuration()).command, KNOBS["tree_budget"]).value == 32
        assert '"32",' in unit.file.read_text()


async def test_taking_the_window_away_removes_the_flag_and_is_proven_by_the_log(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-draft-window-size", "512")
    async with session_on(tmp_path) as session:
        await started(session)
        result = await change(session, {"draft_window": OFF})
        assert result.confirmed, result.reason
        assert "draft_window_size=None, compact_cache=False" in stage(result, "draft runner").evidence
        assert "draft-window" not in unit.file.read_text()


async def test_the_old_spelling_of_the_flag_is_kept(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-dflash-draft-window-size=512")
    async with session_on(tmp_path) as session:
        plan = await session.plan(Change({"draft_window": 1024}, Mode.RESTART))
        assert '+    "--speculative-dflash-draft-window-size=1024",' in plan.diff
        assert plan.edits[0].new == unit.file.read_text().replace("=512", "=1024")


async def test_a_plain_restart_proves_what_the_file_asks_for(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        await started(session)
        unit.file.write_text(unit.file.read_text().replace('"8"', '"24"'))
        result = await restart_service(session, timeouts=FAST)
        assert result.confirmed, result.reason
        assert "tree budget 24" in result.reason


async def test_stop_is_confirmed_when_the_process_is_gone(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        result = await stop_service(session, timeouts=FAST)
        assert (result.verdict, stage(result, "gone").evidence) == (Verdict.CONFIRMED, "the process is gone")


async def test_roll_back_goes_to_the_confirmed_configuration_before_this_one(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        first = unit.file.read_text()
        assert (await change(session, {"tree_budget": 16})).confirmed
        result = await roll_back(session, timeouts=FAST)
        assert (result.confirmed, result.rolled_back) == (True, True), result.reason
        assert unit.file.read_text() == first


async def test_roll_back_skips_earlier_starts_of_the_configuration_that_runs(make_unit: MakeUnit, tmp_path: Path) -> None:
    unit = make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        first = unit.file.read_text()
        assert (await change(session, {"tree_budget": 16})).confirmed
        assert (await restart_service(session, timeouts=FAST)).confirmed
        result = await roll_back(session, timeouts=FAST)
        assert result.rolled_back, result.reason
        assert unit.file.read_text() == first


async def test_roll_back_after_a_failed_apply_goes_to_the_newest_confirmed_configuration(
    make_unit: MakeUnit, tmp_path: Path
) -> None:
    unit = make_unit(faults="32=exit")
    async with session_on(tmp_path) as session:
        await started(session)
        assert (await change(session, {"tree_budget": 16})).confirmed
        good = unit.file.read_text()
        assert not (await change(session, {"tree_budget": 32})).confirmed
        result = await roll_back(session, timeouts=FAST)
        assert (result.confirmed, result.rolled_back) == (True, True), result.reason
        assert unit.file.read_text() == good


async def test_roll_back_takes_an_unwritten_hot_change_back_without_a_restart(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit("--speculative-ddtree-budget", "8")
    async with session_on(tmp_path) as session:
        first = await started(session)
        assert (await change(session, {"tree_budget": 16}, Mode.HOT)).confirmed
        result = await roll_back(session, timeouts=FAST)
        assert (result.confirmed, result.rolled_back, result.mode) == (True, True, Mode.HOT), result.reason
        assert result.invocation_id == first.invocation_id


async def test_roll_back_without_an_earlier_configuration_says_so(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        result = await roll_back(session, timeouts=FAST)
        assert (result.verdict, result.reason) == (
            Verdict.REFUSED,
            "there is no earlier configuration to go back to",
        )


async def test_events_tell_each_stage_as_it_begins_and_ends_with_the_time_left(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit()
    async with session_on(tmp_path) as session:
        await started(session)
        events: list[StageEvent] = []
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        assert plan.predictions.restart_s is not None, "the first start is what the estimate stands on"
        result = await apply_plan(session, plan, timeouts=FAST, on_event=events.append)
        assert result.confirmed
        ended = [event.stage.name for event in events if event.stage.status is not StageStatus.RUNNING]
        assert ended == list(STAGES)
        assert events[0].left_s is not None
        assert events[-1].elapsed_s <= result.seconds


async def test_every_operation_leaves_history_and_one_audit_line(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit("--api-key", "sk-very-secret")
    async with session_on(tmp_path) as session:
        await started(session)
        plan = await session.plan(Change({"tree_budget": 16}, Mode.RESTART))
        await apply_plan(session, plan, timeouts=FAST, why="try a wider tree")
        rows = await session.history.operations(session.key)
        assert [(row.what, row.verdict) for row in rows] == [("apply", "confirmed"), ("start", "confirmed")]
        lines = session.paths.audit_file.read_text().splitlines()
        assert len(lines) == 2
        assert "try a wider tree" in lines[1]
        assert "tree_budget=16" in lines[1]


async def test_the_key_is_in_no_plan_event_journal_audit_line_or_repr(make_unit: MakeUnit, tmp_path: Path) -> None:
    make_unit("--api-key", "sk-very-secret")
    async with session_on(tmp_path) as session:
        events: list[StageEvent] = []
        plan = await session.plan(Change({"tree_budget": 16, "flag:--log-level": "info"}, Mode.RESTART))
        result = await apply_plan(session, plan, timeouts=FAST, on_event=events.append)
        assert result.confirmed, result.reason
        shown = [plan.diff, repr(plan), " ".join(plan.shown_command), repr(events), repr(result), repr(session.link)]
        shown += [path.read_text() for path in session.paths.operations.iterdir()]
        shown.append(session.paths.audit_file.read_text())
        assert not [text for text in shown if "sk-very-secret" in text]
