"""Paths as people write them on a command line."""

from __future__ import annotations

from pathlib import Path


def expanded(text: str) -> Path:
    """``text`` with ``~`` and ``~NAME`` in their home folders' places.

    Where there is no such user, or no home that is known, it is the path as it stands, which then is not there:
    ``Path.expanduser`` raises for it.
    """
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path
