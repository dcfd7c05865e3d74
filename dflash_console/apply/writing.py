"""Writing the files of a change across a link that may be cut: what was written before the cut is looked at, not guessed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from ..evidence.file_edits import FileEdit
from ..hosts.service import Service
from ..hosts.transport import HostFileError, HostUnreachable
from .patience import Patience


async def texts_now(service: Service, paths: Iterable[str]) -> dict[str, str | None]:
    """The texts of some files of the configuration. Raises: HostError: one is there and cannot be read."""
    found: dict[str, str | None] = {}
    for path in paths:
        try:
            found[path] = (await service.read(path)).decode("utf-8", "replace")
        except HostFileError as error:
            if not error.missing:
                raise
            found[path] = None
    return found


async def write_edits(service: Service, edits: Sequence[FileEdit], patience: Patience) -> None:
    """Write each file. After a cut, what was written before it is found out, and the rest is written.

    Raises:
        HostError: as :meth:`Service.write`.
        LinkLost: which files were written is not known.
    """
    begun, left = time.monotonic(), tuple(edits)
    while left:
        try:
            await service.write(left)
            return
        except HostUnreachable as error:
            await patience.wait(str(error), begun, begun + patience.limit)
            now = await patience.ask(lambda: texts_now(service, [edit.path for edit in edits]))
            left = tuple(edit for edit in edits if now[edit.path] != edit.new)
