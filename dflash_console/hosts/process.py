"""A supervised local process as a service: files and verbs of one unit's folder (see ``supervisor.py``).

The folder holds ``service.toml`` (the configuration), ``state.json`` (what the supervisor did), ``log.jsonl`` (what the engine
printed) and ``lock`` (one operation at a time). All of it is read through the host's transport.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from ..evidence.journal import LogLine
from . import proc
from .chosen_port import own_port
from .process_log import ProcessLog
from .service import ConfigSource, FileEdit, RunState, ServiceConfig, ServiceState, Texts
from .supervisor_state import ANOTHER_PORT, STATE_NAME, UNIT_NAME, SupervisorState, load_state
from .transport import HostError, HostFileError, Transport
from .unit_file import UnitFileError, decode_unit_file, parse_unit_file, replace_command

_RUN = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); "
    "runpy.run_module('dflash_console.hosts.supervisor', run_name='__main__', alter_sys=True)"
)
"""What ``-m`` does, from the folder named first."""
_SUPERVISOR = (sys.executable, "-I", "-c", _RUN, str(Path(__file__).parents[2]))
"""Isolated, so that neither PYTHONPATH nor the working folder decides what is imported; hence this package's own folder is named:
Python may have found it through PYTHONPATH alone."""
_STATES = {
    "starting": RunState.STARTING,
    "running": RunState.RUNNING,
    "stopping": RunState.STOPPING,
    "stopped": RunState.STOPPED,
    "failed": RunState.FAILED,
}


class ProcessService:
    """One unit on this machine: a :class:`~dflash_console.hosts.service.Service`."""

    def __init__(self, transport: Transport, folder: Path, *, job_timeout: float = 60.0) -> None:
        """``job_timeout``: seconds after which a restart that waits for the old engine's end is given up."""
        self._transport = transport
        self._folder = folder
        self._path = str(folder / UNIT_NAME)
        self._log = ProcessLog(transport, str(folder))
        self._boot = proc.boot_id()
        self._job_timeout = job_timeout

    @property
    def unit(self) -> str:
        return self._folder.name

    @property
    def keep(self) -> str:
        """Where earlier texts of the configuration are kept, beside it and as private as it is."""
        return str(self._folder / "kept")

    async def state(self) -> ServiceState:
        recorded = await self._recorded()
        if recorded is None and await self._exists(str(self._folder / STATE_NAME)):
            detail = f"{self._folder / STATE_NAME} is damaged, so what runs is not known; stop the unit to get it in order"
            return ServiceState(self.unit, RunState.UNKNOWN, detail=detail)
        if recorded is None:
            known = RunState.STOPPED if await self._exists(self._path) else RunState.MISSING
            detail = "never started" if known is RunState.STOPPED else f"there is no {self._path}"
            return ServiceState(self.unit, known, detail=detail)
        state = _STATES.get(recorded.state, RunState.UNKNOWN)
        result, detail, pid = recorded.result, recorded.detail, recorded.main.pid if recorded.main else None
        if state in (RunState.STARTING, RunState.RUNNING, RunState.STOPPING) and not await self._runs(
            recorded.supervisor, recorded
        ):
            left = recorded.main is not None and await self._runs(recorded.main, recorded)
            state, result = RunState.FAILED, "supervisor-killed"
            detail = "the supervisor was killed" + (
                f"; the engine (pid {pid}) runs on without it" if left else " and the engine with it"
            )
            if recorded.boot_id != self._boot:
                state, result, detail = RunState.STOPPED, "reboot", "the machine was started anew since"
            pid = pid if left else None
        elif state in (RunState.STOPPED, RunState.FAILED):
            pid = None
        return ServiceState(
            unit=self.unit,
            state=state,
            invocation_id=recorded.invocation_id,
            main_pid=pid,
            restarts=recorded.restarts,
            started_at=recorded.started_at,
            exit_status=recorded.exit_status,
            result=result,
            detail=detail,
        )

    async def configuration(self) -> ServiceConfig:
        data = await self._transport.read(self._path)
        text, damage = _text(data)
        mtime = (await self._transport.stat(self._path)).mtime
        recorded = await self._recorded()
        loaded = recorded.command if recorded is not None else None
        source = ConfigSource(self._path, text, mtime)
        if damage:
            return ServiceConfig((source,), (), loaded, problems=(f"{self._path}: {damage}",))
        try:
            unit = parse_unit_file(text)
        except UnitFileError as error:
            return ServiceConfig((source,), (), loaded, problems=(f"{self._path}: {error}",))
        own = own_port(unit)
        return ServiceConfig((source,), unit.command, loaded, unit.environment, chosen_port=None if own is None else own[1])

    def target(self, config: ServiceConfig) -> str:
        return self._path

    @property
    def loads_on_reload(self) -> bool:
        """The supervisor reads the file at each start, and shows what the newest start was given."""
        return False

    def edits(self, config: ServiceConfig, command: tuple[str, ...]) -> tuple[FileEdit, ...]:
        old = config.sources[0].text
        if config.problems:
            raise HostError(config.problems[0])
        try:
            new = replace_command(old, command)
        except UnitFileError as error:
            raise HostError(f"{self._path}: {error}") from None
        return (FileEdit(self._path, old, new),) if new != old else ()

    def restorable(self, config: ServiceConfig) -> Texts:
        return {self._path: config.sources[0].text}

    async def ours(self) -> Texts:
        try:
            return self.restorable(await self.configuration())
        except HostFileError as error:
            if not error.missing:
                raise
            return {self._path: None}

    async def preview(self, texts: Texts) -> ServiceConfig:
        text = texts.get(self._path)
        if text is None:
            return await self.configuration()
        source = ConfigSource(self._path, text)
        try:
            unit = parse_unit_file(text)
        except UnitFileError as error:
            return ServiceConfig((source,), (), None, problems=(f"{self._path}: {error}",))
        return ServiceConfig((source,), unit.command, None, unit.environment)

    async def command_with(self, texts: Texts) -> tuple[str, ...]:
        config = await self.preview(texts)
        if config.problems:
            raise HostError(config.problems[0])
        return config.command

    async def read(self, path: str) -> bytes:
        return await self._transport.read(path)

    async def write(self, edits: Sequence[FileEdit]) -> None:
        for edit in edits:
            found: str | None
            try:
                found, damage = _text(await self._transport.read(edit.path))
            except HostFileError as error:
                if not error.missing:
                    raise
                found, damage = None, ""
            if damage:
                raise HostError(f"{edit.path}: {damage}; nothing was written")
            if found != edit.old:
                raise HostError(
                    f"{edit.path} was changed by someone else meanwhile; nothing was written, look at it and plan again"
                )
            # There is but one file, so nothing can be written by half.
            if edit.new is None:
                await self._transport.remove(edit.path)
            else:
                await self._transport.write(edit.path, edit.new.encode(), mode=0o600)

    async def preflight(self) -> tuple[str, ...]:
        return await self.check()

    async def check(self) -> tuple[str, ...]:
        try:
            config = await self.configuration()
        except HostFileError as error:
            if not error.missing:
                raise
            return (str(error),)
        if config.problems:
            return config.problems
        program = config.command[0]
        if os.sep in program and not await self._exists(program):
            return (f"{self._path}: {program} does not exist",)
        return ()

    async def reload(self) -> None:
        """Nothing to do: a start reads the file."""

    async def start(self, *, another_port: bool = False) -> None:
        await self._manage("start", *([ANOTHER_PORT] if another_port else []))

    async def stop(self, *, timeout: float = 60.0) -> None:
        await self._manage("stop", timeout=timeout)

    async def restart(self) -> None:
        await self._manage("restart", timeout=self._job_timeout)

    async def cursor(self) -> str:
        return await self._log.end()

    async def follow(self, *, cursor: str | None = None, invocation_id: str | None = None) -> AsyncIterator[LogLine]:
        async for batch in self.batches(cursor=cursor, invocation_id=invocation_id):
            for line in batch:
                yield line

    async def batches(self, *, cursor: str | None = None, invocation_id: str | None = None) -> AsyncIterator[tuple[LogLine, ...]]:
        if cursor is None and invocation_id is not None:
            cursor = await self._start_of(invocation_id)
        async for batch in self._log.follow(cursor):
            yield tuple(line for line in batch if invocation_id is None or line.invocation_id == invocation_id)

    async def lines(self, *, invocation_id: str | None = None, limit: int = 5_000) -> tuple[LogLine, ...]:
        stored = await self._log.stored(None if invocation_id is None else await self._start_of(invocation_id))
        chosen = [line for line in stored if invocation_id is None or line.invocation_id == invocation_id]
        return tuple(chosen[-limit:])

    def rebase(self) -> tuple[FileEdit, ...]:
        raise HostError(f"{self.unit} is run by the console itself: settings are written into its own file, not beside it")

    def release(self) -> tuple[FileEdit, ...]:
        return self.rebase()

    def rollback_timer(self) -> None:
        return None

    async def audit(self, record: Mapping[str, object]) -> str:
        """Nothing: this machine's own audit file has it."""
        return ""

    @contextlib.asynccontextmanager
    async def lock(self, holder: str) -> AsyncIterator[None]:
        # A flock dies with the process that holds it, so a crashed console never leaves the unit locked.
        path = str(self._folder / "lock")
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HostFileError(path, f"the lock {path} cannot be opened: {error.strerror}") from None
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                said = os.pread(handle, 4096, 0).decode("utf-8", "replace").strip() or "someone"
                raise HostError(f"{self.unit} is being changed by {said}; wait until that is done") from None
            with contextlib.suppress(OSError):
                # Who holds it is a courtesy; a full disk must not stop an operation that may free it.
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{holder} (pid {os.getpid()})".encode(), 0)
            yield
        finally:
            os.close(handle)

    async def close(self) -> None:
        """Nothing goes on between two calls."""

    async def base_url(self) -> str | None:
        from .address import engine_address

        recorded = await self._recorded()
        if recorded is not None and recorded.state in ("starting", "running", "stopping"):
            command = recorded.command
        else:
            try:
                command = (await self.configuration()).command
            except HostError:
                return None
        address = engine_address(command)
        return None if address is None else address.url

    async def log_start(self) -> str | None:
        recorded = await self._recorded()
        return recorded.log_cursor or None if recorded is not None else None

    async def _start_of(self, invocation_id: str) -> str | None:
        """The cursor at which a start's lines begin, where it is known: reading the whole log for them would take long."""
        recorded = await self._recorded()
        return recorded.log_cursor or None if recorded is not None and recorded.invocation_id == invocation_id else None

    async def _manage(self, verb: str, *words: str, timeout: float = 60.0) -> None:
        argv = [*_SUPERVISOR, verb, str(self._folder), f"{timeout:g}", *words]
        done = await self._transport.run(argv, timeout=timeout + 30.0, changes=True)
        if not done.ok:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise HostError(said[-1] if said else f"{verb} of {self.unit} failed with status {done.status}")

    async def _recorded(self) -> SupervisorState | None:
        try:
            return load_state(await self._transport.read(str(self._folder / STATE_NAME)))
        except HostFileError as error:
            if error.missing:
                return None
            raise

    async def _runs(self, process: proc.ProcessId, recorded: SupervisorState) -> bool:
        if recorded.boot_id != self._boot:
            return False
        try:
            stat = proc.parse_stat(await self._transport.read(f"/proc/{process.pid}/stat"))
        except HostFileError:
            return False
        return stat is not None and not stat.gone and stat.ticks == process.ticks

    async def _exists(self, path: str) -> bool:
        try:
            await self._transport.stat(path)
        except HostFileError:
            return False
        return True


def _text(data: bytes) -> tuple[str, str]:
    """A configuration file as text, and what is wrong with its bytes. Such a text is to be shown and never to be written: it has
    another character in the place of each wrong byte."""
    try:
        return decode_unit_file(data), ""
    except UnitFileError as error:
        return data.decode("utf-8", "replace"), str(error)
