"""Marks on the plots: starts and hot changes, as they are seen and as history has them, each once."""

from __future__ import annotations

from dflash_console.evidence.start_log import MAX_HOT_CHANGES
from dflash_console.history import Mark as HistoryMark
from dflash_console.history import MarkKind
from dflash_console.hosts.service import RunState
from dflash_console.tui.link import Past
from dflash_console.tui.live import past_marks
from dflash_console.tui.model import ConsoleModel

from .conftest import MakeApp
from .driving import running, until
from .support import NOW, START_LINES, T0, RecordedLink, state


async def test_a_restart_and_a_hot_change_leave_marks(make_app: MakeApp) -> None:
    link = RecordedLink(state())
    app = make_app(link)
    async with running(app):
        link.push(state(invocation="bb" * 16))
        await until(lambda: [mark.label for mark in app.model.marks] == ["restart"], "a mark of the restart")
        texts = (*START_LINES, "Hot change applied. speculative_ddtree_budget: 8 -> 16 (from /set_internal_state)")
        link.push(state(invocation="bb" * 16, texts=texts))
        await until(lambda: [mark.label for mark in app.model.marks] == ["restart", "budget 16"], "a mark of the change")
        again = "Hot change applied. speculative_ddtree_budget: 16 -> 16 (from /set_internal_state)"
        link.push(state(invocation="bb" * 16, texts=(*texts, again)))
        await until(lambda: len(app.model.state.log.value.hot_changes) == 2, "the line")  # type: ignore[union-attr]
        assert [mark.label for mark in app.model.marks] == ["restart", "budget 16"]


def test_a_start_of_an_engine_that_stood_still_is_no_restart() -> None:
    model = ConsoleModel()
    for at, run, invocation in (
        (0, RunState.STOPPED, "aa" * 16),
        (1, RunState.STARTING, "aa" * 16),
        (2, RunState.RUNNING, "bb" * 16),
        (3, RunState.STOPPING, "bb" * 16),
        (4, RunState.RUNNING, "cc" * 16),
    ):
        model.take_state(state(run=run, invocation=invocation), T0 + at)
    assert [(mark.at - T0, mark.label) for mark in model.marks] == [(2, "start"), (4, "restart")]


def test_of_the_starts_in_history_the_first_is_no_restart_and_one_seen_already_is_not_marked_twice() -> None:
    starts = [HistoryMark(T0 + at, MarkKind.RESTART, f"start {word * 8}") for at, word in ((-90, "1"), (-60, "2"), (-1.5, "b"))]
    assert [mark.label for mark in past_marks(starts)] == ["start", "restart", "restart"]
    model = ConsoleModel()
    model.take_state(state(), T0 - 2)
    model.take_state(state(invocation="bb" * 16), T0)
    model.take_past(Past(marks=past_marks(starts)))
    assert [mark.at - T0 for mark in model.marks] == [-90, -60, 0]


def test_a_hot_change_in_history_that_the_log_still_has_is_marked_once_and_in_short_words() -> None:
    changed = (*START_LINES, "Hot change applied. speculative_ddtree_budget: 8 -> auto (from /set_internal_state)")
    model = ConsoleModel()
    model.take_state(state(texts=changed), NOW)
    (seen,) = model.marks
    assert seen.label == "budget auto"
    model.take_past(Past(marks=past_marks([HistoryMark(seen.at, MarkKind.HOT, "speculative_ddtree_budget auto")])))
    assert model.marks == [seen]


def test_every_hot_change_leaves_a_mark_however_many_there_are() -> None:
    model = ConsoleModel()
    change = "Hot change applied. speculative_ddtree_budget: 8 -> {} (from /set_internal_state)"
    texts = [*START_LINES, *(change.format(budget) for budget in range(1001, MAX_HOT_CHANGES + 1001))]
    model.take_state(state(texts=texts), T0)
    model.take_state(state(texts=[*texts, change.format(777)]), T0 + 1)
    assert [mark.label for mark in model.marks].count("budget 777") == 1
    assert len(model.marks) == MAX_HOT_CHANGES + 1
