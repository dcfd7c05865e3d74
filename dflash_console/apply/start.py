"""The request for a start and what shows that it happened: another invocation, and the old process gone."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..evidence.engine_log import StartLog
from ..evidence.journal import LogLine
from ..hosts import proc
from ..hosts.service import ENDED, RunState, Service, ServiceState
from ..hosts.transport import HostError, HostFileError, HostTimeout, HostUnreachable, Transport
from .judge import shown_text
from .operation import StageNotes
from .patience import Patience
from .records import StageFailed, Timeouts, Verdict

POLL_S = 0.15
_ERROR = re.compile(r"\berror\b|Error\b|fatal|cannot|failed", re.IGNORECASE)
LAST_LINES = 6
STORED_LOG_S = 5.0
"""For reading what the service manager said; a failure is told without its words rather than late."""


@dataclass(frozen=True)
class Before:
    """The service before the restart was asked for."""

    invocation_id: str | None
    main: proc.ProcessId | None
    """``None`` = nothing ran, or this user may not see the process."""
    cursor: str
    """The end of the log; empty when the log cannot be read."""
    running: bool = False
    log_problem: str = ""
    """Why the log cannot be read."""
    first_process: proc.ProcessId | None = None
    """Of the host: another one after a reboot. ``None`` = not to be seen."""


async def look_before(transport: Transport, service: Service) -> Before:
    """Note what a restart must change. Raises: HostError."""
    state = await service.state()
    main = await identify(transport, state.main_pid) if state.main_pid is not None else None
    running = main is not None or state.state not in (*ENDED, RunState.UNKNOWN)
    first = await identify(transport, 1)
    try:
        return Before(state.invocation_id, main, await service.cursor(), running, first_process=first)
    except HostUnreachable:
        raise
    except HostError as error:
        # Other evidence may do without the log; what only the log can prove is then not confirmable.
        return Before(state.invocation_id, main, "", running, str(error), first)


async def identify(transport: Transport, pid: int) -> proc.ProcessId | None:
    """The identity of a process on the host; ``None`` when it is gone."""
    try:
        stat = proc.parse_stat(await transport.read(f"/proc/{pid}/stat"))
    except HostFileError:
        return None
    return None if stat is None or stat.gone else proc.ProcessId(stat.pid, stat.ticks)


async def rebooted(transport: Transport, before: Before) -> bool:
    """Whether the host was started anew since. Not by its boot id: a container has its machine's. Raises: HostError."""
    return before.first_process is not None and await identify(transport, 1) != before.first_process


async def ask_for_restart(
    service: Service, before: Before, patience: Patience, timeout: float, *, another_port: bool = False
) -> None:
    """Ask for a restart, or for a start where nothing runs. A request that a cut link swallowed is sent again.

    Args:
        another_port: as for :meth:`Service.start`.

    Raises:
        StageFailed: the manager refused; what it said is quoted.
        LinkLost
    """
    begun = time.monotonic()
    while True:
        try:
            await (service.restart() if before.running else service.start(another_port=another_port))
            return
        except HostUnreachable as error:
            await patience.wait(str(error), begun, begun + timeout)
            state = await patience.ask(service.state, until=begun + timeout)
            if _moves(state, before):
                return
        except HostError as error:
            if isinstance(error, HostTimeout) and await _under_way(service, before):
                return
            raise StageFailed(Verdict.NO_RESTART, str(error), await manager_lines(service, before)) from error


async def _under_way(service: Service, before: Before) -> bool:
    """Whether a request that was not answered in time was heard all the same."""
    with contextlib.suppress(HostError):
        return _moves(await service.state(), before)
    return False


def _moves(state: ServiceState, before: Before) -> bool:
    return state.state in (RunState.STARTING, RunState.STOPPING) or state.invocation_id != before.invocation_id


async def await_restart(
    transport: Transport, service: Service, before: Before, timeouts: Timeouts, patience: Patience, notes: StageNotes
) -> ServiceState:
    """Wait until the manager shows another invocation *and* the old process is gone.

    Raises:
        StageFailed: neither happened in time; what the manager said since is quoted.
        LinkLost
    """
    begun = time.monotonic()
    until = begun + timeouts.restart
    while True:
        state = await patience.ask(service.state, until=until)
        renewed = state.invocation_id is not None and state.invocation_id != before.invocation_id
        gone = before.main is None or await _gone(transport, before.main, patience, until)
        if renewed and gone and state.state in (RunState.RUNNING, *ENDED):
            return state
        # A long stop (TimeoutStopSec=) and a command before the start (ExecStartPre=) are under way: no refusal.
        moving = state.state is RunState.STOPPING or (renewed and gone and state.state is RunState.STARTING)
        if moving and timeouts.ready > timeouts.restart:
            until = max(until, min(time.monotonic() + timeouts.restart, begun + timeouts.ready))
            notes.move("the old process is being stopped" if state.state is RunState.STOPPING else "the unit is starting")
        if time.monotonic() >= until:
            break
        await asyncio.sleep(POLL_S / 2)
    raise StageFailed(
        Verdict.NO_RESTART, *_no_restart(state, before, renewed=renewed, gone=gone, said=await manager_lines(service, before))
    )


async def _gone(transport: Transport, main: proc.ProcessId, patience: Patience, until: float) -> bool:
    return await patience.ask(lambda: identify(transport, main.pid), until=until) != main


def _no_restart(
    state: ServiceState, before: Before, *, renewed: bool, gone: bool, said: tuple[LogLine, ...]
) -> tuple[str, tuple[LogLine, ...]]:
    if not renewed:
        shown = (before.invocation_id or "none")[:8]
        reason = f"the invocation id did not change (it is still {shown}…): no restart happened"
        if state.state is RunState.STOPPING:
            reason += ", the old process is still being stopped"
    elif not gone:
        assert before.main is not None
        reason = (
            f"a new start was recorded, but the old process {before.main.pid} still runs: nothing of the new one can be trusted"
        )
    else:
        reason = f"a new start was recorded, and the unit is {state.state.value}: its main process does not run yet"
    if state.detail:
        reason += f"; {state.detail}"
    if said:
        reason += f"; the service manager says: {shown_text(said[-1].text)}"
    return reason, said


async def manager_lines(service: Service, before: Before) -> tuple[LogLine, ...]:
    """What the service manager said since ``before``. Cursors are not compared: those of a journal have no order as texts."""
    said: deque[LogLine] = deque(maxlen=LAST_LINES)
    if not before.log_problem:
        with contextlib.suppress(HostError, TimeoutError):
            async with asyncio.timeout(STORED_LOG_S):
                async for batch in service.batches(cursor=before.cursor or None):
                    said.extend(line for line in batch if line.origin == "manager")
                    if not batch:
                        break
    return tuple(said)


async def start_lines(service: Service, invocation_id: str | None, *, limit: int = 400) -> tuple[LogLine, ...]:
    """The newest lines of one start; none when the log cannot be read. Raises: HostUnreachable."""
    try:
        return await service.lines(invocation_id=invocation_id, limit=limit)
    except HostUnreachable:
        raise
    except HostError:
        return ()


def how_it_ended(state: ServiceState) -> str:
    """The end of a process, in words."""
    if state.exit_status is not None:
        return f"status {state.exit_status}"
    return state.detail or state.result or "unknown"


def last_words(lines: Sequence[LogLine], log: StartLog) -> tuple[str, tuple[LogLine, ...]]:
    """What a start that ended said of the reason, and the lines to show: the exception that was raised, else the last line that
    speaks of an error, else the last line (which alone may be a farewell)."""
    engine = [line for line in lines if line.origin == "engine" and line.text.strip()]
    engine = engine or [line for line in lines if line.origin == "manager"]
    errors = [line for line in engine if _ERROR.search(line.text)]
    said = log.raised or (errors or engine or [LogLine("")])[-1].text
    shown = engine[-LAST_LINES:]
    if errors and errors[-1] not in shown:
        shown = [errors[-1], *shown[1:]]
    return shown_text(said), tuple(shown)
