"""Whether the unit's own engine is who answers, asked as seldom as will do: where another does, it takes six commands."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..hosts.service import ServiceConfig, ServiceState
    from ..hosts.stranger import Stranger

AGAIN_S = 5.0
"""After a stranger was seen, or while nothing of the unit runs."""
OWN_FOR_S = 30.0
"""A process that has its port keeps it for as long as it lives, as a rule; one whose HTTP server died does not."""


class StrangerWatch:
    """Remembers the newest answer about one start."""

    def __init__(self, look: Callable[[ServiceConfig, ServiceState], Awaitable[Stranger | None]]) -> None:
        self._look = look
        self._about: tuple[object, ...] = ()
        self._until = 0.0
        self._found: Stranger | None = None

    def doubt(self) -> None:
        """Ask again the next time: nobody answered in between."""
        self._about = ()

    async def ask(self, config: ServiceConfig, service: ServiceState) -> Stranger | None:
        """Who is in the engine's place now; ``None`` = the unit's own engine, nobody, or somebody who cannot be seen."""
        about = (service.invocation_id, service.main_pid, service.state, config.command, config.loaded)
        if about != self._about or time.monotonic() >= self._until:
            self._found = await self._look(config, service)
            own = service.main_pid is not None and self._found is None
            self._about, self._until = about, time.monotonic() + (OWN_FOR_S if own else AGAIN_S)
        return self._found
