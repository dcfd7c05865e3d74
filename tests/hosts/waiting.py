"""Waiting for what a unit comes to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from dflash_console.hosts.service import RunState, ServiceState

from .conftest import Unit


async def until(check: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while not await check():
        assert time.monotonic() < limit, "it never came true"
        await asyncio.sleep(0.02)


async def settled(unit: Unit, *states: RunState) -> ServiceState:
    async def there() -> bool:
        return (await unit.service.state()).state in states

    await until(there)
    return await unit.service.state()
