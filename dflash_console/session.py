"""One host's service, opened: what the command line and the screens both work with.

The host ``embedded`` is this machine: the embedded engine and any other unit under the console's own supervisor. Every other name
is a host over SSH, where systemd keeps the units.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .config import EMBEDDED, Config
from .history import History, open_history
from .hosts.link import EngineLink
from .hosts.local import LocalTransport
from .hosts.process import ProcessService
from .hosts.supervisor_state import UNIT_NAME
from .hosts.transport import HostError, HostFileError
from .paths import Paths, default_paths
from .watch import Watcher
from .watch.sources import Sources

if TYPE_CHECKING:
    from .evidence.file_edits import FileEdit
    from .hosts.http import EngineHttp
    from .hosts.service import Service
    from .hosts.transport import Transport
    from .load.request import Extra
    from .plan import Change, Plan

EMBEDDED_UNIT = "ddtree-embedded"
FIRST_PORT = 30000
DEFAULT_FLAGS = (
    "--speculative-algorithm",
    "DDTREE",
    "--speculative-ddtree-budget",
    "8",
    "--speculative-ddtree-topk",
    "4",
    "--host",
    "127.0.0.1",
)


class NoSuchHost(HostError):
    """The name or address is that of no host."""


class NoSuchUnit(HostError):
    """The host has no unit of the name that was given."""


class SeveralUnits(HostError):
    """More than one unit could be meant; the user has to choose."""

    def __init__(self, host: str, units: tuple[str, ...]) -> None:
        super().__init__(f"{host} has several units: {', '.join(units)}; choose one with --unit")
        self.units = units


@dataclass
class HostSession:
    """Everything that is open for one service. Close it when done; the service itself goes on."""

    host: str
    config: Config
    paths: Paths
    transport: Transport
    service: Service
    link: EngineLink
    sources: Sources
    watcher: Watcher
    history: History
    embedded: bool = False
    """This machine, without a link in between; which engine its unit runs is another matter (:attr:`HostState.embedded`)."""
    refused: set[Extra] = field(default_factory=set)
    """What this engine refused to prompts, and is not asked for again."""

    @property
    def unit(self) -> str:
        return self.service.unit

    @property
    def key(self) -> str:
        """The service's name in history and operation journals."""
        return f"{self.host}/{self.unit}"

    @property
    def read_only(self) -> bool:
        return self.config.read_only

    async def engine(self) -> EngineHttp:
        """The HTTP API of the engine that runs.

        Raises:
            HostError: nothing runs, or its command line does not tell where it listens.
        """
        from .evidence.command import find_engine
        from .hosts.wrapped import engine_argv

        config, state = await self.service.configuration(), await self.service.state()
        seen = self.watcher.state.process
        # What was seen of an earlier process says nothing of this one.
        argv = seen.value.argv if seen is not None and seen.value.pid == state.main_pid else ()
        if state.main_pid is not None and find_engine(argv or config.loaded or config.command) is None:
            argv = await engine_argv(self.transport, state.main_pid)
        return await self.link.open(config, argv=argv)

    async def plan(self, change: Change, *, refresh: bool = True) -> Plan:
        """What applying ``change`` would do; changes nothing.

        Args:
            refresh: ask every source first; without it the newest snapshot is taken.

        Raises:
            PlanError: no plan can be made; the message says why.
        """
        # Planning is imported when somebody plans: watching alone has to show its first state fast.
        from .plan import PlanError, make_plan
        from .survey import survey_change

        state = await self.watcher.refresh() if refresh else self.watcher.state
        times = await self.history.stage_seconds(self.key)
        timer = self.service.rollback_timer()
        if self.config.apply.commit_confirm and timer is not None:
            change = replace(change, commit_confirm=True)
        survey = await survey_change(state, change, self.sources, self.transport, self.service, times)
        survey = replace(survey, longest_start_s=self.config.apply.ready_timeout_s)
        config = state.config.value if state.config is not None else None

        def render(command: tuple[str, ...]) -> tuple[FileEdit, ...]:
            assert config is not None
            try:
                return self.service.edits(config, command)
            except HostError as error:
                raise PlanError(str(error)) from None

        target = self.service.target(config) if config is not None else ""
        return make_plan(state, change, survey, target=target, render=render)

    async def close(self) -> None:
        """Close everything, each part also when one before it could not be closed."""
        async with contextlib.AsyncExitStack() as last_first:
            for part in (self.transport, self.service, self.history, self.link, self.watcher):
                last_first.push_async_callback(part.close)


async def open_session(
    host: str | None = None,
    unit: str | None = None,
    *,
    config: Config | None = None,
    paths: Paths | None = None,
    watch: bool = True,
) -> HostSession:
    """Open a host's service: on this machine, or over SSH. The embedded host's unit is written on first use.

    Args:
        host: a configured name or a destination; the configuration's default host when not given.
        unit: the unit's name; without it the host is searched.
        watch: begin watching at once.

    Raises:
        NoSuchHost: the address is none.
        NoSuchUnit: the host has no unit of that name.
        SeveralUnits: no unit was named and there are several.
        HostKeyUnknown: a host's key has to be accepted first (``hosts/ssh_known_hosts.py``).
        HostError: the host cannot be reached, or the folder cannot be written.
    """
    config, paths = config or Config(), paths or default_paths()
    name = host or config.default_host
    entry = config.host(name)
    transport: Transport
    service: Service
    if name != EMBEDDED:
        # The SSH library takes longer to import than the first screen may take to show.
        from .remote import open_remote

        transport, service = await open_remote(name, entry, unit or entry.unit)
    else:
        transport = LocalTransport(EMBEDDED)
        service = await _local_service(transport, paths, unit or entry.unit or await _find_unit(transport, paths, name))
    embedded = name == EMBEDDED
    own_engine = embedded and await _runs_embedded_engine(service, transport)
    history = open_history(paths.history_file, keep_days=config.sampling.keep_days)
    link = EngineLink(transport)
    sources = Sources(transport, service, link, embedded=own_engine)
    watcher = Watcher(name, sources, embedded=own_engine, interval_s=config.sampling.interval_s, history=history)
    session = HostSession(name, config, paths, transport, service, link, sources, watcher, history, embedded=embedded)
    if watch:
        try:
            await watcher.start()
        except BaseException:
            await session.close()
            raise
    return session


async def list_units(transport: Transport, paths: Paths) -> tuple[str, ...]:
    """Names of this machine's units that have a unit file."""
    folder = paths.service("x").parent
    found = []
    for name in await transport.listdir(str(folder)):
        try:
            await transport.stat(str(folder / name / UNIT_NAME))
        except HostFileError:
            continue
        found.append(name)
    return tuple(found)


async def _find_unit(transport: Transport, paths: Paths, host: str) -> str:
    units = await list_units(transport, paths)
    if len(units) > 1:
        raise SeveralUnits(host, units)
    return units[0] if units else EMBEDDED_UNIT


async def _local_service(transport: Transport, paths: Paths, unit: str) -> ProcessService:
    if not unit or "/" in unit or unit.startswith("."):
        raise NoSuchUnit(f"{unit!r} is no unit's name")
    folder = paths.service(unit)
    units = await list_units(transport, paths)
    if unit not in units:
        if unit != EMBEDDED_UNIT:
            raise NoSuchUnit(f"there is no unit called {unit} on this machine; known: {', '.join(units) or 'none'}")
        await _write_embedded_unit(transport, folder)
    return ProcessService(transport, folder)


async def _runs_embedded_engine(service: Service, transport: Transport) -> bool:
    """Whether the unit's command is certain to start the embedded engine.

    Where the file cannot be read, the newest start's command counts; of a unit that was never started nothing is certain then.
    Nor is a command that leaves the choice to the launcher on a machine with a GPU, where that may be SGLang: no server is
    started unasked.
    """
    from engine_launch.spec.checks import EngineKind

    from .evidence.engine_choice import asked_engine

    try:
        config = await service.configuration()
    except HostError:
        return False
    # A file that was spoilt meanwhile does not make another engine of the one that was started from it.
    asked = asked_engine(config.loaded or () if config.problems and not config.command else config.command)
    return asked is EngineKind.EMBEDDED or (asked is EngineKind.AUTO and not await _has_gpu(transport))


async def _has_gpu(transport: Transport) -> bool:
    """Whether a GPU's driver has its device file here; the launcher looks for the same files."""
    from engine_launch.spec.checks import GPU_DEVICES

    for device in GPU_DEVICES:
        try:
            await transport.stat(device)
        except HostFileError as error:
            if error.missing:
                continue
        return True
    return False


async def _write_embedded_unit(transport: Transport, folder: Path) -> None:
    from .hosts.unit_file import new_unit_file

    await transport.make_folder(str(folder))
    engine = (sys.executable, "-m", "engine_launch", "serve", "--engine", "embedded")
    port = _free_port()
    command = (*engine, *DEFAULT_FLAGS, "--port", str(port), "--enable-metrics")
    text = new_unit_file(command, description="The embedded engine: a small model on this machine's CPU", chosen_port=port)
    await transport.write(str(folder / UNIT_NAME), text.encode(), mode=0o600)


def _free_port() -> int:
    """The first port from SGLang's default on that is free now. It is written into the unit and stays, as long as nobody else has
    it when the engine is started (``hosts/chosen_port.py``)."""
    for port in range(FIRST_PORT, FIRST_PORT + 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise HostError(f"no port between {FIRST_PORT} and {FIRST_PORT + 199} is free on this machine")
