"""Start, stop and restart of a unit as jobs of systemd's, followed to their end.

``systemctl --no-block`` says only that a job was queued. A start happened when the unit has another invocation id; a job that is
gone while the id is still the old one was refused, and the unit's properties say why.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping

from .service import RunState
from .systemd_manager import Manager
from .systemd_state import service_state
from .transport import HostError

POLL_S = 0.1


class UnitJobs:
    """The verbs of one unit."""

    def __init__(self, manager: Manager, unit: str, *, job_timeout: float) -> None:
        """``job_timeout``: seconds after which a start's job is no longer followed here; it goes on."""
        self._manager = manager
        self._unit = unit
        self._job_timeout = job_timeout

    async def start(self) -> None:
        """Ask for a start; returns when it happened, or while its job still waits after ``job_timeout``.

        Raises:
            HostError: it is not allowed, or systemd refused it.
        """
        await self._begin("start")

    async def restart(self) -> None:
        """As :meth:`start`."""
        await self._begin("restart")

    async def stop(self, *, timeout: float) -> None:
        """Ask for a stop and wait until it is done. Raises: HostError."""
        await self._manager.command("--no-block", "stop", "--", self._unit)
        until = time.monotonic() + timeout
        while True:
            shown = await self._manager.show(self._unit)
            # systemd clears the process id when the process is gone, also of a unit that failed.
            if not shown.get("Job") and shown.get("ActiveState") in ("inactive", "failed"):
                return
            if time.monotonic() >= until:
                raise HostError(
                    f"{self._unit} did not stop within {timeout:g} s: it is {shown.get('ActiveState')}, "
                    f"process {shown.get('MainPID')}; systemd kills it at the unit's TimeoutStopSec="
                )
            await asyncio.sleep(POLL_S)

    async def _begin(self, verb: str) -> None:
        before = await self._manager.show(self._unit)
        if before.get("ActiveState") == "failed" or before.get("SubState", "").startswith("auto-restart"):
            # Failed starts count against the unit's start limit; someone who asks for a start now means it to be tried.
            with contextlib.suppress(HostError):
                await self._manager.command("reset-failed", "--", self._unit)
        await self._manager.command("--no-block", verb, "--", self._unit)
        until = time.monotonic() + self._job_timeout
        while time.monotonic() < until:
            shown = await self._manager.show(self._unit)
            if shown.get("InvocationID") and shown.get("InvocationID") != before.get("InvocationID"):
                return
            if not shown.get("Job"):
                raise HostError(self._refused(verb, before, shown))
            await asyncio.sleep(POLL_S)

    def _refused(self, verb: str, before: Mapping[str, str], shown: Mapping[str, str]) -> str:
        state = service_state(self._unit, shown)
        if verb == "start" and before.get("ActiveState") in ("active", "reloading"):
            return f"{self._unit} runs already (process {before.get('MainPID')}): nothing was started"
        why = state.detail
        if not why:
            why = (
                "another job took its place"
                if state.state is RunState.RUNNING
                else "it ended at once, a unit that it needs failed, or another job took its place; the journal tells"
            )
        return f"systemd did not {verb} {self._unit}: {why}"
