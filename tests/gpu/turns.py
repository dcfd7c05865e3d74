"""Turns between runs that share a machine: many may work beside one another, and who measures speed is alone.

An advisory lock on one file: shared by whoever starts servers or runs a part that is not timed, exclusive for a timed part. A run
holds its share from its start on, so that nothing is timed while servers of another run start.
"""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

WAIT_SECONDS = 0.2


class Turns:
    """This run's place at the file; without a file every turn is given at once."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab")
            fcntl.flock(self._file, fcntl.LOCK_SH)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def take(self, *, alone: bool, until: float) -> bool:
        """Wait for the turn; False when ``until`` (of ``time.monotonic``) comes first, or has come."""
        while time.monotonic() < until:
            if self._file is None:
                return True
            try:
                # A change of kind gives the old lock up first, so two that wait to be alone do not wait for each other.
                fcntl.flock(self._file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(WAIT_SECONDS)
        return False
