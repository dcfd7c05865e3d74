"""What the console remembers: samples thinned and bounded, marks once, times of earlier starts, and trouble without a crash."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dflash_console.evidence.metrics import Rates
from dflash_console.history import Baseline, History, Mark, MarkKind, OperationRow, RequestRow, Sample, open_history
from dflash_console.history.store import _SCHEMA, thin
from dflash_console.watch.baseline import ENOUGH, BaselineMeter


def set_aside(folder: Path) -> list[Path]:
    return list(folder.glob("h.sqlite3.broken-*"))


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[History]:
    opened = open_history(tmp_path / "history.sqlite3")
    yield opened
    await opened.close()


async def test_samples_come_back_in_order_and_unknown_stays_unknown(history: History) -> None:
    for at in range(10):
        history.add_sample("h/u", Sample(float(at), decode_tok_s=None if at == 3 else 100.0 + at, running=1))
    found = await history.samples("h/u", 0, 9, points=1000)
    assert [sample.at for sample in found] == [float(at) for at in range(10)]
    assert found[3].decode_tok_s is None
    assert found[4] == Sample(4.0, 104.0, None, 1, None, None)


async def test_a_long_span_is_given_in_as_many_means_as_were_asked_for(history: History) -> None:
    for at in range(1000):
        history.add_sample("h/u", Sample(float(at), decode_tok_s=float(at)))
    found = await history.samples("h/u", 0, 1000, points=10)
    assert len(found) == 10
    assert found[0].decode_tok_s == pytest.approx(49.5)


async def test_services_are_kept_apart(history: History) -> None:
    history.add_sample("h/u", Sample(1.0, 5.0))
    assert await history.samples("h/other", 0, 10) == ()


async def test_a_mark_that_is_seen_twice_is_kept_once(history: History) -> None:
    mark = Mark(5.0, MarkKind.RESTART, "start 1234")
    history.add_mark("h/u", mark)
    history.add_mark("h/u", mark)
    assert await history.marks("h/u", 0, 10) == (mark,)


async def test_what_was_kept_is_there_for_the_next_console(tmp_path: Path) -> None:
    first = open_history(tmp_path / "h.sqlite3")
    first.set_baseline("h/u", Baseline(1.0, 98.0, "plain"))
    first.add_request("h/u", RequestRow(1.0, 0.2, 150.0, 4.5, 100))
    await first.close()
    second = open_history(tmp_path / "h.sqlite3")
    assert await second.baseline("h/u") == Baseline(1.0, 98.0, "plain")
    assert await second.requests("h/u") == (RequestRow(1.0, 0.2, 150.0, 4.5, 100),)
    await second.close()


async def test_expected_times_are_medians_of_confirmed_operations_only(history: History) -> None:
    for number, (verdict, seconds) in enumerate(
        [("confirmed", 10.0), ("confirmed", 30.0), ("confirmed", 20.0), ("timed out", 999.0)]
    ):
        history.add_operation("h/u", OperationRow(float(number), str(number), "apply", verdict, "", 1.0, {"weights": seconds}))
    assert await history.stage_seconds("h/u") == {"weights": 20.0}


def test_old_samples_become_means_and_very_old_ones_go() -> None:
    db = sqlite3.connect(":memory:")
    db.executescript(_SCHEMA)
    now = 1_000_000.0
    for age in (30.0, 7205.0, 7201.0, 200_000.0, 700_000.0):
        db.execute("INSERT INTO samples VALUES ('s', ?, 0, ?, NULL, NULL, NULL, NULL)", (now - age, age))
    thin(db, "s", now, keep_s=604_800.0)
    thin(db, "s", now + 1, keep_s=604_800.0)
    rows = db.execute("SELECT at, span, decode FROM samples ORDER BY at").fetchall()
    assert [span for _, span, _ in rows] == [60.0, 10.0, 0.0]
    assert rows[1][2] == pytest.approx(7203.0)
    db.close()


def test_thinning_in_the_middle_of_a_step_loses_nothing() -> None:
    db = sqlite3.connect(":memory:")
    db.executescript(_SCHEMA)
    for at, speed in ((996_402.0, 10.0), (996_408.0, 20.0)):
        db.execute("INSERT INTO samples VALUES ('s', ?, 0, ?, NULL, NULL, NULL, NULL)", (at, speed))
    for now in (1_000_005.0, 1_000_015.0):
        thin(db, "s", now, keep_s=604_800.0)
    assert db.execute("SELECT at, span, decode FROM samples").fetchall() == [(996_400.0, 10.0, 15.0)]
    db.close()


async def test_a_file_that_is_no_database_is_set_aside_and_a_new_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite3"
    path.write_bytes(b"this is not a database, but it is long enough to be taken for one" * 20)
    history = open_history(path)
    history.add_sample("h/u", Sample(1.0, 2.0))
    assert len(await history.samples("h/u", 0, 2)) == 1
    await history.close()
    assert len(set_aside(tmp_path)) == 1


async def test_a_place_that_cannot_be_written_is_said_and_nothing_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = open_history(tmp_path / "file" / "h.sqlite3")
    history.add_sample("h/u", Sample(1.0, 2.0))
    assert await history.samples("h/u", 0, 2) == ()
    assert history.problem is not None
    assert "history is not kept" in history.problem
    await history.close()


def test_the_baseline_is_measured_on_a_plain_start_with_one_request_only() -> None:
    meter = BaselineMeter()
    for speed in (90.0, 98.0, 99.0, 98.5):
        assert meter.add(Rates(decode_tok_s=speed, running=1), plain=True, at=1.0) is None
    assert meter.add(Rates(decode_tok_s=500.0, running=4), plain=True, at=1.0) is None
    found = meter.add(Rates(decode_tok_s=98.2, running=1), plain=True, at=2.0)
    assert found is not None
    assert found.decode_tok_s == pytest.approx(98.2)
    assert str(ENOUGH) in found.note
    assert meter.add(Rates(decode_tok_s=98.0, running=1), plain=False, at=3.0) is None
    assert meter.add(Rates(decode_tok_s=98.0, running=1), plain=True, at=3.0) is None, "speculation in between begins anew"


async def test_a_question_that_is_cancelled_keeps_nobody_else_from_an_answer(history: History) -> None:
    history.add_sample("h/u", Sample(1.0, 5.0))
    for _ in range(20):
        question = asyncio.create_task(history.samples("h/u", 0, 10))
        await asyncio.sleep(0)
        question.cancel()
    async with asyncio.timeout(30):
        assert len(await history.samples("h/u", 0, 10)) == 1


async def test_a_row_that_cannot_be_read_is_an_empty_answer_and_the_next_question_is_answered(
    history: History, tmp_path: Path
) -> None:
    history.add_operation("h/u", OperationRow(1.0, "one", "apply", "confirmed", "", 2.0))
    await history.operations("h/u")
    with sqlite3.connect(tmp_path / "history.sqlite3") as db:
        db.execute("UPDATE operations SET stages = 'no JSON'")
    async with asyncio.timeout(30):
        assert await history.operations("h/u") == ()
        assert history.problem is not None
        assert await history.samples("h/u", 0, 10) == ()
        assert history.problem is None


async def test_marks_of_a_kind_that_a_newer_console_left_are_passed_over(history: History, tmp_path: Path) -> None:
    mark = Mark(5.0, MarkKind.RESTART, "start 1234")
    history.add_mark("h/u", mark)
    await history.marks("h/u", 0, 10)
    with sqlite3.connect(tmp_path / "history.sqlite3") as db:
        db.execute("INSERT INTO marks VALUES ('h/u', 6.0, 'eclipse', '')")
    async with asyncio.timeout(30):
        assert await history.marks("h/u", 0, 10) == (mark,)


async def test_a_closed_history_answers_with_nothing(tmp_path: Path) -> None:
    closed = open_history(tmp_path / "h.sqlite3")
    await closed.close()
    await closed.close()
    closed.add_sample("h/u", Sample(1.0, 5.0))
    async with asyncio.timeout(30):
        assert await closed.samples("h/u", 0, 10) == ()
