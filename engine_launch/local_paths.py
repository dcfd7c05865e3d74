"""Paths as people write them on a command line."""

from __future__ import annotations

import os
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


def unreachable(path: Path) -> str:
    """Why nothing can be found out about a path (rights, a name that is too long), in words; empty where it is there, and where
    there is nothing. ``Path.exists`` and its like raise for it."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


def is_folder(path: Path) -> bool:
    """Whether it is known to be a folder."""
    return os.path.isdir(path)


def is_file(path: Path) -> bool:
    """Whether it is known to be a file."""
    return os.path.isfile(path)
