"""Applying a plan to the running engine: post, and prove it by the change's own log line, the engine's report, and a prompt."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from ..evidence.engine_log import HotChange, StartLog
from ..evidence.journal import LogLine
from ..evidence.server import ServerInfo, in_effect_reading, parse_server_info
from ..hosts.http import EngineHttp, EngineHttpError, HttpFailure
from ..hosts.service import RunState
from ..hosts.transport import HostError
from ..knobs import KNOBS, Knob, KnobError, Value, find_knob, same_value, show_value
from ..plan import Plan
from ..proof import KnobProof, StartEvidence, prove, quiet_log
from ..session import HostSession
from .answering import require_own_answers
from .confirmed import ConfirmedStore
from .journal import OperationJournal
from .judge import judge, shown_text
from .operation import Operation
from .records import StageFailed, Timeouts, Verdict

STAGES = ("checks", "change", "log line", "server", "prompt", "write", "truth")
REFUSAL_S = 2.0
"""Seconds to wait for the line that says why a change was refused."""
PROMPT_TOKENS = 2
"""One token from prefill and one from a verify under the new settings; a hot change is to be confirmed within two seconds."""


class HotApply:
    """The steps of one hot change."""

    def __init__(
        self, session: HostSession, plan: Plan, operation: Operation, journal: OperationJournal, timeouts: Timeouts
    ) -> None:
        self._session = session
        self._plan = plan
        self._operation = operation
        self._journal = journal
        self._timeouts = timeouts
        self.proofs: tuple[KnobProof, ...] = ()
        self.changed = False
        """Something was posted that the engine may have taken."""
        self.written = False

    async def run(self, http: EngineHttp) -> None:
        """All stages after the checks.

        Raises:
            StageFailed
        """
        cursor = await self._session.service.cursor()
        before = await self._change(http, cursor)
        log, lines = await self._log_line(cursor, before)
        server = await self._server(http)
        async with self._operation.stage("prompt", Verdict.BAD_ANSWER) as notes:
            answer = await http.generate(max_tokens=PROMPT_TOKENS, timeout=self._timeouts.prompt)
            await require_own_answers(self._session)
            notes.evidence = f"{answer.completion_tokens} tokens in {answer.seconds:.2f} s"
        await self._write()
        async with self._operation.stage("truth", Verdict.NOT_READY) as notes:
            state = await self._session.service.state()
            if state.invocation_id != self._plan.invocation_id or state.state is not RunState.RUNNING:
                raise StageFailed(Verdict.PROCESS_DIED, "the engine was restarted or ended during the change; see its log")
            evidence = StartEvidence(log, server, None, self._plan.drafter)
            self.proofs = tuple(prove(find_knob(change.knob), change.new, evidence) for change in self._plan.changes)
            judge(self.proofs, lines)
            notes.evidence = "; ".join(proof.words for proof in self.proofs)

    async def _change(self, http: EngineHttp, cursor: str) -> ServerInfo:
        """Post the values; what the engine reported before. ``cursor``: the end of the log before that."""
        values = self._plan.hot_values
        async with self._operation.stage("change", Verdict.REFUSED) as notes:
            await require_own_answers(self._session)
            before = parse_server_info(await http.server_info())
            self.changed = True
            answers = await self._post(http, values)
            refused = [str(rank) for rank, answer in enumerate(answers) if not answer]
            if refused:
                wanted = _posted(self._plan)
                who = f"rank {', '.join(refused)} of {len(answers)}" if len(answers) > 1 else "the engine"
                # Where some ranks took it and others did not, something was changed.
                verdict = Verdict.REFUSED if len(refused) == len(answers) else Verdict.OTHER_VALUE
                why = await self._refusal(cursor)
                if verdict is Verdict.REFUSED:
                    self.changed = not await self._as_before(http, before)
                raise StageFailed(verdict, f"{who} refused {wanted}" + (f": {why}" if why else "; see its log for the reason"))
            notes.evidence = _posted(self._plan)
            return before

    async def _refusal(self, cursor: str) -> str:
        """Why the engine refused, in the words of its log; empty when no such line comes soon."""
        with contextlib.suppress(TimeoutError, HostError):
            async with asyncio.timeout(min(REFUSAL_S, self._timeouts.hot)):
                log = StartLog()
                async for line in self._session.service.follow(cursor=cursor, invocation_id=self._plan.invocation_id):
                    log = log.add(line)
                    for point in log.hot_changes:
                        if not point.change.accepted and point.change.reason:
                            return shown_text(point.change.reason)
        return ""

    async def _as_before(self, http: EngineHttp, before: ServerInfo) -> bool:
        """Whether the engine says of every setting what it said before."""
        try:
            now = parse_server_info(await http.server_info())
        except EngineHttpError:
            return False
        knobs = [find_knob(change.knob) for change in self._plan.changes]
        return not now.problem and all(
            same_value(in_effect_reading(now, knob).value, in_effect_reading(before, knob).value) for knob in knobs
        )

    async def _post(self, http: EngineHttp, values: Mapping[str, float]) -> tuple[bool, ...]:
        """The answer of each rank. A question that was sent and not answered may have been heard, so that is no refusal."""
        try:
            return await http.set_internal_state(values)
        except EngineHttpError as error:
            if error.failure in (HttpFailure.SILENT, HttpFailure.BROKEN):
                raise StageFailed(Verdict.NOT_READY, f"{error}: whether the engine took the change is not known") from error
            raise

    async def _log_line(self, cursor: str, before: ServerInfo) -> tuple[StartLog | None, list[LogLine]]:
        """Wait for the line of every setting that really changes."""
        expected = {knob.hot_name: knob for knob in self._changing(before) if knob.hot_name is not None}
        if not expected or quiet_log(await self._argv()):
            self._operation.skip("log line", "--log-level hides it" if expected else "the values are in effect already")
            return None, []
        log, lines = StartLog(), []
        async with self._operation.stage("log line", Verdict.NO_LINE) as notes:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timeouts.hot):
                    async for line in self._session.service.follow(cursor=cursor, invocation_id=self._plan.invocation_id):
                        log = log.add(line)
                        lines.append(line)
                        for point in log.hot_changes[-1:]:
                            self._hear(point.change, expected, line)
                        if not expected:
                            notes.evidence, notes.line = shown_text(line.text), line.number
                            return log, lines
            names = ", ".join(expected)
            raise StageFailed(
                Verdict.NO_LINE, f"the engine said yes, but printed no line for the change of {names}", tuple(lines[-4:])
            )

    def _hear(self, change: HotChange, expected: dict[str, Knob], line: LogLine) -> None:
        """Cross off a setting whose line says the posted value.

        Raises:
            StageFailed: the line says that the engine refused, though it may have taken the value.
        """
        if change.name not in expected:
            return
        if not change.accepted:
            reason = f"the engine said yes, and its log no: {shown_text(line.text)}"
            raise StageFailed(Verdict.OTHER_VALUE, reason, (line,))
        knob = expected[change.name]
        with contextlib.suppress(KnobError):
            if knob.hot_value(knob.parse(change.new)) == self._plan.hot_values.get(change.name):
                del expected[change.name]

    def _changing(self, before: ServerInfo) -> list[Knob]:
        found = []
        for change in self._plan.changes:
            knob = find_knob(change.knob)
            if not same_value(in_effect_reading(before, knob).value, change.new):
                found.append(knob)
        return found

    async def _argv(self) -> tuple[str, ...]:
        config = await self._session.service.configuration()
        return config.loaded or config.command

    async def _server(self, http: EngineHttp) -> ServerInfo:
        """Wait until every rank reports every value, and return the report as it is when the time is up."""
        async with self._operation.stage("server", Verdict.NOT_READY) as notes:
            until = asyncio.get_running_loop().time() + self._timeouts.hot
            while True:
                info = parse_server_info(await http.server_info())
                if info.problem:
                    raise StageFailed(Verdict.NOT_READY, f"/server_info: {info.problem}")
                evidence = StartEvidence(None, info, None, self._plan.drafter)
                proofs = [prove(find_knob(change.knob), change.new, evidence) for change in self._plan.changes]
                wrong = [proof for proof in proofs if proof.reading is not None and not _shows(proof)]
                if not wrong:
                    ranks = f"{len(info.ranks)} ranks agree" if len(info.ranks) > 1 else "reported by the engine"
                    notes.evidence = ranks
                    return info
                if asyncio.get_running_loop().time() >= until:
                    raise StageFailed(Verdict.OTHER_VALUE, wrong[0].words)
                await asyncio.sleep(0.1)

    async def _write(self) -> None:
        """Write a confirmed change down, when that was asked for."""
        plan, service = self._plan, self._session.service
        if not plan.persist:
            self._operation.skip("write", "only the running engine was changed")
            return
        async with self._operation.stage("write", Verdict.WRITE_FAILED) as notes:
            if plan.writes:
                before, planned = await ConfirmedStore(self._session.transport, service).keep_edits(
                    self._operation.operation_id, plan.edits
                )
                self._journal.note(backup=before, planned=planned)
                await service.write(plan.edits)
                self.written = True
                await service.reload()
            notes.evidence = plan.target


def _posted(plan: Plan) -> str:
    """What is sent to the engine: ``speculative_ddtree_budget=0 (auto)``."""
    return ", ".join(f"{name}={number}" for name, number in plan.hot_numbers.items())


def _shows(proof: KnobProof) -> bool:
    return proof.reading is not None and same_value(proof.reading.value, proof.wanted)


def values_before(plan: Plan) -> dict[str, float]:
    """What to post to take a hot change back; settings whose old value is not known are left out."""
    values = {}
    for change in plan.changes:
        knob = KNOBS.get(change.knob)
        if knob is None or knob.hot_name is None or change.old is None:
            continue
        with contextlib.suppress(KnobError):
            values[knob.hot_name] = knob.hot_value(change.old)
    return values


async def take_back(session: HostSession, values: Mapping[str, float], wanted: Mapping[str, Value]) -> str:
    """Post old values and check that every rank reports them; what was seen, in words.

    Raises:
        HostError: the engine refused, reports something else, or is not who answers.
    """
    await require_own_answers(session)
    http = await session.engine()
    if not all(await http.set_internal_state(values)):
        raise HostError("the engine refused to take the change back")
    info = parse_server_info(await http.server_info())
    for name, value in wanted.items():
        reading = in_effect_reading(info, KNOBS[name])
        if not same_value(reading.value, value):
            raise HostError(f"{name} is {reading.text or 'unknown'} after taking the change back, not {value}")
    await http.generate(max_tokens=PROMPT_TOKENS)
    await require_own_answers(session)
    return ", ".join(f"{name} {show_value(value)}" for name, value in wanted.items())
