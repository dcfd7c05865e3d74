"""Applying a plan with a restart: write, restart, follow this very start to an answered prompt, and prove every value."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

from ..drift import drift_items, truth_table
from ..evidence.command import find_engine, flag_value, set_flag
from ..evidence.engine_log import Phase, StartLog
from ..evidence.file_edits import FileEdit
from ..evidence.redirection import redirected_words
from ..evidence.secrets import mask_argv
from ..hosts.http import ProbeAnswer
from ..hosts.service import RunState, ServiceConfig
from ..hosts.wrapped import engine_argv
from ..knobs import KNOBS, PLAIN, Source, find_knob
from ..plan import Plan
from ..proof import KnobProof, Proof, StartEvidence, prove
from ..session import HostSession
from .answering import answered_by_another
from .confirmed import ConfirmedStore
from .drain import drain
from .follow import StartFollower
from .journal import JournalError, OperationJournal
from .judge import judge, wrong_value
from .operation import Operation
from .patience import Patience
from .records import StageFailed, Timeouts, Verdict
from .start import Before, ask_for_restart, await_restart, how_it_ended, last_words, look_before, start_lines
from .undo import ARM, CALL_OFF, Undo
from .variables import Variables, changed_variables, environment_of, unproven_words
from .writing import write_edits

STAGES = (
    "checks",
    "backup",
    "write",
    "verify unit",
    "reload",
    "drain",
    "restart",
    "process up",
    "weights",
    "draft runner",
    "KV pool",
    "graphs",
    "ready",
    "prompt",
    "truth",
)
_SAID_BY_TREE_WORKERS = ("tree_budget", "tree_topk", "block_size")


def stages_of(plan: Plan) -> tuple[str, ...]:
    """The stages of this plan's operation: with commit-confirm two more."""
    if plan.undo_after_s is None:
        return STAGES
    at = STAGES.index("restart")
    return (*STAGES[:at], ARM, *STAGES[at:], CALL_OFF)


WRITE_STAGES = ("backup", "write", "verify unit", "reload")


class RestartApply:
    """The steps of one restart. ``proofs`` and the follower's log are there when it is over."""

    def __init__(
        self,
        session: HostSession,
        plan: Plan,
        operation: Operation,
        journal: OperationJournal,
        timeouts: Timeouts,
        *,
        left: Sequence[FileEdit] | None = None,
    ) -> None:
        """``left``: the edits that are still to be made, where some of the plan's are in place already."""
        self._session = session
        self._plan = plan
        self._left = plan.edits if left is None else tuple(left)
        self._operation = operation
        self._journal = journal
        self._timeouts = timeouts
        self._kept = ConfirmedStore(session.transport, session.service)
        self._follower: StartFollower | None = None
        self._patience = Patience(session.transport, timeouts.link, operation.move)
        self.undo = Undo(session, plan, self._patience)
        self.proofs: tuple[KnobProof, ...] = ()
        self.unproven = ""
        """What came into effect beside that and nothing proves, in words."""
        self._variables: Variables | None = None
        """Of the start before; ``None`` = not looked at."""
        self.touched = False
        """A write was begun: a file may have been changed."""
        self.restarted = False
        """A restart was asked for."""
        self.was_running = True
        """An engine ran before the restart was asked for."""

    async def run(self, *, drain: bool) -> None:
        """All stages.

        Raises:
            StageFailed: with the verdict of the stage that failed.
        """
        known = self._session.watcher.state.config
        self._variables = Variables(known.value.environment) if known is not None else None
        await self._write()
        if drain:
            await self._drain()
        else:
            self._operation.skip("drain", "not asked for")
        if self.undo.wanted:
            state = await self._patience.ask(self._session.service.state)
            await self.undo.arm(self._operation, restart=state.state is not RunState.STOPPED)
        before = await self._restart()
        await self.confirm(before)

    async def _write(self) -> None:
        plan, operation, service = self._plan, self._operation, self._session.service
        if not self._left:
            for name in WRITE_STAGES[:-1]:
                operation.skip(name, "the files are in place already" if plan.writes else "the file stays as it is")
            await self._reload()
            return
        ask = self._patience.ask
        async with operation.stage("backup", Verdict.WRITE_FAILED) as notes:
            path, planned = await ask(lambda: self._kept.keep_edits(operation.operation_id, plan.edits))
            # In a roll-back the journal keeps the texts of the operation that is undone.
            if not operation.rolling_back:
                self._journal.note(backup=path, planned=planned)
            notes.evidence = path
        async with operation.stage("write", Verdict.WRITE_FAILED) as notes:
            complaints = await ask(service.check)
            self.touched = True
            await write_edits(service, self._left, self._patience)
            notes.evidence = plan.target
        async with operation.stage("verify unit", Verdict.WRITE_FAILED) as notes:
            # What it complained about before is not this change's doing.
            problems = [line for line in await ask(service.check) if line not in complaints]
            if problems:
                raise StageFailed(Verdict.WRITE_FAILED, f"the service manager refuses the new configuration: {problems[0]}")
            notes.evidence = "no new complaints" if complaints else "no complaints"
        await self._reload()

    async def _reload(self) -> None:
        """Have the manager read the files: what was written by hand, too, is only started when it was read."""
        service = self._session.service
        if not self._plan.writes and not service.loads_on_reload:
            self._operation.skip("reload", "the file is read at the start")
            return
        async with self._operation.stage("reload", Verdict.WRITE_FAILED) as notes:
            await self._patience.ask(service.reload)
            notes.evidence = self._loaded_as_planned(await self._patience.ask(service.configuration))

    def _loaded_as_planned(self, config: ServiceConfig) -> str:
        """What was found, in words. Raises: StageFailed: a restart would run another command than the planned one."""
        loads = self._session.service.loads_on_reload
        if loads and config.loaded is None:
            reason = "what the manager has loaded cannot be read over D-Bus, so what a restart would run is not known"
            raise StageFailed(Verdict.WRITE_FAILED, reason)
        found = config.loaded if loads and config.loaded is not None else config.command
        if config.command != self._plan.command:
            shown = " ".join(mask_argv(config.command))
            winner = f"{config.command_path} wins" if config.command_path else "another file wins"
            raise StageFailed(Verdict.WRITE_FAILED, f"the effective command is not the planned one, {winner}: {shown}")
        if found != self._plan.command:
            shown = " ".join(mask_argv(found))
            raise StageFailed(Verdict.WRITE_FAILED, f"the manager has loaded another command than the files have: {shown}")
        return "the manager has loaded exactly the planned command" if loads else "the effective command is the planned one"

    async def _drain(self) -> None:
        async with self._operation.stage("drain", Verdict.TIMED_OUT) as notes:
            state = await self._patience.ask(self._session.service.state)
            if state.state is not RunState.RUNNING:
                notes.evidence = "nothing runs"
                return
            await drain(self._session, notes, self._timeouts.drain)

    async def _restart(self) -> Before:
        service, transport, patience = self._session.service, self._session.transport, self._patience
        async with self._operation.stage("restart", Verdict.NO_RESTART) as notes:
            before = await patience.ask(lambda: look_before(transport, service))
            if before.main is not None and self._variables is not None:
                pid = before.main.pid
                self._variables = replace(self._variables, process=await patience.ask(lambda: environment_of(transport, pid)))
            self._note_restart(before)
            self.restarted = True
            self.was_running = before.running
            # A change's files have to stay as they were written, or it could not be rolled back.
            another_port = not self._plan.writes and not self._operation.rolling_back
            await ask_for_restart(service, before, patience, self._timeouts.restart, another_port=another_port)
            state = await await_restart(transport, service, before, self._timeouts, patience, notes)
            self._operation.invocation_id = state.invocation_id
            gone = f", process {before.main.pid} is gone" if before.main is not None else ""
            notes.evidence = f"invocation {(before.invocation_id or 'none')[:8]} → {(state.invocation_id or '')[:8]}{gone}"
        return before

    def _note_restart(self, before: Before) -> None:
        """Raises: JournalError: but a roll-back goes on, which is safer than one that is left half-way."""
        if self._operation.rolling_back:
            with contextlib.suppress(JournalError):
                self._journal.note(back_from=before.invocation_id, cursor=before.cursor)
        else:
            self._journal.note(old_invocation=before.invocation_id, was_running=before.running, cursor=before.cursor)

    async def confirm(self, before: Before) -> None:
        """From a new invocation to the truth table.

        Raises:
            StageFailed
        """
        session, operation = self._session, self._operation
        invocation = operation.invocation_id
        assert invocation is not None
        config = await self._patience.ask(session.service.configuration)
        pid = await self._process_up(config)
        argv = await self._patience.ask(lambda: engine_argv(session.transport, pid))
        follower = StartFollower(
            session.transport, session.service, session.link, invocation, before, self._timeouts, pid, self._patience
        )
        self._follower = follower
        await follower.follow(operation, config, self._check_early)
        if find_engine(argv) is None:
            # A wrapper has started the engine by now, or become it.
            argv = await self._patience.ask(lambda: engine_argv(session.transport, pid))
        mark = follower.log.phases.get(Phase.READY)
        evidence = mark.text if mark is not None else "the server answers"
        operation.reached("ready", evidence, mark.number if mark is not None else None)
        await self._prompt()
        if self._variables is not None:
            now = Variables(config.environment, await self._patience.ask(lambda: environment_of(session.transport, pid)))
            self.unproven = unproven_words(changed_variables(self._variables, now))
        await self._truth(follower, argv)

    async def _process_up(self, config: ServiceConfig) -> int:
        """The main process of the new start, when the manager gave it the planned command."""
        async with self._operation.stage("process up", Verdict.PROCESS_DIED) as notes:
            state = await self._patience.ask(self._session.service.state)
            if state.invocation_id != self._operation.invocation_id or state.main_pid is None:
                await self._died()
            assert state.main_pid is not None
            moved = self._moved(config)
            if config.loaded is not None and config.loaded != self._plan.command and not moved:
                shown = " ".join(mask_argv(config.loaded))
                reason = f"the manager started another command than the planned one, the file was changed meanwhile: {shown}"
                raise StageFailed(Verdict.OTHER_VALUE, reason)
            if moved:
                # The port that was planned is another program's: that it is not the one in effect is said, and no failure.
                changes = tuple(change for change in self._plan.changes if change.knob != "flag:--port")
                self._plan = replace(self._plan, changes=changes)
            notes.evidence = f"process {state.main_pid}{moved}"
            return state.main_pid

    def _moved(self, config: ServiceConfig) -> str:
        """What to say of a start that had to take another port than the planned one, and may; empty for every other start."""
        if config.chosen_port is None or config.loaded != config.command:
            return ""
        knob, command = find_knob("flag:--port"), self._plan.command
        if set_flag(command, knob, str(config.chosen_port)) != config.loaded or config.loaded == command:
            return ""
        return f" on port {config.chosen_port}, since {flag_value(command, knob).text} is another program's"

    async def _died(self) -> None:
        # The last words may come a moment after the end.
        await asyncio.sleep(0.3)
        service, invocation = self._session.service, self._operation.invocation_id
        state = await self._patience.ask(service.state)
        lines = await self._patience.ask(lambda: start_lines(service, invocation))
        said, shown = last_words(lines, StartLog().add_all(lines))
        reason = f"the process died at once ({how_it_ended(state)})"
        raise StageFailed(Verdict.PROCESS_DIED, f"{reason}: {said}" if said else reason, shown)

    def _check_early(self, log: StartLog) -> None:
        """Find what is wrong already. A second line of the drafter's start may correct the first: forks name their runner
        DFLASH, and a tree worker says afterwards that there is a tree, how large it is and over which block."""
        found = log.values.get("algorithm")
        if found is None:
            return
        asked = flag_value(self._plan.command, KNOBS["algorithm"]).value or PLAIN
        evidence = StartEvidence(log, None, None, self._plan.drafter)
        for change in self._plan.changes:
            knob = find_knob(change.knob)
            open_yet = knob.name == "algorithm" or (found.text != asked and knob.name in _SAID_BY_TREE_WORKERS)
            if open_yet or Source.LOG not in knob.evidence or not any(key in log.values for key in knob.log_keys):
                continue
            proof = prove(knob, change.new, evidence)
            if proof.proof is Proof.OTHER:
                lines = self._follower.lines if self._follower is not None else ()
                raise wrong_value(proof, lines)

    async def _prompt(self) -> None:
        async with self._operation.stage("prompt", Verdict.BAD_ANSWER) as notes:
            answer = await self._patience.ask_engine(self._answer)
            if stranger := await self._patience.ask(self._answered_by_another):
                raise StageFailed(Verdict.BAD_ANSWER, stranger)
            notes.evidence = f"{answer.completion_tokens} tokens in {answer.seconds:.1f} s"
            if answer.verify_calls:
                notes.evidence += f", {answer.verify_calls} verifies"

    async def _answer(self) -> ProbeAnswer:
        return await (await self._session.engine()).generate(timeout=self._timeouts.prompt)

    async def _answered_by_another(self) -> str:
        """Why the answer is not this start's, in words; empty when it is, or when that cannot be seen."""
        session = self._session
        state, config = await session.service.state(), await session.service.configuration()
        return "" if state.main_pid is None else await answered_by_another(session.transport, config, state.main_pid)

    async def _truth(self, follower: StartFollower, argv: Sequence[str]) -> None:
        async with self._operation.stage("truth", Verdict.NOT_READY) as notes:
            state = await self._patience.ask(self._session.service.state)
            if state.invocation_id != self._operation.invocation_id or state.state is not RunState.RUNNING:
                raise StageFailed(Verdict.PROCESS_DIED, "the engine was ready and then ended; see the log of this start")
            evidence = StartEvidence(follower.log, follower.server, argv or None, self._plan.drafter)
            self.proofs = tuple(prove(find_knob(change.knob), change.new, evidence) for change in self._plan.changes)
            if unseen := follower.log_problem or follower.unseen or redirected_words(self._plan.command):
                # Evidence that cannot be seen is not missing: the value is unknown.
                self.proofs = tuple(proof.unseen(unseen) for proof in self.proofs)
            judge(self.proofs, follower.lines)
            notes.evidence = await self._table()

    async def _table(self) -> str:
        snapshot = await self._session.watcher.refresh()
        rows = drift_items(truth_table(snapshot))
        proven = "; ".join(filter(None, (*(proof.words for proof in self.proofs), self.unproven)))
        if not rows:
            return proven or "no drift"
        return "; ".join(filter(None, (proven, f"drift elsewhere: {', '.join(row.title.lower() for row in rows)}")))
