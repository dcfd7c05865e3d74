"""The newest snapshot and those who want to see it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from ..state import HostState

OnState = Callable[[HostState], None]


class StateBoard:
    """Holds one :class:`HostState`; every change is a new snapshot with a higher revision."""

    def __init__(self, state: HostState) -> None:
        self._state = state
        self._callbacks: list[OnState] = []
        self._waiting: set[asyncio.Event] = set()

    @property
    def state(self) -> HostState:
        return self._state

    def put(self, state: HostState) -> None:
        """Publish ``state`` with the next revision."""
        self._state = replace(state, revision=self._state.revision + 1)
        for event in self._waiting:
            event.set()
        for callback in tuple(self._callbacks):
            callback(self._state)

    def subscribe(self, callback: OnState) -> Callable[[], None]:
        """Call ``callback`` with every snapshot from now on, in the event loop; the answer ends that."""
        self._callbacks.append(callback)

        def unsubscribe() -> None:
            with contextlib.suppress(ValueError):
                self._callbacks.remove(callback)

        return unsubscribe

    async def states(self) -> AsyncIterator[HostState]:
        """The snapshot now, then each newer one. A slow reader misses the snapshots between and gets the newest."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            while True:
                event.clear()
                yield self._state
                await event.wait()
        finally:
            self._waiting.discard(event)
