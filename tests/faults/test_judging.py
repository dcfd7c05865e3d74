"""The judge itself: an answer that is not true, not whole or not safe does not pass, however the console words it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from dflash_console.apply import Verdict

from .console import Ended
from .judging import judge, read_answer
from .records import NOT_BEGUN, Fault, Old, Outcome, Setup, Where
from .scene import SECRET, Scene, Snapshot
from .table import read, render, row_of, totals

OLD = ("engine", "--speculative-ddtree-budget", "8")
NEW = ("engine", "--speculative-ddtree-budget", "16", "--speculative-draft-window-size", "512")


class Host:
    """A scene whose host says what it is told to say, with a console that rolls back as it is told to."""

    def __init__(self, folder: Path, *, argv: tuple[str, ...] = NEW, effect: Mapping[str, object] | None = None) -> None:
        self.before = Snapshot({"/unit": "old"}, OLD)
        self.now = self.before
        self.old_argv = OLD
        self.running = argv
        self.effect = effect or {"tree_budget": 16, "draft_window": 512}
        self.invocation = "new"
        self.state = folder
        self.back = Ended(0, json.dumps({"verdict": "confirmed"}), "", 1.0)
        self.restores = True
        self.console = self
        self.consoles = [self]

    async def run(self, *words: str) -> Ended:
        if self.restores:
            self.now, self.running = self.before, self.old_argv
        return self.back

    def snapshot(self) -> Snapshot:
        return self.now

    def argv(self) -> tuple[str, ...]:
        return self.running

    def in_effect(self) -> Mapping[str, object]:
        return self.effect

    def healthy(self) -> bool:
        return True

    def heal(self) -> None:
        pass


async def unused(scene: Scene) -> Ended:
    raise NotImplementedError


def fault(expected: Verdict = Verdict.CONFIRMED, old: Old = Old.RESTORABLE, *words: str) -> Fault:
    return Fault("x", Where.ENGINE, "x", (expected,), words, (old,), Setup(), unused)


def answer(verdict: Verdict, code: int, **more: object) -> Ended:
    document = {"confirmed": verdict is Verdict.CONFIRMED, "verdict": verdict.value, "reason": "so it is", "invocation_id": "new"}
    return Ended(code, json.dumps({**document, **more}), "", 1.0)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    found = Host(tmp_path)
    found.now = Snapshot({"/unit": "old", "/drop-in": "new"}, NEW)
    return found


async def judged(case: Fault, host: Host, ended: Ended) -> Outcome:
    return await judge(case, cast(Scene, host), ended)


async def test_a_true_confirmation_that_can_be_undone_passes(host: Host) -> None:
    outcome = await judged(fault(), host, answer(Verdict.CONFIRMED, 0))
    assert (outcome.passed, outcome.old) == (True, Old.RESTORABLE), outcome.problems


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"running": OLD}, "no --speculative-ddtree-budget 16"),
        ({"invocation": "newer"}, "the start that was confirmed is new, the one that runs newer"),
        ({"effect": {"tree_budget": 16, "draft_window": None}}, "the engine uses"),
    ],
)
async def test_a_confirmation_that_the_host_contradicts_is_false(host: Host, change: dict[str, object], said: str) -> None:
    vars(host).update(change)
    outcome = await judged(fault(), host, answer(Verdict.CONFIRMED, 0))
    assert outcome.false_confirmed
    assert said in " ".join(outcome.problems)


async def test_a_confirmation_of_what_cannot_be_confirmed_is_false(host: Host) -> None:
    outcome = await judged(fault(Verdict.UNKNOWN), host, answer(Verdict.CONFIRMED, 0))
    assert outcome.false_confirmed
    assert "1 false confirmed" in totals([row_of(outcome)])


async def test_another_verdict_or_a_reason_without_the_cause_does_not_pass(host: Host) -> None:
    outcome = await judged(fault(Verdict.NO_LINE, Old.RESTORABLE, "start limit"), host, answer(Verdict.PROCESS_DIED, 4))
    assert outcome.problems == (
        "the verdict is the process died, not no confirmation line",
        "the reason does not say 'start limit'",
    )


async def test_a_configuration_that_no_roll_back_brings_back_is_lost(host: Host) -> None:
    host.restores = False
    outcome = await judged(fault(Verdict.PROCESS_DIED), host, answer(Verdict.PROCESS_DIED, 4))
    assert outcome.old is Old.LOST
    assert "1 lost" in totals([row_of(outcome)])
    assert "changed: /drop-in" in " ".join(outcome.problems)


async def test_a_roll_back_that_is_only_said_is_a_loss(host: Host) -> None:
    ended = answer(Verdict.PROCESS_DIED, 4, rolled_back=True)
    assert (await judged(fault(Verdict.PROCESS_DIED, Old.RESTORED), host, ended)).old is Old.LOST
    host.now = host.before
    assert (await judged(fault(Verdict.PROCESS_DIED, Old.RESTORED), host, ended)).old is Old.LOST, "the new command still runs"
    host.running = OLD
    assert (await judged(fault(Verdict.PROCESS_DIED, Old.RESTORED), host, ended)).passed


async def test_a_refusal_that_changed_something_does_not_pass(host: Host) -> None:
    outcome = await judged(fault(Verdict.REFUSED), host, answer(Verdict.REFUSED, 1))
    assert outcome.problems == ("the verdict is refused, and the configuration was changed",)


async def test_a_key_that_shows_or_is_kept_does_not_pass(host: Host) -> None:
    outcome = await judged(fault(), host, replace(answer(Verdict.CONFIRMED, 0), err=f"--api-key {SECRET}"))
    assert outcome.problems == ("the engine's key is in the output",)
    (host.state / "audit.log").write_text(SECRET)
    assert not (await judged(fault(), host, answer(Verdict.CONFIRMED, 0))).passed


def test_exit_status_and_answer_must_agree() -> None:
    assert read_answer(answer(Verdict.PROCESS_DIED, 0)).problems
    assert read_answer(answer(Verdict.REFUSED, 4)).problems
    assert not read_answer(answer(Verdict.REFUSED, 1)).problems
    assert read_answer(Ended(1, "", "error: no such host", 1.0)).given is NOT_BEGUN
    assert read_answer(Ended(1, "", "", 1.0)).given is None
    assert read_answer(Ended(1, "", "Traceback (most recent call last):", 1.0)).given is None


async def test_the_page_holds_every_outcome_names_what_failed_and_can_be_read_again(host: Host) -> None:
    good = await judged(fault(), host, answer(Verdict.CONFIRMED, 0))
    story = "a | b"
    bad = replace(await judged(fault(Verdict.NO_LINE), host, answer(Verdict.PROCESS_DIED, 4)), fault=replace(fault(), name="y"))
    false = await judged(replace(fault(Verdict.UNKNOWN), name="z", story=story), host, answer(Verdict.CONFIRMED, 0))
    rows = {outcome.fault.name: row_of(outcome) for outcome in (good, bad, false)}
    page = render(rows, [good.fault, bad.fault, false.fault])
    assert "1 of 3 as expected; 1 false confirmed; 0 lost" in page
    assert "- y: the verdict is the process died, not no confirmation line" in page
    assert read(page) == rows
