"""A systemd unit as a service: what it is configured to run and does run, and the verbs that change that.

Works over any transport, as root, as a user who may use ``sudo -n``, as one whom a polkit rule allows something, and as one who
may only look. The unit's own file and a package's are never edited (see ``evidence/unit_edit.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

from ..evidence.journal import LogLine
from ..evidence.unit_drop_in import NAME
from ..evidence.unit_specifiers import UnitName
from .address import engine_address
from .journald import Journal
from .service import FileEdit, RunState, ServiceConfig, ServiceState, Texts
from .systemd_access import Privileges, find_privileges
from .systemd_audit import append_audit_line
from .systemd_config import UnitConfiguration
from .systemd_files import UnitFileStore
from .systemd_jobs import UnitJobs
from .systemd_lock import UnitLock, hold_lock
from .systemd_manager import Manager, Scope, said_lines
from .systemd_rollback import RollbackTimer
from .systemd_state import service_state
from .transport import HostError, HostFileError, HostUnreachable, Transport

_VERIFY = ("systemd-analyze", "verify", "--man=no")
_STRICT = "--recursive-errors=no"
"""Without it some broken units are only warned about; systemd before 250 does not know it."""


class SystemdService:
    """One unit on one host: a :class:`~dflash_console.hosts.service.Service`."""

    def __init__(
        self, transport: Transport, unit: str, *, scope: Scope = "system", author: str = "", job_timeout: float = 60.0
    ) -> None:
        """
        Args:
            unit: with or without ``.service``.
            scope: the system's manager, or the one of the user who is logged in there.
            author: who changes things from where (``ada@desk``), for the files' comments.
            job_timeout: seconds for which a start's job is followed.
        """
        self._transport = transport
        self._unit = full_name(unit)
        self._author = author
        self._manager = Manager(transport, scope)
        self._files = UnitFileStore(self._manager, self._unit)
        self._jobs = UnitJobs(self._manager, self._unit, job_timeout=job_timeout)
        self._journal = Journal(transport, self._unit, scope=scope, sudo=scope == "system")
        self._home = self._folder = ""
        self._read: UnitConfiguration | None = None
        self._lock: UnitLock | None = None

    @property
    def unit(self) -> str:
        return self._unit

    @property
    def scope(self) -> Scope:
        return self._manager.scope

    @property
    def manager(self) -> Manager:
        return self._manager

    @property
    def keep(self) -> str:
        return f"{self._home or '/var/lib'}/ddtree-console/{self._unit}"

    @property
    def loads_on_reload(self) -> bool:
        return True

    async def state(self) -> ServiceState:
        await self._prepare()
        return service_state(self._unit, await self._manager.show(self._unit))

    async def configuration(self) -> ServiceConfig:
        await self._prepare()
        shown = await self._manager.show(self._unit)
        if shown.get("LoadState") == "not-found" and shown.get("ActiveState") == "inactive":
            state = service_state(self._unit, shown)
            raise HostFileError(self._unit, f"{state.detail} on {self._transport.name}", missing=True)
        self._read = read = await self._find(shown)
        return read.shown(shown, await self._manager.loaded(self._unit), await self._files.folders(self._folder))

    async def _find(self, shown: Mapping[str, str], instead: Texts | None = None) -> UnitConfiguration:
        names = [self._unit, *(name for name in shown.get("Names", "").split() if name != self._unit)]
        found = await self._files.find(names, shown.get("FragmentPath", ""), instead)
        return UnitConfiguration(self._unit, self.drop_in, self._author, found)

    def target(self, config: ServiceConfig) -> str:
        return self.drop_in

    def edits(self, config: ServiceConfig, command: tuple[str, ...]) -> tuple[FileEdit, ...]:
        return self._last_read().edits(command)

    def rebase(self) -> tuple[FileEdit, ...]:
        return self._last_read().rebase()

    def release(self) -> tuple[FileEdit, ...]:
        return self._last_read().release()

    def restorable(self, config: ServiceConfig) -> Texts:
        return self._last_read().restorable()

    async def ours(self) -> Texts:
        await self._prepare()
        self._read = read = await self._find(await self._manager.show(self._unit))
        return read.ours()

    async def preview(self, texts: Texts) -> ServiceConfig:
        await self._prepare()
        return (await self._find(await self._manager.show(self._unit), texts)).shown({}, None, {})

    async def command_with(self, texts: Texts) -> tuple[str, ...]:
        await self._prepare()
        return (await self._find(await self._manager.show(self._unit), texts)).command()

    async def read(self, path: str) -> bytes:
        return await self._files.read(path)

    async def write(self, edits: Sequence[FileEdit]) -> None:
        await self._still_ours()
        for edit in edits:
            if await self._text_now(edit.path) != edit.old:
                raise HostError(
                    f"{edit.path} was changed by someone else meanwhile; nothing was written, look at it and plan again"
                )
        done: list[FileEdit] = []
        mode = await self._mode()
        try:
            for edit in edits:
                await self._files.write(edit.path, edit.new, mode=mode if edit.mode is None else edit.mode)
                done.append(edit)
        except HostUnreachable:
            # Nobody can look just now; the caller does when the link is back.
            raise
        except HostError as error:
            for edit in reversed(done):
                if edit.lossy:
                    raise HostError(f"{error}; and {edit.path}, already written, stays so: its old bytes are no UTF-8") from None
                try:
                    await self._files.write(edit.path, edit.old, mode=mode)
                except HostError as again:
                    raise HostError(f"{error}; and {edit.path}, already written, could not be put back: {again}") from None
            raise

    async def check(self) -> tuple[str, ...]:
        scope = ("--user",) if self.scope == "user" else ()
        head = (*await self._manager.environment(), _VERIFY[0], *scope, *_VERIFY[1:])
        for strict in ((_STRICT,), ()):
            done = await self._manager.run_root([*head, *strict, "--", self._unit], timeout=60.0)
            text = done.stderr.decode("utf-8", "replace")
            if strict and _STRICT.partition("=")[0].lstrip("-") in text and "nrecognized option" in text:
                continue
            break
        lines = tuple(said_lines(done.stderr))
        if not lines and not done.ok:
            return (f"systemd-analyze verify {self._unit} fails with status {done.status} and says nothing",)
        return lines

    async def preflight(self) -> tuple[str, ...]:
        """What would stop a change of this unit before it begins: rights that are missing."""
        return (await self.privileges()).missing()

    async def privileges(self) -> Privileges:
        """What this user may do with the unit. Changes nothing. Raises: HostUnreachable."""
        await self._prepare()
        shown = await self._manager.show(self._unit)
        return await find_privileges(self._manager, self._unit, shown.get("FragmentPath", ""), self._folder)

    async def audit(self, record: Mapping[str, object]) -> str:
        """Note an operation in the audit file on the host; the file. Raises: HostFileError."""
        return await append_audit_line(self._manager, record)

    def rollback_timer(self) -> RollbackTimer:
        """The timer on the host that puts a configuration back unless it is called off."""
        return RollbackTimer(self._manager, self._unit, author=self._author, may_change=self._still_ours)

    async def reload(self) -> None:
        await self._still_ours()
        await self._manager.command("daemon-reload")

    async def start(self, *, another_port: bool = False) -> None:
        await self._still_ours()
        await self._jobs.start()

    async def stop(self, *, timeout: float = 60.0) -> None:
        await self._still_ours()
        await self._jobs.stop(timeout=timeout)

    async def restart(self) -> None:
        await self._still_ours()
        await self._jobs.restart()

    async def cursor(self) -> str:
        return await self._journal.cursor()

    def follow(self, *, cursor: str | None = None, invocation_id: str | None = None) -> AsyncIterator[LogLine]:
        return self._journal.follow(cursor=cursor, invocation_id=invocation_id)

    def batches(self, *, cursor: str | None = None, invocation_id: str | None = None) -> AsyncIterator[tuple[LogLine, ...]]:
        return self._journal.batches(cursor=cursor, invocation_id=invocation_id)

    async def log_start(self) -> str | None:
        return await self._journal.log_start()

    async def lines(self, *, invocation_id: str | None = None, limit: int = 5_000) -> tuple[LogLine, ...]:
        return await self._journal.lines(invocation_id=invocation_id, limit=limit)

    @contextlib.asynccontextmanager
    async def lock(self, holder: str) -> AsyncIterator[None]:
        async with hold_lock(self._manager, self._unit, f"{holder} ({self._author})" if self._author else holder) as lock:
            self._lock = lock
            try:
                yield
            finally:
                self._lock = None

    async def _still_ours(self) -> None:
        """Before a change within a lock. Raises: HostError: somebody else took the unit over."""
        if self._lock is not None:
            await self._lock.assure()

    async def close(self) -> None:
        await self._journal.close()

    async def base_url(self) -> str | None:
        with contextlib.suppress(HostError):
            config = await self.configuration()
            running = (await self.state()).state in (RunState.RUNNING, RunState.STARTING, RunState.STOPPING)
            address = engine_address(config.loaded if running and config.loaded is not None else config.command)
            return None if address is None else address.url
        return None

    async def _prepare(self) -> None:
        """Learn what the unit's paths depend on."""
        if not self._folder:
            facts = await self._manager.facts()
            system = self.scope == "system"
            self._home = "/var/lib" if system and facts.uid == 0 else f"{facts.home}/.local/state"
            base = "/etc/systemd/system" if system else f"{facts.config_home}/systemd/user"
            self._folder = f"{base}/{self._unit}.d"

    @property
    def drop_in(self) -> str:
        """The console's own drop-in, which may not exist."""
        return f"{self._folder}/{NAME}"

    def _last_read(self) -> UnitConfiguration:
        if self._read is None:
            raise HostError(f"the configuration of {self._unit} has not been read yet")
        return self._read

    async def _text_now(self, path: str) -> str | None:
        try:
            return (await self._files.read(path)).decode("utf-8", "replace")
        except HostFileError as error:
            if error.missing:
                return None
            raise

    async def _mode(self) -> int:
        """Of a new drop-in: a unit that others may not read (it holds a key) gets a drop-in that they may not read either."""
        found = self._read.found if self._read is not None else None
        if found is not None and found.layout.fragment:
            with contextlib.suppress(HostFileError):
                return (await self._transport.stat(found.layout.fragment)).mode & 0o644 | 0o600
        # Where the unit's own file is gone, nobody knows who might read it.
        return 0o644 if found is not None and found.layout.fragment and not found.unreadable else 0o600


def full_name(unit: str) -> str:
    """``sgl`` → ``sgl.service``. Raises: HostError: it cannot be a service's name."""
    name = unit if unit.endswith(".service") else f"{unit}.service"
    allowed = all(c.isascii() and (c.isalnum() or c in ":-_.\\@") for c in name)
    if not allowed or len(name) > 255 or name.startswith((".", "-", "@")) or UnitName(name).stem.endswith("@"):
        raise HostError(f"{unit!r} is no service's name; a template needs its instance (sgl@a.service)")
    return name
