"""The snapshot in the making: parts as their sources are read, and the problem of each source that failed."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ..hosts.transport import HostError
from ..state import Aged, HostState
from .board import StateBoard

if TYPE_CHECKING:
    from ..hosts.http import HttpFailure

T = TypeVar("T")


class SnapshotBuilder:
    """Collects what several loops read; :meth:`publish` puts it on the board, when it differs from what was shown last."""

    def __init__(self, state: HostState) -> None:
        self.state = state
        """What is known, published or not."""
        self.problems: dict[str, str] = {}
        """Source → why it could not be read, in words."""
        self.failure: HttpFailure | None = None
        """How the newest :meth:`read` failed, where it was the engine's HTTP API that did."""
        self.board = StateBoard(state)
        self._shown = state

    @property
    def invocation(self) -> str | None:
        """Id of the start that the service manager tells of."""
        return self.state.service.value.invocation_id if self.state.service else None

    async def read(self, source: str, reading: Awaitable[T]) -> T | None:
        """The answer of one source; ``None`` when it failed, with the reason noted."""
        self.failure = None
        try:
            found = await reading
        except HostError as error:
            from ..hosts.http import EngineHttpError

            self.failure = error.failure if isinstance(error, EngineHttpError) else None
            self.problems[source] = str(error)
            return None
        self.problems.pop(source, None)
        return found

    def set(self, **parts: object) -> None:
        """Note the parts that were read; :meth:`publish` shows them. Other loops may have set others meanwhile, so only these
        are replaced."""
        # dataclasses.replace cannot check keywords that are collected; a wrong name fails the first test that polls.
        self.state = replace(self.state, **parts)  # type: ignore[arg-type]

    def publish(self) -> None:
        """Show what is known, if it is anything new."""
        if self.state.problems != self.problems:
            self.set(problems=dict(self.problems))
        if self.state != self._shown:
            self._shown = self.state
            self.board.put(self.state)


def aged(value: T) -> Aged[T]:
    """``value`` as read at this moment."""
    return Aged(value, time.monotonic())
