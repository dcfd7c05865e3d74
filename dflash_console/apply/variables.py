"""Environment variables that a restart changed beside what it confirms: they came with it, and no line of its log tells them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..hosts.transport import HostFileError, Transport


@dataclass(frozen=True)
class Variables:
    """What an engine was started with. Values are compared and never shown."""

    given: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By the configuration as it is written."""
    process: Mapping[str, str] | None = field(default=None, repr=False)
    """Of the main process; ``None`` = this user may not see it, or nothing ran."""


async def environment_of(transport: Transport, pid: int) -> Mapping[str, str] | None:
    """The variables that a process was started with; ``None`` where they cannot be read. Raises: HostUnreachable."""
    try:
        data = await transport.read(f"/proc/{pid}/environ")
    except HostFileError:
        return None
    words = (item.decode("utf-8", "surrogateescape").partition("=") for item in data.split(b"\0") if item)
    return {name: value for name, _, value in words} or None


def changed_variables(before: Variables, after: Variables) -> tuple[str, ...]:
    """The configuration's variables that the new start was given another value of than the one before, by name.

    Two processes tell it, for the file may have been changed by hand since the earlier start; where one of them cannot be seen,
    the configuration before and after the change does. What a start has of its own (its invocation id, the sockets of its log)
    is in no configuration.
    """
    names = {*before.given, *after.given}
    seen = before.process is not None and after.process is not None
    old, new = (before.process, after.process) if seen else (before.given, after.given)
    assert old is not None
    assert new is not None
    return tuple(sorted(name for name in names if old.get(name) != new.get(name)))


def unproven_words(names: tuple[str, ...]) -> str:
    """``not proven: environment variable KEPT, changed by this start: no line of its log tells it``; empty for no names."""
    if not names:
        return ""
    several = len(names) > 1
    said = f"environment variable{'s' if several else ''} {', '.join(names)}, changed by this start"
    return f"not proven: {said}: no line of its log tells {'them' if several else 'it'}"
