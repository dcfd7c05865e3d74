"""How a command ends: its exit code, and the one sentence when it could not do what was asked."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What scripts test for."""

    FINE = 0
    FAILED = 1
    """It could not be done: no host, no server, an error on the way."""
    USAGE = 2
    """The command line asks for something that makes no sense, or leaves a choice open."""
    DRIFT = 3
    """Done; the sources disagree about the configuration."""
    NOT_CONFIRMED = 4
    """A change was made and is not confirmed, or it was rolled back."""


class CommandError(Exception):
    """The command cannot go on; the message is one sentence: what, why and what to do."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


class UsageError(CommandError):
    """The command line itself is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.USAGE)
