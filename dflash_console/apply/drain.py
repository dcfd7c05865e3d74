"""Waiting for running requests to end before a stop."""

from __future__ import annotations

import asyncio
import time

from ..evidence.metrics import parse_metrics
from ..evidence.server import parse_loads
from ..hosts.http import EngineHttp, EngineHttpError
from ..hosts.transport import HostError
from ..session import HostSession
from .answering import require_own_answers
from .operation import StageNotes
from .records import StageFailed, Verdict


async def running_requests(http: EngineHttp) -> int | None:
    """Requests that are decoded or queued now; ``None`` when the engine does not say. Raises: EngineHttpError."""
    loads = parse_loads(await http.loads())
    if loads.running is not None:
        return loads.running + (loads.queued or 0)
    try:
        sample = parse_metrics(await http.metrics())
    except EngineHttpError:
        return None
    return None if sample.running is None else sample.running + (sample.queued or 0)


async def drain(session: HostSession, notes: StageNotes, timeout: float) -> None:
    """Wait until no request runs.

    Raises:
        StageFailed: they cannot be counted, or some still run when the time is up.
    """
    until = time.monotonic() + timeout
    try:
        # The requests of another program on the port are none of this engine's.
        await require_own_answers(session)
    except HostError as error:
        raise StageFailed(Verdict.NOT_READY, f"running requests cannot be counted, so not drained: {error}") from error
    while True:
        try:
            running = await running_requests(await session.engine())
        except HostError as error:
            raise StageFailed(Verdict.NOT_READY, f"running requests cannot be counted, so not drained: {error}") from error
        if running is None:
            raise StageFailed(Verdict.NOT_READY, "this engine does not say how many requests run, so they cannot be drained")
        if running == 0:
            notes.evidence = "no request runs"
            return
        if time.monotonic() >= until:
            raise StageFailed(Verdict.TIMED_OUT, f"{running} requests still run after {timeout:g} s; nothing was restarted")
        notes.move(f"{running} requests run")
        await asyncio.sleep(0.25)
