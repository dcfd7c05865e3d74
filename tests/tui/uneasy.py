"""A host on which everything takes a moment and may go wrong, by a seeded die."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dflash_console.apply import ApplyResult, Stage, StageEvent, StageStatus, Verdict
from dflash_console.hosts.service import RunState
from dflash_console.plan import Mode, Plan
from dflash_console.tui.link import ChooseUnit, Control, KeyQuestion, LinkError, OnStage, Past, UnknownHostKey

from .support import RecordedLink, lines, state, wavy_past

if TYPE_CHECKING:
    from dflash_console.knobs import Value
    from dflash_console.state import HostState

LONGEST_S = 0.12
STAGES = ("checks", "write", "restart", "weights", "ready")


class UneasyLink(RecordedLink):
    """Operations, plans and connections that succeed, fail and are refused."""

    def __init__(self, rng: random.Random, *states: HostState, past: Past | None = None) -> None:
        super().__init__(*(states or (state(run=rng.choice((RunState.RUNNING, RunState.STOPPED))),)), past=past)
        self._rng = rng
        self.running = 0
        """Operations under way."""
        self.most = 0
        """The most at one time."""
        self.left_over = rng.choice(("", "", "A change of tree budget from 8 to 12 was cut off after write"))
        self.saved = {"fast": {"tree_budget": 12}, "plain": {"speculation": False}}

    async def _moment(self) -> None:
        await asyncio.sleep(self._rng.choice((0.0, 0.0, self._rng.random() * LONGEST_S)))

    async def _operate(self, on_stage: OnStage) -> ApplyResult:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self._walk(on_stage)
        finally:
            self.running -= 1

    async def _walk(self, on_stage: OnStage) -> ApplyResult:
        last = self._rng.randrange(len(STAGES) + 3)
        for number, name in enumerate(STAGES):
            failed = number == last
            for status in (StageStatus.RUNNING, StageStatus.FAILED if failed else StageStatus.DONE):
                progress = (number, 9) if self._rng.random() < 0.5 else None
                on_stage(StageEvent("op", Stage(name, status, 0.1, "what shows it"), STAGES, 0.1, 3.0, progress))
                await self._moment()
            if failed:
                if self._rng.random() < 0.3:
                    raise LinkError("the host said no")
                verdict = self._rng.choice((Verdict.REFUSED, Verdict.PROCESS_DIED, Verdict.OTHER_VALUE, Verdict.UNKNOWN))
                return ApplyResult(False, verdict, "it did not work", "op", Mode.RESTART, (), lines=lines(("a cause",)))
        self.push(state(revision=self._rng.randrange(1, 10_000)))
        return ApplyResult(True, Verdict.CONFIRMED, "it worked", "op", Mode.RESTART, (), seconds=0.4)

    async def control(self, control: Control, on_stage: OnStage) -> ApplyResult:
        if control is Control.STOP:
            self.push(state(run=RunState.STOPPED))
        return await super().control(control, on_stage)

    async def plan(
        self,
        state: HostState,
        settings: Mapping[str, Value],
        mode: Mode,
        *,
        persist: bool = False,
        commit_confirm: bool = False,
    ) -> Plan:
        await self._moment()
        if self._rng.random() < 0.1:
            raise LinkError("the host cannot be asked now")
        return await super().plan(state, settings, mode, persist=persist, commit_confirm=commit_confirm)

    async def past(self, seconds: float) -> Past:
        await self._moment()
        return await super().past(seconds)

    async def pending(self) -> str:
        await self._moment()
        return self.left_over

    async def reconnect(self) -> None:
        await self._moment()
        fail_to_connect(self._rng)


def fail_to_connect(rng: random.Random) -> None:
    """Raises: LinkError: now and then, of every kind."""
    kind = rng.randrange(5)
    if kind == 0:
        raise LinkError("port 22 did not answer within 10 s", again=True)
    if kind == 1:

        async def trust() -> None:
            await asyncio.sleep(0)

        raise UnknownHostKey(
            "the key is not known yet", KeyQuestion("gpu-a", "ED25519", "SHA256:abc", "~/.ssh/known_hosts"), trust
        )


def choose_unit() -> LinkError:
    return ChooseUnit("several units", ("sglang-a.service", "sglang-b.service"))


def a_past(rng: random.Random, end: float) -> Past:
    return wavy_past(end) if rng.random() < 0.5 else Past()
