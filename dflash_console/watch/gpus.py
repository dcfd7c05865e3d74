"""The pace at which a host's GPUs are asked about: modest, and slower when the answer is slow or does not come.

``nvidia-smi`` takes a tenth of a second of CPU on a good day; where no process keeps the driver loaded it takes seconds, and with
a GPU that fell off the bus it hangs. It is asked by a loop of its own, so that nothing else waits for it, and never twice at
once.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..evidence.gpu import GpuRow
from ..evidence.gpu_holders import GpuHolder
from ..hosts.gpus import NoGpuTool
from ..hosts.transport import HostError

EVERY_S = 2.0
HOLDERS_EVERY_S = 10.0
"""Processes come and go seldom, and asking whose they are takes four commands more."""
SHARE = 0.1
"""Of the time at most this part is spent asking."""
SLOWEST_S = 60.0


@dataclass(frozen=True)
class GpuLook:
    """What one look saw."""

    rows: tuple[GpuRow, ...]
    holders: tuple[GpuHolder, ...] | None
    """``None``: not asked this time, or nobody's yet."""
    problem: str = ""
    """Why the processes cannot be seen, though the GPUs can."""


class GpuPoller:
    """Asks when it is told to, and says how long to wait before the next time."""

    def __init__(
        self,
        read: Callable[[], Awaitable[tuple[GpuRow, ...]]],
        holders: Callable[[], Awaitable[tuple[GpuHolder, ...] | None]] | None = None,
        take: Callable[[tuple[GpuRow, ...]], None] = lambda rows: None,
    ) -> None:
        """
        Args:
            take: is given the GPUs at once; the second question, whose processes they have, may hang.
        """
        self._read = read
        self._take = take
        self._holders = holders
        self._holders_after = 0.0
        self._failures = 0
        self.pause = EVERY_S
        """Seconds to wait before the next :meth:`poll`."""

    async def poll(self) -> GpuLook:
        """The GPUs now, and now and then who holds their memory.

        Raises:
            NoGpuTool, HostError: why they are not known, in words.
        """
        begun = time.monotonic()
        try:
            rows = await self._read()
        except NoGpuTool:
            # It may be installed while the console is open; no haste.
            self.pause = SLOWEST_S
            raise
        except HostError:
            self._failures += 1
            self.pause = min(SLOWEST_S, EVERY_S * 2**self._failures)
            raise
        self._failures = 0
        self.pause = self._pause_after(begun)
        self._take(rows)
        holders, problem = None, ""
        try:
            holders = await self._ask_holders(begun) if rows else None
        except HostError as error:
            problem = str(error)
        self.pause = self._pause_after(begun)
        return GpuLook(rows, holders, problem)

    @staticmethod
    def _pause_after(begun: float) -> float:
        return min(SLOWEST_S, max(EVERY_S, (time.monotonic() - begun) / SHARE))

    async def _ask_holders(self, now: float) -> tuple[GpuHolder, ...] | None:
        if self._holders is None or now < self._holders_after:
            return None
        found = await self._holders()
        if found is not None:
            self._holders_after = now + HOLDERS_EVERY_S
        return found
