"""The ways out of an operation whose console went away: go on confirming it, roll it back, or leave it as it is."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace

from ..evidence.file_edits import edits_between, new_texts
from ..evidence.server import parse_server_info
from ..hosts.service import RunState
from ..hosts.transport import HostError
from ..knobs import find_knob
from ..plan import Mode, Plan
from ..proof import StartEvidence, prove
from ..session import HostSession
from .answering import require_own_answers
from .confirmed import ConfirmedStore
from .examine import Found
from .hot import PROMPT_TOKENS, take_back
from .journal import OperationJournal, PendingOperation
from .judge import judge, overall
from .patience import LinkLost, Patience
from .records import ApplyResult, OnEvent, StageFailed, Timeouts, Verdict
from .restart import RestartApply
from .revert import backwards, put_files_back, revert_restart
from .start import POLL_S, Before
from .taken_up import TakenUp
from .undo import Undo
from .unfinished import as_it_was_shown, hot_wanted, plan_taking_up, runs_back
from .writing import texts_now


def discard(operation: PendingOperation) -> None:
    """Leave everything as it is and do not mention the operation again."""
    OperationJournal(operation.path).end(Verdict.CANCELLED.value, "left as it is by the user")


async def _confirm_old(run: TakenUp, plan: Plan, before: Before) -> bool:
    """Whether the start that runs, of the configuration before the change, is confirmed. Raises: StageFailed."""
    steps = RestartApply(run.session, backwards(plan, plan.old_command, ()), run.operation, run.journal, run.timeouts)
    await steps.confirm(before)
    return overall(steps.proofs) is Verdict.CONFIRMED


async def _put_back_by_timer(run: TakenUp) -> str:
    """The timer of commit-confirm did what the console could not: see that what it put back runs, and say so.

    Returns:
        What was seen, in words.

    Raises:
        StageFailed: what it put back is not confirmed.
    """
    plan = await run.plan()
    patience = Patience(run.session.transport, run.timeouts.link, run.operation.move)
    async with run.operation.stage("restart", Verdict.ROLLBACK_FAILED) as notes:
        until = time.monotonic() + run.timeouts.restart
        state = await patience.ask(run.session.service.state)
        while state.state in (RunState.STARTING, RunState.STOPPING) and time.monotonic() < until:
            await asyncio.sleep(POLL_S)
            state = await patience.ask(run.session.service.state)
        run.operation.invocation_id = state.invocation_id
        notes.evidence = "by the timer on the host"
    words = f"{Undo(run.session, plan, patience).fired_words}, because nobody had confirmed the change"
    if state.state is RunState.STOPPED and not run.begin.ran_before:
        return f"{words}; the unit is stopped, as it was before"
    confirmed = await _confirm_old(run, plan, Before(run.begin.old_invocation, None, run.begin.cursor))
    return f"{words}; it runs and is confirmed" if confirmed else f"{words}; it runs"


async def _resume(run: TakenUp, found: Found) -> ApplyResult:
    if run.begin.what == "stop":
        return await _finish_stop(run, found)
    if found.put_back:
        return run.operation.result(Verdict.CANCELLED, await _put_back_by_timer(run), rolled_back=True)
    if run.begin.rolling_back:
        # It had failed: what is to be gone on with is its undoing.
        return await _undo(run, found)
    if found.foreign:
        raise StageFailed(Verdict.REFUSED, f"{run.begin.target} was changed by someone else since: look at it, and plan again")
    if run.mode is Mode.HOT:
        return await _confirm_hot(run, found)
    writes = run.begin.old_digest != run.begin.new_digest
    if writes and not found.written:
        return run.operation.result(Verdict.CANCELLED, "it was cut off before anything was changed; nothing is to be done")
    plan = await run.plan()
    left = edits_between(await texts_now(run.session.service, [edit.path for edit in plan.edits]), new_texts(plan.edits))
    # What is in place already is not written again; going back still means all of it.
    steps = RestartApply(run.session, plan, run.operation, run.journal, run.timeouts, left=left)
    try:
        # A start that happened before the operation's own restart (a crash, a colleague) is not the one to confirm.
        if found.restarted and run.pending.restart_asked and not left:
            run.operation.invocation_id = found.invocation_id
            await steps.undo.rearm(restart=run.begin.ran_before)
            await steps.confirm(Before(run.begin.old_invocation, None, run.begin.cursor))
        else:
            await steps.run(drain=False)
    except LinkLost:
        raise
    except StageFailed as error:
        raise StageFailed(error.verdict, await _with_timer(steps.undo, error.reason), error.lines) from error
    verdict = overall(steps.proofs)
    words = "; ".join(filter(None, (*(proof.words for proof in steps.proofs), steps.unproven)))
    if verdict is not Verdict.CONFIRMED:
        words = await _with_timer(steps.undo, words)
    else:
        await steps.undo.call_off(run.operation)
        store = ConfirmedStore(run.session.transport, run.session.service)
        await store.add_present(invocation_id=run.operation.invocation_id or "", evidence=[proof.words for proof in steps.proofs])
    return run.operation.result(verdict, f"taken up again after it was cut off: {words}")


async def _with_timer(undo: Undo, words: str) -> str:
    """What is not confirmed stays under its timer: say so."""
    with contextlib.suppress(HostError):
        return "; ".join(filter(None, (words, await undo.ahead())))
    return words


HOT_ENDED = "the engine was restarted since, and a hot change ends with its start"


async def _confirm_hot(run: TakenUp, found: Found) -> ApplyResult:
    if found.restarted or not found.running:
        text = f"{HOT_ENDED}; this one was written down too, and a start takes it from there" if found.written else HOT_ENDED
        return run.operation.result(Verdict.CANCELLED, text)
    run.operation.invocation_id = found.invocation_id
    async with run.operation.stage("server", Verdict.NOT_READY) as notes:
        await require_own_answers(run.session)
        http = await run.session.engine()
        evidence = StartEvidence(None, parse_server_info(await http.server_info()), None)
        proofs = [prove(find_knob(name), value, evidence) for name, value in run.begin.settings.items()]
        judge(proofs, ())
        notes.evidence = "; ".join(proof.words for proof in proofs)
    async with run.operation.stage("prompt", Verdict.BAD_ANSWER) as notes:
        notes.evidence = f"{(await http.generate(max_tokens=PROMPT_TOKENS)).completion_tokens} tokens"
        await require_own_answers(run.session)
    words = "; ".join(proof.words for proof in proofs)
    if run.begin.old_digest != run.begin.new_digest and not found.written:
        words += "; it was cut off before it was written down, so it ends with this start: apply it once more to have it written"
    return run.operation.result(overall(proofs), words)


async def _finish_stop(run: TakenUp, found: Found) -> ApplyResult:
    async with run.operation.stage("stop", Verdict.TIMED_OUT) as notes:
        if found.running:
            await run.session.service.stop(timeout=run.timeouts.restart)
        notes.evidence = (await run.session.service.state()).state.value
    return run.operation.result(Verdict.CONFIRMED, f"{run.session.unit} is stopped")


async def _undo(run: TakenUp, found: Found) -> ApplyResult:
    if run.begin.what == "stop":
        return run.operation.result(Verdict.CANCELLED, "a stop changes no configuration; start the service to undo it")
    if found.put_back:
        return run.operation.result(Verdict.CONFIRMED, await _put_back_by_timer(run), rolled_back=True)
    if found.foreign:
        raise StageFailed(Verdict.REFUSED, f"{run.begin.target} was changed by someone else since: it is left alone")
    if run.mode is Mode.HOT:
        return await _undo_hot(run, found)
    if not found.written and not run.begin.rolling_back and not (found.restarted and run.pending.restart_asked):
        return run.operation.result(Verdict.CANCELLED, "it was cut off before anything was changed; nothing is to be done")
    plan = await run.plan()
    if run.begin.rolling_back and runs_back(run.begin, found):
        return await _finish_back(run, plan, found)
    if not found.restarted:
        async with run.operation.stage("write", Verdict.ROLLBACK_FAILED) as notes:
            await put_files_back(run.session, plan, run.timeouts)
            await Undo(run.session, plan, Patience(run.session.transport, run.timeouts.link)).off()
            notes.evidence = run.begin.target
        text = "rolled back: the file is as it was, and the engine had not been restarted"
        return run.operation.result(Verdict.CONFIRMED, text, rolled_back=True)
    cut = run.operation.result(Verdict.CANCELLED, f"{run.begin.what} was cut off")
    result = await revert_restart(
        run.session, plan, cut, run.journal, run.timeouts, was_running=run.begin.ran_before, on_event=run.on_event
    )
    return replace(result, verdict=Verdict.CONFIRMED, confirmed=True) if result.rolled_back else result


async def _finish_back(run: TakenUp, plan: Plan, found: Found) -> ApplyResult:
    run.operation.invocation_id = found.invocation_id
    confirmed = await _confirm_old(run, plan, Before(run.begin.back_from, None, run.begin.cursor))
    await Undo(run.session, plan, Patience(run.session.transport, run.timeouts.link)).off()
    if not confirmed:
        text = "rolled back: the previous configuration runs, but this engine cannot confirm all of it"
        return run.operation.result(Verdict.UNKNOWN, text)
    text = "rolled back: the previous configuration runs and is confirmed"
    return run.operation.result(Verdict.CONFIRMED, text, rolled_back=True)


async def _undo_hot(run: TakenUp, found: Found) -> ApplyResult:
    if found.written:
        plan = await run.plan()
        async with run.operation.stage("write", Verdict.ROLLBACK_FAILED) as notes:
            await put_files_back(run.session, plan, run.timeouts)
            notes.evidence = run.begin.target
    if found.restarted or not found.running:
        if found.written and found.running:
            text = f"{run.begin.target} is as it was, but the engine was started with the change since: restart it to be without"
            return run.operation.result(Verdict.CANCELLED, text)
        return run.operation.result(Verdict.CANCELLED, HOT_ENDED)
    run.operation.invocation_id = found.invocation_id
    async with run.operation.stage("change", Verdict.ROLLBACK_FAILED) as notes:
        notes.evidence = await take_back(run.session, run.begin.hot_before, hot_wanted(run.begin))
    return run.operation.result(Verdict.CONFIRMED, f"rolled back: {notes.evidence}", rolled_back=True)


async def resume(
    session: HostSession, operation: PendingOperation, *, on_event: OnEvent | None = None, timeouts: Timeouts | None = None
) -> ApplyResult:
    """Go on where the operation was cut off: restart if that had not happened, and confirm."""
    return await TakenUp(session, operation, on_event, timeouts).run(_resume, "resumption")


async def roll_back_operation(
    session: HostSession, operation: PendingOperation, *, on_event: OnEvent | None = None, timeouts: Timeouts | None = None
) -> ApplyResult:
    """Undo the operation: the previous text, and, if it had restarted the engine, a restart confirmed in its turn."""
    return await TakenUp(session, operation, on_event, timeouts).run(_undo, "roll-back")


async def take_up_as_shown(
    session: HostSession,
    operation: PendingOperation,
    shown: Plan,
    *,
    on_event: OnEvent | None = None,
    timeouts: Timeouts | None = None,
) -> ApplyResult:
    """What the plan of a roll-back says of an operation that was cut off: undo it, or, when it was a roll-back itself, finish it.
    Refused when that is no longer what it would take."""
    finishes = operation.begin.what == "rollback"

    async def way(run: TakenUp, found: Found) -> ApplyResult:
        await as_it_was_shown(run, found, shown)
        result = await (_resume if finishes else _undo)(run, found)
        return replace(result, rolled_back=result.confirmed) if finishes else result

    return await TakenUp(session, operation, on_event, timeouts).run(way, "resumption" if finishes else "roll-back")


async def call_off(
    session: HostSession, operation: PendingOperation, *, on_event: OnEvent | None = None, timeouts: Timeouts | None = None
) -> ApplyResult:
    """Decide an operation that has left nothing to undo, and change nothing. Refused when it has left something after all."""

    async def way(run: TakenUp, found: Found) -> ApplyResult:
        if found.foreign or await plan_taking_up(run, found) is not None:
            raise StageFailed(Verdict.REFUSED, "it has left something to undo after all; plan the roll-back again")
        return run.operation.result(Verdict.CANCELLED, "it was cut off and has left nothing to undo; nothing is to be done")

    return await TakenUp(session, operation, on_event, timeouts).run(way, "roll-back")
