"""Operations whose console went away: look at what became of them, then go on confirming or roll back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from ..evidence.file_edits import Texts, edits_between, new_texts, texts_digest
from ..evidence.server import parse_server_info
from ..hosts.service import RunState
from ..hosts.transport import HostError
from ..knobs import KNOBS, Value, find_knob
from ..plan import KnobChange, Mode, Plan, Predictions
from ..proof import StartEvidence, proof_sources, proof_words, prove
from ..session import HostSession
from . import restart
from .answering import require_own_answers
from .asked import asked_changes, dialect_of
from .audit import who
from .confirmed import ConfirmedStore
from .engine import default_timeouts
from .hot import PROMPT_TOKENS, take_back
from .journal import OperationJournal, PendingOperation, own_identity
from .judge import judge, overall
from .operation import Operation
from .patience import Patience
from .records import ApplyResult, OnEvent, StageFailed, Timeouts, Verdict
from .remember import remember, setting_words
from .restart import RestartApply
from .revert import backwards, put_files_back, revert_restart
from .start import POLL_S, Before
from .undo import Undo
from .writing import texts_now


@dataclass(frozen=True)
class Found:
    """How far a cut-off operation came, by looking at the service and not at the journal alone."""

    written: bool
    """The file holds the planned text."""
    restarted: bool
    """Another start has happened since."""
    foreign: bool
    """The file holds neither the old nor the planned text: someone else changed it."""
    running: bool
    invocation_id: str | None
    put_back: bool = False
    """The timer of commit-confirm has put the configuration of before back."""


async def examine(session: HostSession, operation: PendingOperation) -> Found:
    """Raises: HostError."""
    begin = operation.begin
    state = await session.service.state()
    now = await texts_now(session.service, begin.paths)
    digest = texts_digest(now)
    writes = begin.old_digest != begin.new_digest
    timer = session.service.rollback_timer() if begin.undo_after_s is not None else None
    half = writes and digest not in (begin.old_digest, begin.new_digest) and await _half_written(session, operation, now)
    return Found(
        written=writes and (half or digest == begin.new_digest),
        restarted=state.invocation_id is not None and state.invocation_id != begin.old_invocation,
        foreign=bool(begin.paths) and not half and digest not in (begin.old_digest, begin.new_digest),
        running=state.state in (RunState.RUNNING, RunState.STARTING),
        invocation_id=state.invocation_id,
        put_back=timer is not None and await timer.fired(),
    )


async def _half_written(session: HostSession, operation: PendingOperation, now: Texts) -> bool:
    """Whether some files have the planned text and the others their old one: it was cut off between two writes."""
    begin = operation.begin
    if not begin.backup:
        return False
    store = ConfirmedStore(session.transport, session.service)
    old, new = await store.read_texts(begin.backup), await store.read_texts(begin.planned)
    return all(text in (old.get(path), new.get(path)) for path, text in now.items())


def discard(operation: PendingOperation) -> None:
    """Leave everything as it is and do not mention the operation again."""
    OperationJournal(operation.path).end(Verdict.CANCELLED.value, "left as it is by the user")


class _Pending:
    """One cut-off operation taken up again, under the lock and in its own journal."""

    def __init__(
        self, session: HostSession, pending: PendingOperation, on_event: OnEvent | None, timeouts: Timeouts | None
    ) -> None:
        self.session = session
        self.pending = pending
        self.begin = pending.begin
        self.on_event = on_event
        self.timeouts = timeouts or default_timeouts(session)
        self.journal = OperationJournal(pending.path)
        self.mode = Mode.HOT if self.begin.mode == Mode.HOT.value else Mode.RESTART
        self.operation = Operation(
            self.begin.operation_id, self.mode, restart.STAGES, self.journal, expected={}, on_event=on_event
        )

    async def run(self, way: Callable[[_Pending, Found], Awaitable[ApplyResult]], name: str) -> ApplyResult:
        what = f"{name} of {self.begin.what}"
        try:
            async with self.session.service.lock(f"{what} by {who()}"):
                pid, ticks = own_identity()
                self.journal.note(console_pid=pid, console_ticks=ticks, abandoned=False)
                try:
                    if self.session.read_only:
                        raise StageFailed(Verdict.REFUSED, "the console is read-only: nothing was done")
                    found = await examine(self.session, self.pending)
                except StageFailed as error:
                    self.journal.note(abandoned=True)
                    raise HostError(error.reason) from error
                except BaseException:
                    self.journal.note(abandoned=True)
                    raise
                try:
                    result = await way(self, found)
                except StageFailed as error:
                    result = self.operation.result(error.verdict, error.reason, failed=error)
                except HostError as error:
                    result = self.operation.result(Verdict.NOT_READY, str(error))
                except asyncio.CancelledError:
                    self.journal.note(abandoned=True)
                    raise
                if result.verdict in (Verdict.REFUSED, Verdict.LINK_DOWN):
                    self.journal.note(abandoned=True)
                else:
                    self.journal.end(result.verdict.value, result.reason)
        except HostError as error:
            result = self.operation.result(Verdict.REFUSED, str(error))
        await remember(self.session, result, what, setting_words(self.begin.settings), "", {})
        return result

    async def plan(self) -> Plan:
        """The plan as far as the journal and the kept texts give it back. Raises: HostError."""
        session, begin = self.session, self.begin
        config = await session.service.configuration()
        old = new = session.service.restorable(config)
        if begin.backup:
            store = ConfirmedStore(session.transport, session.service)
            old, new = await store.read_texts(begin.backup), await store.read_texts(begin.planned)
        old_command, command = await session.service.command_with(old), await session.service.command_with(new)
        dialect = dialect_of(session)
        changes = tuple(
            KnobChange(name, None, value, proof_sources(find_knob(name), dialect), proof_words(find_knob(name), ()))
            for name, value in begin.settings.items()
        )
        drafter = session.watcher.state.drafter
        return Plan(
            host=session.host,
            unit=session.unit,
            mode=self.mode,
            target=begin.target,
            edits=edits_between(old, new),
            diff="",
            command=command,
            old_command=old_command,
            shown_command=(),
            changes=changes or asked_changes(command, old_command, dialect),
            predictions=Predictions(),
            findings=(),
            digests={},
            invocation_id=begin.old_invocation,
            drafter=drafter.value if drafter is not None else None,
            undo_after_s=begin.undo_after_s,
        )


async def _put_back_by_timer(run: _Pending) -> str:
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
    if state.state is RunState.STOPPED and run.begin.old_invocation is None:
        return f"{words}; the unit is stopped, as it was before"
    steps = RestartApply(run.session, backwards(plan, plan.old_command, ()), run.operation, run.journal, run.timeouts)
    await steps.confirm(Before(run.begin.old_invocation, None, run.begin.cursor))
    if overall(steps.proofs) is not Verdict.CONFIRMED:
        return f"{words}; it runs"
    return f"{words}; it runs and is confirmed"


async def _resume(run: _Pending, found: Found) -> ApplyResult:
    if run.begin.what == "stop":
        return await _finish_stop(run, found)
    if found.put_back:
        return run.operation.result(Verdict.CANCELLED, await _put_back_by_timer(run), rolled_back=True)
    if found.foreign:
        raise StageFailed(Verdict.REFUSED, f"{run.begin.target} was changed by someone else since: look at it, and plan again")
    if run.mode is Mode.HOT:
        return await _confirm_hot(run, found)
    writes = run.begin.old_digest != run.begin.new_digest
    if writes and not found.written:
        return run.operation.result(Verdict.CANCELLED, "it was cut off before anything was changed; nothing is to be done")
    plan = await run.plan()
    left = edits_between(await texts_now(run.session.service, [edit.path for edit in plan.edits]), new_texts(plan.edits))
    # What is in place already is not written again.
    steps = RestartApply(run.session, replace(plan, edits=left), run.operation, run.journal, run.timeouts)
    if found.restarted:
        run.operation.invocation_id = found.invocation_id
        await steps.undo.rearm()
        await steps.confirm(Before(run.begin.old_invocation, None, run.begin.cursor))
    else:
        await steps.run(drain=False)
    verdict = overall(steps.proofs)
    words = "; ".join(proof.words for proof in steps.proofs)
    if verdict is Verdict.CONFIRMED:
        await steps.undo.call_off(run.operation)
        with contextlib.suppress(HostError):
            store = ConfirmedStore(run.session.transport, run.session.service)
            invocation = run.operation.invocation_id or ""
            texts = run.session.service.restorable(await run.session.service.configuration())
            await store.add(texts, invocation_id=invocation, evidence=[proof.words for proof in steps.proofs])
    return run.operation.result(verdict, f"taken up again after it was cut off: {words}")


async def _confirm_hot(run: _Pending, found: Found) -> ApplyResult:
    if found.restarted or not found.running:
        return run.operation.result(Verdict.CANCELLED, "the engine was restarted since, and a hot change ends with its start")
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
    return run.operation.result(overall(proofs), "; ".join(proof.words for proof in proofs))


async def _finish_stop(run: _Pending, found: Found) -> ApplyResult:
    async with run.operation.stage("stop", Verdict.TIMED_OUT) as notes:
        if found.running:
            await run.session.service.stop(timeout=run.timeouts.restart)
        notes.evidence = (await run.session.service.state()).state.value
    return run.operation.result(Verdict.CONFIRMED, f"{run.session.unit} is stopped")


async def _undo(run: _Pending, found: Found) -> ApplyResult:
    if run.begin.what == "stop":
        return run.operation.result(Verdict.CANCELLED, "a stop changes no configuration; start the service to undo it")
    if found.put_back:
        return run.operation.result(Verdict.CONFIRMED, await _put_back_by_timer(run), rolled_back=True)
    if found.foreign:
        raise StageFailed(Verdict.REFUSED, f"{run.begin.target} was changed by someone else since: it is left alone")
    if run.mode is Mode.HOT:
        return await _undo_hot(run, found)
    if not found.written and not found.restarted:
        return run.operation.result(Verdict.CANCELLED, "it was cut off before anything was changed; nothing is to be done")
    plan = await run.plan()
    if not found.restarted:
        async with run.operation.stage("write", Verdict.ROLLBACK_FAILED) as notes:
            await put_files_back(run.session, plan, run.timeouts)
            await Undo(run.session, plan, Patience(run.session.transport, run.timeouts.link)).off()
            notes.evidence = run.begin.target
        text = "rolled back: the file is as it was, and the engine had not been restarted"
        return run.operation.result(Verdict.CONFIRMED, text, rolled_back=True)
    cut = run.operation.result(Verdict.CANCELLED, f"{run.begin.what} was cut off")
    was_running = run.begin.old_invocation is not None
    result = await revert_restart(
        run.session, plan, cut, run.journal, run.timeouts, was_running=was_running, on_event=run.on_event
    )
    return replace(result, verdict=Verdict.CONFIRMED, confirmed=True) if result.rolled_back else result


async def _undo_hot(run: _Pending, found: Found) -> ApplyResult:
    if found.restarted or not found.running:
        return run.operation.result(Verdict.CANCELLED, "the engine was restarted since, and a hot change ends with its start")
    run.operation.invocation_id = found.invocation_id
    wanted: dict[str, Value] = {}
    for name in run.begin.settings:
        knob = KNOBS[name]
        if knob.hot_name is not None and knob.hot_name in run.begin.hot_before:
            wanted[name] = knob.parse(f"{run.begin.hot_before[knob.hot_name]:g}")
    async with run.operation.stage("change", Verdict.ROLLBACK_FAILED) as notes:
        notes.evidence = await take_back(run.session, run.begin.hot_before, wanted)
    return run.operation.result(Verdict.CONFIRMED, f"rolled back: {notes.evidence}", rolled_back=True)


async def resume(
    session: HostSession, operation: PendingOperation, *, on_event: OnEvent | None = None, timeouts: Timeouts | None = None
) -> ApplyResult:
    """Go on where the operation was cut off: restart if that had not happened, and confirm."""
    return await _Pending(session, operation, on_event, timeouts).run(_resume, "resumption")


async def roll_back_operation(
    session: HostSession, operation: PendingOperation, *, on_event: OnEvent | None = None, timeouts: Timeouts | None = None
) -> ApplyResult:
    """Undo the operation: the previous text, and, if it had restarted the engine, a restart confirmed in its turn."""
    return await _Pending(session, operation, on_event, timeouts).run(_undo, "roll-back")
