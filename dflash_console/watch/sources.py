"""One reading of each source of a service: bytes through the transport or over HTTP, records from ``evidence/``.

A source's reader is imported when that source is read for the first time: the service's state, which screens show first, needs
none of them. :func:`load_readers` imports what a running engine needs at once, for a thread beside the screens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ..hosts.transport import HostError, HostFileError
from ..knobs import KNOBS

if TYPE_CHECKING:
    from engine_launch.spec.drafter_config import DrafterConfig

    from ..evidence.gpu import GpuRow
    from ..evidence.gpu_holders import GpuHolder
    from ..evidence.metrics import MetricsSample
    from ..evidence.process import ProcessEvidence
    from ..evidence.server import Loads, ServerInfo
    from ..hosts.http import EngineHttp
    from ..hosts.link import EngineLink
    from ..hosts.service import Service, ServiceConfig, ServiceState
    from ..hosts.stranger import Stranger
    from ..hosts.transport import Transport

PACKAGED_DRAFTER = Path(__file__).parents[2] / "engine_launch" / "weights"


READERS = (
    "engine_launch.spec.drafter_config",
    "dflash_console.hosts.address",
    "dflash_console.evidence.process",
    "dflash_console.evidence.server",
    "dflash_console.evidence.start_log",
    "dflash_console.hosts.stranger",
    "dflash_console.watch.meters",
)
"""Modules that are imported when their source is read first, or before that by :func:`load_readers`."""


class Sources:
    """Reads; remembers nothing but connections. Every method raises HostError with a sentence for the screen."""

    def __init__(self, transport: Transport, service: Service, link: EngineLink, *, embedded: bool = False) -> None:
        self._transport = transport
        self.service = service
        self._link = link
        self._embedded = embedded

    async def changed_since(self, config: ServiceConfig) -> bool:
        """Whether a configuration file was written, removed or replaced since ``config`` was read."""
        known = {source.path: source.mtime for source in config.sources} | dict(config.folders)
        return await self._transport.mtimes(tuple(known)) != known

    async def process(self, pid: int) -> ProcessEvidence:
        """What ``/proc`` shows of the main process; its command line is the engine's, where a wrapper started that."""
        from ..evidence.process import parse_process
        from ..hosts.wrapped import engine_argv

        async def part(name: str) -> bytes | None:
            try:
                return await self._transport.read(f"/proc/{pid}/{name}")
            except HostFileError:
                return None

        found = parse_process(
            pid,
            cmdline=await part("cmdline"),
            environ=await part("environ"),
            cgroup=await part("cgroup"),
            stat=await part("stat"),
        )
        if not found.argv:
            raise HostError(f"process {pid} is gone, or its command line cannot be read")
        return replace(found, argv=await engine_argv(self._transport, pid, found.argv))

    async def gpus(self) -> tuple[GpuRow, ...]:
        """Every GPU of the host. Raises: NoGpuTool: nobody can be asked."""
        from ..hosts.gpus import read_gpus

        return await read_gpus(self._transport)

    async def gpu_holders(self, main_pid: int | None, unit: str) -> tuple[GpuHolder, ...]:
        """The processes that hold GPU memory; ``unit``: in whose control group the main process is, empty when that is not known.

        Raises: NoGpuTool: nobody can be asked.
        """
        from ..hosts.gpus import read_holders

        return await read_holders(self._transport, main_pid, unit)

    async def stranger(self, config: ServiceConfig, service: ServiceState) -> Stranger | None:
        """Another program that listens where the unit's engine should. Never raises: what cannot be seen is nobody."""
        from ..hosts.stranger import find_stranger

        return await find_stranger(self._transport, config, service)

    async def http(self, config: ServiceConfig, argv: Sequence[str] = ()) -> EngineHttp:
        """The engine's API. ``argv``: of the process that runs, where it is known."""
        return await self._link.open(config, argv=argv)

    async def server(self, http: EngineHttp) -> ServerInfo:
        from ..evidence.server import parse_server_info

        info = parse_server_info(await http.server_info())
        if info.problem:
            raise HostError(f"/server_info: {info.problem}")
        return info

    async def loads(self, http: EngineHttp) -> Loads:
        from ..evidence.server import parse_loads

        loads = parse_loads(await http.loads())
        if loads.problem:
            raise HostError(f"/v1/loads: {loads.problem}")
        return loads

    async def metrics(self, http: EngineHttp) -> MetricsSample:
        from ..evidence.metrics import parse_metrics

        sample = parse_metrics(await http.metrics())
        if sample.problem:
            raise HostError(f"/metrics: {sample.problem}")
        return sample

    async def drafter(self, command: Sequence[str], info: ServerInfo | None) -> DrafterConfig:
        """The configuration of the drafter that the engine was or would be started with."""
        path = self.drafter_config_path(command, info)
        if path is None:
            raise HostError("no drafter is named on the command line")
        return read_drafter(path, await self._transport.read(path))

    def drafter_config_path(self, command: Sequence[str], info: ServerInfo | None = None) -> str | None:
        """Where the drafter's ``config.json`` lies; ``None`` when neither the command nor the server names a drafter."""
        from ..evidence.command import flag_value

        given = flag_value(command, KNOBS["drafter"])
        reported = info.fields.get("speculative_draft_model_path") if info is not None else None
        if given.value is not None:
            folder = str(given.value)
        elif isinstance(reported, str) and reported:
            folder = reported
        elif self._embedded:
            folder = str(packaged_drafter())
        else:
            return None
        return str(PurePosixPath(folder) / "config.json")


def load_readers() -> None:
    """Import the readers of all sources. Takes a tenth of a second, so it is for a thread."""
    for name in READERS:
        import_module(name)


def read_drafter(path: str, data: bytes) -> DrafterConfig:
    """Raises: HostError: it is no drafter's configuration."""
    from engine_launch.spec.drafter_config import DrafterConfigError, parse_drafter_config

    try:
        return parse_drafter_config(data)
    except DrafterConfigError as error:
        raise HostError(f"{path}: {error}") from None


def packaged_drafter() -> Path:
    """The folder of the drafter that comes with the launcher: the one under ``weights/`` that has a ``config.json``."""
    if (PACKAGED_DRAFTER / "config.json").exists():
        return PACKAGED_DRAFTER
    found = sorted(PACKAGED_DRAFTER.glob("*/config.json"))
    return found[0].parent if found else PACKAGED_DRAFTER
