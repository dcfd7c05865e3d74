"""The pace at which a host's GPUs are asked about: modest, and slower when the answer is slow or does not come.

``nvidia-smi`` takes a tenth of a second of CPU on a good day; where no process keeps the driver loaded it takes seconds, and with
a GPU that fell off the bus it hangs. It is asked by a loop of its own, so that nothing else waits for it, and never twice at
once.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from ..evidence.gpu import GpuRow
from ..hosts.gpus import NoGpuTool
from ..hosts.transport import HostError

EVERY_S = 2.0
SHARE = 0.1
"""Of the time at most this part is spent asking."""
SLOWEST_S = 60.0


class GpuPoller:
    """Asks when it is told to, and says how long to wait before the next time."""

    def __init__(self, read: Callable[[], Awaitable[tuple[GpuRow, ...]]]) -> None:
        self._read = read
        self._failures = 0
        self.pause = EVERY_S
        """Seconds to wait before the next :meth:`poll`."""

    async def poll(self) -> tuple[GpuRow, ...]:
        """The GPUs now.

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
        self.pause = min(SLOWEST_S, max(EVERY_S, (time.monotonic() - begun) / SHARE))
        return rows
