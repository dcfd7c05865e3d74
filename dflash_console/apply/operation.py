"""One operation under way: its stages with their times and evidence, its journal, its events."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from ..hosts.transport import HostError
from ..plan import Mode
from .journal import OperationJournal
from .records import ApplyResult, OnEvent, Stage, StageEvent, StageFailed, StageStatus, Verdict


class Operation:
    """Runs stages in order. A stage's body sets its evidence; what it raises becomes the operation's verdict."""

    def __init__(
        self,
        operation_id: str,
        mode: Mode,
        planned: Sequence[str],
        journal: OperationJournal,
        *,
        expected: Mapping[str, float],
        on_event: OnEvent | None = None,
        rolling_back: bool = False,
    ) -> None:
        self.operation_id = operation_id
        self.mode = mode
        self.invocation_id: str | None = None
        self._planned = tuple(planned)
        self._journal = journal
        self._expected = expected
        self._on_event = on_event
        self._rolling_back = rolling_back
        self._begun = time.monotonic()
        self._stage_begun = self._begun
        self._stages: list[Stage] = []
        self._current: Stage | None = None

    @property
    def stages(self) -> tuple[Stage, ...]:
        return tuple(self._stages)

    @property
    def rolling_back(self) -> bool:
        """Whether it undoes another operation, in that one's journal."""
        return self._rolling_back

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun

    @contextlib.asynccontextmanager
    async def stage(self, name: str, failure: Verdict) -> AsyncIterator[StageNotes]:
        """Run one stage. A HostError in its body is the stage's failure, with the verdict ``failure``."""
        notes = StageNotes(self)
        self._open(name)
        try:
            yield notes
        except StageFailed as error:
            self._close(StageStatus.FAILED, error.reason)
            raise
        except HostError as error:
            self._close(StageStatus.FAILED, str(error))
            raise StageFailed(failure, str(error)) from error
        except asyncio.CancelledError:
            # The journal keeps the stage as running: that is how far it is known to have come.
            raise
        self._close(StageStatus.DONE, notes.evidence, notes.line)

    def skip(self, name: str, why: str) -> None:
        """Note a stage that this operation has no need of."""
        self._stage_begun = time.monotonic()
        self._current = Stage(name, StageStatus.SKIPPED, expected_s=None)
        self._close(StageStatus.SKIPPED, why)

    def move(self, evidence: str, progress: tuple[int, int] | None = None) -> None:
        """Tell what the present stage is doing."""
        if self._current is not None:
            self._current = replace(self._current, evidence=evidence, seconds=time.monotonic() - self._stage_begun)
            self._tell(self._current, progress)

    def reached(self, name: str, evidence: str, line: int | None) -> None:
        """Note a stage that happened inside another wait: a milestone of the start."""
        self._journal.stage(name, StageStatus.RUNNING.value)
        self._current = Stage(name, StageStatus.RUNNING, expected_s=self._expected.get(name))
        self._close(StageStatus.DONE, evidence, line)

    def failed_at(self, name: str, reason: str) -> None:
        """Note the milestone that was being waited for when the start failed."""
        self._current = Stage(name, StageStatus.RUNNING, expected_s=self._expected.get(name))
        self._close(StageStatus.FAILED, reason)

    def wait_for(self, name: str) -> None:
        """Show ``name`` as the milestone that is being waited for."""
        if self._current is None or self._current.name != name:
            self._current = Stage(name, StageStatus.RUNNING, expected_s=self._expected.get(name))
            self._tell(self._current)

    def result(
        self, verdict: Verdict, reason: str, *, failed: StageFailed | None = None, rolled_back: bool = False
    ) -> ApplyResult:
        return ApplyResult(
            confirmed=verdict is Verdict.CONFIRMED,
            verdict=verdict,
            reason=reason,
            operation_id=self.operation_id,
            mode=self.mode,
            stages=self.stages,
            invocation_id=self.invocation_id,
            lines=failed.lines if failed is not None else (),
            rolled_back=rolled_back,
            seconds=self.seconds,
        )

    def stage_seconds(self) -> dict[str, float]:
        """Times of the stages that were done."""
        return {stage.name: round(stage.seconds, 3) for stage in self._stages if stage.status is StageStatus.DONE}

    def _open(self, name: str) -> None:
        self._journal.stage(name, StageStatus.RUNNING.value)
        self._stage_begun = time.monotonic()
        self._current = Stage(name, StageStatus.RUNNING, expected_s=self._expected.get(name))
        self._tell(self._current)

    def _close(self, status: StageStatus, evidence: str, line: int | None = None) -> None:
        assert self._current is not None
        now = time.monotonic()
        stage = replace(self._current, status=status, seconds=now - self._stage_begun, evidence=evidence, line=line)
        self._stage_begun = now
        self._current = None
        self._stages.append(stage)
        self._journal.stage(stage.name, status.value, evidence)
        self._tell(stage)

    def _tell(self, stage: Stage, progress: tuple[int, int] | None = None) -> None:
        if self._on_event is None:
            return
        event = StageEvent(
            operation_id=self.operation_id,
            stage=stage,
            planned=self._planned,
            elapsed_s=self.seconds,
            left_s=self._left(stage),
            progress=progress,
            rolling_back=self._rolling_back,
        )
        self._on_event(event)

    def _left(self, stage: Stage) -> float | None:
        """What the stages to come took before; the present one counts with what is left of its time."""
        ended = {done.name for done in self._stages}
        known = [self._expected[name] for name in self._planned if name in self._expected and name not in ended | {stage.name}]
        if stage.expected_s is not None and stage.status is StageStatus.RUNNING:
            known.append(max(0.0, stage.expected_s - (time.monotonic() - self._stage_begun)))
        return sum(known) if known else None


class StageNotes:
    """What a stage's body says about itself."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self.evidence = ""
        self.line: int | None = None

    def move(self, evidence: str, progress: tuple[int, int] | None = None) -> None:
        self._operation.move(evidence, progress)
