"""Applying a plan: the lock, the journal, the checks, the right kind of change, and what becomes of a failure."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

from ..evidence.file_edits import digests_digest, new_texts, old_texts, reverse_edits, texts_digest
from ..hosts.http import EngineHttp
from ..hosts.transport import HostError
from ..knobs import KNOBS
from ..plan import Mode, Plan
from ..proof import KnobProof
from ..session import HostSession
from . import hot, restart
from .checks import check_plan
from .confirmed import ConfirmedStore
from .held import hold_unit
from .hot import HotApply, take_back, values_before
from .journal import OperationBegin, OperationJournal, new_operation_id, own_identity
from .judge import overall
from .operation import Operation
from .patience import LinkLost, lost_link
from .records import ApplyResult, OnEvent, StageFailed, Timeouts, Verdict
from .remember import remember, setting_words
from .restart import RestartApply
from .revert import put_files_back, revert_restart


async def apply_plan(
    session: HostSession,
    plan: Plan,
    *,
    rollback_on_failure: bool | None = None,
    drain: bool | None = None,
    on_event: OnEvent | None = None,
    why: str = "",
    what: str = "apply",
    timeouts: Timeouts | None = None,
) -> ApplyResult:
    """Carry ``plan`` out and confirm it. Failures are verdicts of the result, never exceptions.

    Cancelling leaves the operation's journal, from which it can be resumed or rolled back.

    Args:
        rollback_on_failure, drain: the configuration's defaults when not given.
        why: the reason to note in the audit file.
    """
    defaults = session.config.apply
    run = _Run(session, plan, what, why, timeouts or default_timeouts(session), on_event)
    return await run.run(
        rollback=defaults.rollback_on_failure if rollback_on_failure is None else rollback_on_failure,
        drain=defaults.drain if drain is None else drain,
    )


def default_timeouts(session: HostSession) -> Timeouts:
    """The longest waits that the configuration asks for."""
    return replace(Timeouts(), ready=session.config.apply.ready_timeout_s, drain=session.config.apply.drain_timeout_s)


class _Run:
    """One apply from its lock to its audit line."""

    def __init__(
        self, session: HostSession, plan: Plan, what: str, why: str, timeouts: Timeouts, on_event: OnEvent | None
    ) -> None:
        self._session = session
        self._plan = plan
        self._what = what
        self._why = why
        self._timeouts = timeouts
        self._on_event = on_event
        operation_id = new_operation_id()
        self._journal = OperationJournal(session.paths.operations / f"{operation_id}.jsonl")
        self._operation = Operation(
            operation_id,
            plan.mode,
            hot.STAGES if plan.mode is Mode.HOT else restart.stages_of(plan),
            self._journal,
            expected=plan.predictions.stage_seconds,
            on_event=on_event,
        )

    async def run(self, *, rollback: bool, drain: bool) -> ApplyResult:
        result = await hold_unit(
            self._session,
            self._operation,
            self._journal,
            self._what,
            begin=self._begin,
            change=lambda: self._change(rollback=rollback, drain=drain),
        )
        settings = setting_words({change.knob: change.new for change in self._plan.changes})
        await remember(self._session, result, self._what, settings, self._why, self._operation.stage_seconds())
        return result

    def _begin(self) -> None:
        plan, session = self._plan, self._session
        pid, ticks = own_identity()
        # A restart that writes nothing still counts on the files that it was planned with.
        old, new = (texts_digest(old_texts(plan.edits)), texts_digest(new_texts(plan.edits))) if plan.edits else ("", "")
        self._journal.begin(
            OperationBegin(
                operation_id=self._operation.operation_id,
                what=self._what,
                host=session.host,
                unit=session.unit,
                mode=plan.mode.value,
                at=time.time(),
                console_pid=pid,
                console_ticks=ticks,
                target=plan.target,
                paths=tuple(edit.path for edit in plan.edits) or tuple(plan.digests),
                old_digest=old or digests_digest(plan.digests),
                new_digest=new or digests_digest(plan.digests),
                settings={change.knob: change.new for change in plan.changes},
                hot_before=values_before(plan) if plan.mode is Mode.HOT else {},
                old_invocation=plan.invocation_id,
                undo_after_s=plan.undo_after_s,
            )
        )

    async def _change(self, *, rollback: bool, drain: bool) -> ApplyResult:
        await check_plan(self._session, self._plan, self._operation, self._what)
        if self._plan.mode is Mode.HOT:
            return await self._hot(rollback=rollback)
        return await self._restart(rollback=rollback, drain=drain)

    async def _restart(self, *, rollback: bool, drain: bool) -> ApplyResult:
        steps = RestartApply(self._session, self._plan, self._operation, self._journal, self._timeouts)
        try:
            try:
                await steps.run(drain=drain)
            except LinkLost as error:
                if steps.touched or steps.restarted:
                    raise
                raise StageFailed(Verdict.WRITE_FAILED, f"nothing was changed: {error.reason}") from error
            except HostError as error:
                # Every stage gives its failures a verdict; what slips through must not be taken for "nothing was changed".
                raise StageFailed(Verdict.NOT_READY, str(error)) from error
        except LinkLost:
            raise
        except StageFailed as error:
            return await self._failed_restart(steps, error, rollback=rollback)
        verdict = overall(steps.proofs)
        try:
            if steps.undo.wanted and verdict is not Verdict.CONFIRMED:
                raise StageFailed(
                    verdict, f"{_success(steps.proofs, verdict, steps.unproven)}; what is not confirmed is put back"
                )
            await steps.undo.call_off(self._operation)
        except LinkLost:
            raise
        except StageFailed as error:
            return await self._failed_restart(steps, error, rollback=True)
        if verdict is Verdict.CONFIRMED:
            await self._keep([proof.words for proof in steps.proofs])
        return self._operation.result(verdict, _success(steps.proofs, verdict, steps.unproven))

    async def _failed_restart(self, steps: RestartApply, error: StageFailed, *, rollback: bool) -> ApplyResult:
        with contextlib.suppress(HostError):
            if steps.restarted and await steps.undo.fired():
                error = StageFailed(error.verdict, f"{steps.undo.fired_words}: {error.reason}", error.lines)
        failed = self._operation.result(error.verdict, error.reason, failed=error)
        if steps.touched and not steps.restarted:
            # The engine that runs was never touched, so the files alone have to be as they were.
            try:
                put_back = await put_files_back(self._session, self._plan, self._timeouts)
                await steps.undo.off()
            except HostError as problem:
                text = f"{error.reason}; and the files could not be put back: {problem}"
                return replace(failed, verdict=Verdict.ROLLBACK_FAILED, reason=text)
            return replace(failed, reason=f"{error.reason}; the files are as they were") if put_back else failed
        if not (rollback or steps.undo.wanted) or not steps.restarted:
            return failed
        return await revert_restart(
            self._session,
            self._plan,
            failed,
            self._journal,
            self._timeouts,
            was_running=steps.was_running,
            on_event=self._on_event,
        )

    async def _hot(self, *, rollback: bool) -> ApplyResult:
        steps = HotApply(self._session, self._plan, self._operation, self._journal, self._timeouts)
        try:
            http: EngineHttp = await self._session.engine()
            await steps.run(http)
        except (StageFailed, HostError) as problem:
            error = problem if isinstance(problem, StageFailed) else StageFailed(Verdict.NOT_READY, str(problem))
            if steps.changed and (lost := lost_link(self._session.transport, error)) is not None:
                raise lost from problem
            failed = self._operation.result(error.verdict, error.reason, failed=error)
            failed = replace(failed, invocation_id=self._plan.invocation_id)
            if not steps.changed:
                return failed
            if not rollback:
                return replace(failed, reason=f"{failed.reason}; the running engine may have taken the change")
            return await self._revert_hot(failed, written=steps.written)
        verdict = overall(steps.proofs)
        if verdict is Verdict.CONFIRMED and steps.written:
            await self._keep([proof.words for proof in steps.proofs])
        result = self._operation.result(verdict, _success(steps.proofs, verdict))
        return replace(result, invocation_id=self._plan.invocation_id)

    async def _revert_hot(self, failed: ApplyResult, *, written: bool) -> ApplyResult:
        before = values_before(self._plan)
        wanted = {change.knob: change.old for change in self._plan.changes if change.old is not None and change.knob in KNOBS}
        try:
            if written:
                await self._session.service.write(reverse_edits(self._plan.edits))
                await self._session.service.reload()
            if len(before) < len(self._plan.hot_values):
                raise HostError("the value before the change is not known")
            said = await take_back(self._session, before, wanted)
        except HostError as error:
            cut = StageFailed(Verdict.ROLLBACK_FAILED, str(error))
            cut.__cause__ = error
            if (lost := lost_link(self._session.transport, cut)) is not None:
                raise lost from error
            text = f"{failed.reason}; and taking the change back failed: {error}"
            return replace(failed, verdict=Verdict.ROLLBACK_FAILED, reason=text)
        return replace(failed, rolled_back=True, reason=f"{failed.reason}; rolled back to {said}, confirmed")

    async def _keep(self, evidence: list[str]) -> None:
        store = ConfirmedStore(self._session.transport, self._session.service)
        await store.add_present(invocation_id=self._operation.invocation_id or self._plan.invocation_id or "", evidence=evidence)


def _success(proofs: tuple[KnobProof, ...], verdict: Verdict, unproven: str = "") -> str:
    words = "; ".join(proof.words for proof in proofs) or "the engine answers a prompt in a new start"
    words = "; ".join(filter(None, (words, unproven)))
    return words if verdict is Verdict.CONFIRMED else f"applied, but not confirmed in all: {words}"
