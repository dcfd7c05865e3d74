"""The tests' own waits."""

from __future__ import annotations

import asyncio

import pytest
from textual import _wait
from textual.widgets import Input

from .conftest import MakeApp
from .driving import quiet, running, until
from .support import RecordedLink, state


async def work(turns: int, done: list[int]) -> None:
    for turn in range(turns):
        await asyncio.sleep(0)
        done.append(turn)


async def test_it_is_quiet_once_nothing_goes_on_by_itself_any_more() -> None:
    done: list[int] = []
    tasks = [asyncio.create_task(work(turns, done)) for turns in (3, 50)]
    await quiet()
    assert len(done) == 53
    await asyncio.gather(*tasks)


async def test_what_never_rests_is_not_waited_for() -> None:
    done: list[int] = []
    task = asyncio.create_task(work(10**9, done))
    await quiet()
    task.cancel()
    assert done


async def test_what_comes_true_together_with_what_was_waited_for_is_there_too() -> None:
    done: list[int] = []
    task = asyncio.create_task(work(50, done))
    await until(lambda: True, "nothing")
    assert len(done) == 50
    await task


async def test_a_key_has_been_dealt_with_also_where_the_process_seems_idle_at_once(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(min_sleep: float = 0.0, max_sleep: float = 0.0) -> None:
        """As on a machine whose processors other programs have: this one uses none."""

    monkeypatch.setattr(_wait, "wait_for_idle", at_once)
    app = make_app(RecordedLink(state()))
    async with running(app) as pilot:
        await pilot.press("2", "F", "b")
        assert app.query_one("#knob-input", Input).value == "--b"
