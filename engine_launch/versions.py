"""Versions of installed packages."""

from __future__ import annotations

import importlib.metadata

UNKNOWN = "version unknown"
"""In the place of the number where Python finds a package by its folder alone: a clone on PYTHONPATH notes no version."""


def version_of(distribution: str) -> str:
    """The installed version, or :data:`UNKNOWN`."""
    try:
        found: str | None = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return UNKNOWN
    return found or UNKNOWN
