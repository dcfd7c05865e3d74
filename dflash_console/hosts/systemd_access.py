"""What a user may do with a unit, found out before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .journald_access import sees_system_journal
from .systemd_manager import Manager, bare_commands, said
from .transport import HostError

_MANAGE, _RELOAD = "org.freedesktop.systemd1.manage-units", "org.freedesktop.systemd1.reload-daemon"


@dataclass(frozen=True)
class Right:
    """One thing that may be allowed."""

    allowed: bool | None
    """``None`` = only known when it is tried."""
    how: str
    """In words: by which right, or what is missing and how to get it."""


@dataclass(frozen=True)
class Privileges:
    """What changing a unit takes."""

    read: Right
    """The unit's files."""
    write: Right
    """A drop-in beside them."""
    control: Right
    """Start, stop, restart and daemon-reload."""
    journal: Right

    def missing(self) -> tuple[str, ...]:
        """What stands in the way of a change, one sentence each."""
        return tuple(right.how for right in (self.read, self.write, self.control) if right.allowed is False)

    @property
    def unsure(self) -> tuple[str, ...]:
        """What is only known when it is tried."""
        return tuple(right.how for right in (self.read, self.write, self.control, self.journal) if right.allowed is None)


async def find_privileges(manager: Manager, unit: str, fragment: str, folder: str) -> Privileges:
    """Ask the host, changing nothing.

    Args:
        fragment: the unit file; empty when it is not known.
        folder: where the drop-in would go.

    Raises:
        HostUnreachable
    """
    look = _Look(manager, unit)
    return Privileges(await look.read(fragment), await look.write(folder), await look.control(), await look.journal())


class _Look:
    def __init__(self, manager: Manager, unit: str) -> None:
        self._manager = manager
        self._unit = unit

    async def read(self, fragment: str) -> Right:
        if not fragment or await self._holds(["test", "-r", fragment]):
            return Right(True, "the unit's files can be read")
        if (prefix := await self._prefix()) and await self._holds([*prefix, "test", "-r", fragment]):
            return Right(True, "the unit's files can be read through sudo")
        if not await self._holds([*prefix, "test", "-e", fragment]):
            return Right(True, f"{fragment} is not there, so there is nothing to read")
        return Right(False, f"{fragment} cannot be read as {await self._user()}{await self._no_sudo()}")

    async def write(self, folder: str) -> Right:
        # The nearest folder that exists: the drop-in's own may have to be made.
        script = 'd=$1; until [ -e "$d" ]; do d=$(dirname -- "$d"); done; test -w "$d"'
        writable = ["sh", "-c", script, "sh", folder]
        if await self._holds(writable):
            return Right(True, f"{folder} can be written")
        prefix = await self._prefix()
        if prefix and await self._holds([*prefix, *writable]):
            return Right(True, f"{folder} can be written through sudo")
        if prefix or (await self._manager.facts()).uid == 0:
            return Right(False, f"{folder} cannot be written even by root: the file system is read-only")
        return Right(False, f"{folder} cannot be written as {await self._user()}{await self._no_sudo()}")

    async def control(self) -> Right:
        facts = await self._manager.facts()
        if facts.elevation.possible:
            return Right(True, "systemd does what root asks" if facts.uid == 0 else "systemd does what is asked")
        for verb in bare_commands(["restart", self._unit]):
            listed = await self._holds(["sudo", "-n", "-l", "--", *verb])
            if listed and "NOPASSWD" in (await self._output(["sudo", "-n", "-l"]) or ""):
                return Right(True, f"a rule of sudo's allows {' '.join(verb)}")
        polkit = [await self._polkit(action) for action in (_MANAGE, _RELOAD)]
        if all(polkit):
            return Right(True, f"a polkit rule allows {facts.user} to manage units")
        why = f"{facts.user} is no root there, and sudo says: {facts.elevation.why_not}"
        return Right(None, f"whether polkit allows {facts.user} to restart {self._unit} is only known when it is tried ({why})")

    async def journal(self) -> Right:
        scope = ["--user"] if self._manager.scope == "user" else []
        asked = ["journalctl", "--no-pager", "--lines=1", "--quiet", *scope, "--unit", self._unit]
        done = await self._manager.transport.run(["env", "LC_ALL=C", *[word for word in asked if word != "--quiet"]])
        hint = done.stderr.decode("utf-8", "replace")
        told = "not seeing messages" in hint or "insufficient permissions" in hint
        if done.ok and not told and (scope or await sees_system_journal(self._manager.transport)):
            return Right(True, "the journal can be read")
        if (prefix := await self._prefix()) and await self._holds([*prefix, *asked]):
            return Right(True, "the journal can be read through sudo")
        return Right(
            False,
            f"{await self._user()} may not read the journal{await self._no_sudo()}; the group systemd-journal allows it",
        )

    async def _polkit(self, action: str) -> bool:
        # A user may ask about himself; details such as the unit's name only the manager itself may add.
        return await self._holds(["sh", "-c", 'exec pkcheck --action-id "$1" --process $$', "sh", action])

    async def _prefix(self) -> tuple[str, ...]:
        return (await self._manager.facts()).elevation.prefix or ()

    async def _user(self) -> str:
        return (await self._manager.facts()).user

    async def _no_sudo(self) -> str:
        why = (await self._manager.facts()).elevation.why_not
        return f", and sudo says: {why}; allow it without a password, or connect as root" if why else ""

    async def _holds(self, argv: Sequence[str]) -> bool:
        return await self._output(argv) is not None

    async def _output(self, argv: Sequence[str]) -> str | None:
        """What a command that succeeds prints; ``None`` when it fails or is not there."""
        try:
            done = await self._manager.transport.run(argv)
        except HostError as error:
            if type(error) is not HostError:
                raise
            return None
        return (done.stdout.decode("utf-8", "replace") or said(done)) if done.ok else None
