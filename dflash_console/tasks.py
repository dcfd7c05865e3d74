"""Work that goes on beside its owner."""

from __future__ import annotations

import asyncio
import contextlib


async def end_task(task: asyncio.Task[None] | None) -> None:
    """Cancel a task, if there is one, and wait until it has ended. An error that it ended with before is raised here."""
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
