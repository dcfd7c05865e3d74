"""Running ``journalctl`` on a host, as this user or through sudo, and saying in words what it cannot read.

A user outside the groups that may read the journal is told *nothing* by it, with exit status 0 and a hint on standard error:
that is not an empty log, and is never taken for one.
"""

from __future__ import annotations

from ..evidence.journal import LogLine, parse_entry
from ..evidence.journal_cursor import parse_cursor
from .journald_query import JournalQuery, Scope, journalctl
from .systemd_manager import said
from .transport import Completed, HostError, Transport

_SUDO = ("sudo", "-n")
# 1 = there is one and it cannot be read, 2 = none is to be seen.
_READABLE = """
for f in /var/log/journal/*/system.journal /run/log/journal/*/system.journal; do
  [ ! -e "$f" ] || exec test -r "$f"
done
exit 2
"""
_TIMEOUT_S = 60.0
"""A first look into a journal of gigabytes on a slow disk takes its time."""


class JournalAccess:
    """Asks for single entries, and knows which command may read the journal."""

    def __init__(self, transport: Transport, unit: str, scope: Scope, *, sudo: bool) -> None:
        self._transport = transport
        self._unit = unit
        self._scope: Scope = scope
        self._may_sudo = sudo and scope == "system"
        self._prefix: tuple[str, ...] | None = None
        self._query: JournalQuery | None = None
        self.namespace = ""
        """A journal to be read beside the host's own."""

    async def query(self) -> JournalQuery:
        """The unit's matches. Raises: HostError."""
        if self._query is None:
            uid = 0
            if self._scope == "user":
                done = await self._transport.run(["id", "-u"])
                said = done.stdout.strip()
                if not said.isdigit():
                    raise HostError(f"the user's number on {self._transport.name} is not known: id -u said nothing of use")
                uid = int(said)
            self._query = JournalQuery(self._unit, self._scope, uid)
        return self._query

    async def command(self, *matches: str, cursor: str = "", newest: int | None = None, follow: bool = False) -> tuple[str, ...]:
        """The whole command, which may read the journal. Raises: HostError."""
        if self._prefix is None:
            await self._try((await self.query()).matches())
        return (*(self._prefix or ()), *self._journalctl(*matches, cursor=cursor, newest=newest, follow=follow))

    async def last(self, *matches: str) -> LogLine | None:
        """The newest entry that matches, by its first line; ``None`` when there is none. Raises: HostError."""
        return _entry(await self._ask(self._journalctl(*matches, newest=1)))

    async def first(self, *matches: str) -> LogLine | None:
        """The oldest entry that matches, by its first line; ``None`` when there is none. Raises: HostError."""
        # journalctl itself gives the first entries from a cursor only.
        return _entry(await self._ask(self._journalctl(*matches), first=True))

    async def has(self, cursor: str) -> bool:
        """Whether the entry at ``cursor`` is still stored. Raises: HostError."""
        found = _entry(await self._ask(self._journalctl(cursor=cursor, newest=1)))
        here, asked = parse_cursor(found.cursor if found is not None else ""), parse_cursor(cursor)
        return here is not None and asked is not None and here.same(asked)

    def _journalctl(self, *matches: str, cursor: str = "", newest: int | None = None, follow: bool = False) -> tuple[str, ...]:
        return journalctl(*matches, cursor=cursor, newest=newest, follow=follow, namespace=self.namespace)

    async def _ask(self, command: tuple[str, ...], *, first: bool = False) -> bytes:
        if self._prefix is None:
            await self._try((await self.query()).matches())
        cut = ("sh", "-c", '"$@" | head -n 1', "sh") if first else ()
        done = await self._transport.run([*cut, *(self._prefix or ()), *command], timeout=_TIMEOUT_S)
        if not done.ok:
            raise HostError(f"the journal on {self._transport.name} could not be read: {said(done)}")
        return done.stdout

    async def _try(self, matches: tuple[str, ...]) -> None:
        """Find out who may read the journal; the question is one that is asked anyway, so it warms the host's cache."""
        probe = journalctl(*matches, newest=1)
        done = await self._transport.run(probe, timeout=_TIMEOUT_S)
        # A user who has a journal of his own (one use of sudo makes it) is told nothing, not even the hint.
        silent = (
            self._scope == "system" and done.ok and not done.stdout.strip() and not await sees_system_journal(self._transport)
        )
        if not silent and not _denied(done, self._scope):
            if not done.ok:
                raise HostError(f"the journal on {self._transport.name} could not be read: {said(done)}")
            self._prefix = ()
            return
        if self._may_sudo:
            done = await self._transport.run([*_SUDO, *probe], timeout=_TIMEOUT_S)
            if done.ok:
                self._prefix = _SUDO
                return
        tried = f"; sudo -n did not help: {said(done)}" if self._may_sudo else ""
        raise HostError(
            f"the log of {self._unit} is not known: this user may not read the journal of {self._transport.name}{tried}; add the "
            "user to the group systemd-journal there (sudo usermod -aG systemd-journal NAME, then log in anew)"
        )


async def sees_system_journal(transport: Transport) -> bool:
    """Whether this user can read the system's journal files; true as well when none can be found to try it on."""
    return (await transport.run(["sh", "-c", _READABLE])).status != 1


def _denied(done: Completed, scope: Scope) -> bool:
    told = done.stderr.decode("utf-8", "replace")
    if "insufficient permissions" in told or "Permission denied" in told:
        return True
    # The lines of a user's own units are in the user's own part of the journal.
    return scope == "system" and "not seeing messages from other users" in told


def _entry(data: bytes) -> LogLine | None:
    for raw in data.split(b"\n"):
        entry = parse_entry(raw)
        if entry is not None and entry.cursor:
            return entry.lines[0] if entry.lines else LogLine("", cursor=entry.cursor)
    return None
