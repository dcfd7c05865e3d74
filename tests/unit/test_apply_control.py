"""A start of a unit that runs already: what is said of it is what it is doing by the time it has been asked."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from dflash_console.apply import Verdict, start_service
from dflash_console.hosts.service import RunState
from dflash_console.session import HostSession
from dflash_console.state import HostState

from .plan_cases import state

READY = ("The server is fired up and ready to roll!",)


def in_state(run: RunState) -> HostState:
    """What is seen of a unit whose engine had said that it was ready."""
    known = state(lines=READY)
    assert known.service is not None
    return replace(known, service=replace(known.service, value=replace(known.service.value, state=run)), ready=False)


def session(seen: HostState) -> HostSession:
    """A session whose unit ran when it was looked at, and of which this is seen when its engine is asked."""
    running = in_state(RunState.RUNNING).service
    assert running is not None

    async def now() -> object:
        return running.value

    async def refresh() -> HostState:
        return seen

    made = SimpleNamespace(unit="engine", service=SimpleNamespace(state=now), watcher=SimpleNamespace(refresh=refresh))
    return cast(HostSession, made)


@pytest.mark.parametrize(
    ("seen", "verdict", "words"),
    [
        (state(), Verdict.UNNEEDED, "and answers; restart starts it anew"),
        (replace(in_state(RunState.RUNNING), silent=True), Verdict.REFUSED, "and does not answer; restart starts it anew"),
        (in_state(RunState.STOPPING), Verdict.REFUSED, "and is now stopping; start it again in a moment"),
        (in_state(RunState.FAILED), Verdict.REFUSED, "and is now failed; start it again in a moment"),
        (in_state(RunState.STARTING), Verdict.REFUSED, "is starting already"),
        (replace(state(lines=()), ready=False), Verdict.REFUSED, "is starting already"),
    ],
)
async def test_a_start_of_a_unit_that_runs_says_what_it_is_doing(seen: HostState, verdict: Verdict, words: str) -> None:
    result = await start_service(session(seen))
    assert result.verdict is verdict
    assert words in result.reason
