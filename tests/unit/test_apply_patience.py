"""A cut link is waited for, and one that stays dead is said as such: never as success, never as failure of the change."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import cast

import pytest

from dflash_console.apply import Verdict
from dflash_console.apply.patience import LinkLost, Patience, lost_link
from dflash_console.apply.records import StageFailed
from dflash_console.hosts.http import EngineHttpError, HttpFailure
from dflash_console.hosts.transport import HostError, HostUnreachable, Link, LinkStatus, Transport


@dataclass
class Host:
    """A host with a link that is as the test wants it, and a question that fails so often."""

    errors: list[HostError] = field(default_factory=list)
    status: LinkStatus = LinkStatus.UP
    name: str = "gpu-a"
    asked: int = 0
    since: float = 0.0

    @property
    def link(self) -> Link:
        return Link(self.status, self.since, "no packets")

    @property
    def transport(self) -> Transport:
        return cast(Transport, self)

    async def question(self) -> str:
        self.asked += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


def down() -> HostUnreachable:
    return HostUnreachable("the connection broke")


async def test_a_question_that_a_cut_swallowed_is_asked_again() -> None:
    said: list[tuple[str, float]] = []
    host = Host([down(), down()], LinkStatus.LOST, since=time.monotonic() - 7)
    assert await Patience(host.transport, 30, lambda text: said.append((text, time.monotonic()))).ask(host.question) == "answer"
    assert host.asked == 3
    text, at = said[0]
    # On a busy machine, more than the seven seconds may be true by the time it is said; no more than those that had passed.
    assert text in {f"the link is down since {seconds} s: no packets" for seconds in range(7, round(at - host.since) + 1)}


async def test_a_link_that_stays_dead_is_unknown_and_says_how_to_go_on() -> None:
    host = Host([down()] * 99, LinkStatus.LOST)
    with pytest.raises(LinkLost) as lost:
        await Patience(host.transport, 0.4).ask(host.question)
    assert lost.value.verdict is Verdict.LINK_DOWN
    assert lost.value.reason.startswith("unknown: the link to gpu-a is down since")
    assert "apply --resume" in lost.value.reason


async def test_a_link_that_is_refused_is_not_waited_for() -> None:
    host = Host([down()], LinkStatus.REFUSED)
    with pytest.raises(LinkLost):
        await Patience(host.transport, 600).ask(host.question)
    assert host.asked == 1


async def test_other_failures_are_not_the_links() -> None:
    host = Host([HostError("no such unit")])
    with pytest.raises(HostError, match="no such unit"):
        await Patience(host.transport, 600).ask(host.question)
    assert host.asked == 1


async def test_an_engine_that_fails_over_a_good_link_is_not_asked_again_and_over_a_new_one_it_is() -> None:
    broken = EngineHttpError(HttpFailure.BROKEN, "the connection broke")
    host = Host([broken], since=time.monotonic() - 60)
    with pytest.raises(EngineHttpError):
        await Patience(host.transport, 600).ask_engine(host.question)
    host = Host([broken], since=time.monotonic() + 60)
    assert await Patience(host.transport, 600).ask_engine(host.question) == "answer"


def test_a_step_that_is_not_asked_again_failed_by_the_link_only_when_that_is_down() -> None:
    failure = StageFailed(Verdict.NOT_READY, "no answer")
    assert lost_link(Host().transport, failure) is None
    lost = lost_link(Host(status=LinkStatus.LOST).transport, failure)
    assert lost is not None
    assert lost.verdict is Verdict.LINK_DOWN
