"""Which units of a host run an engine: by their command lines as written and loaded, and by the processes that run in them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass

from ..evidence.command import find_engine
from ..evidence.process import parse_cmdline, parse_process
from .systemd_manager import Manager, Scope
from .systemd_state import parse_show
from .transport import HostError, Transport

_PROPERTIES = "Id,LoadState,ActiveState,ExecStart,Environment,EnvironmentFiles"
_BATCH = 200
# Every process that names an engine, with its control group: an engine behind a wrapper script shows in its process only.
_PROCESSES = """
for p in /proc/[0-9]*; do
  tr '\\0' ' ' < "$p/cmdline" 2>/dev/null | grep -qE 'sglang|engine_launch|ddtree-launch' || continue
  printf '%s ' "${p#/proc/}"; base64 -w0 < "$p/cmdline"; printf ' '; base64 -w0 < "$p/cgroup"; printf '\\n'
done 2>/dev/null
"""


@dataclass(frozen=True)
class FoundUnit:
    """A unit that runs, or would run, an engine."""

    unit: str
    scope: Scope
    active: bool
    how: str
    """What shows it, in words."""


async def find_units(transport: Transport) -> tuple[FoundUnit, ...]:
    """All units of the system, and of the user's own manager where there is one, that run an engine; running ones first.

    Raises:
        HostError: systemd does not answer on that host.
    """
    found = list(await _of_manager(Manager(transport, "system")))
    try:
        found += await _of_manager(Manager(transport, "user"))
    except HostError as error:
        if type(error) is not HostError:
            raise
        # Most servers have no user manager for those who log in over SSH: nothing is lost.
    return tuple(sorted(found, key=lambda unit: (not unit.active, unit.scope, unit.unit)))


async def _of_manager(manager: Manager) -> list[FoundUnit]:
    await manager.facts()
    shown = await _loaded(manager)
    names = {unit["Id"] for unit in shown}
    others = [name for name in await _unit_files(manager) if name not in names]
    for begin in range(0, len(others), _BATCH):
        shown += await _show(manager, others[begin : begin + _BATCH])
    found: dict[str, FoundUnit] = {}
    doubtful: list[dict[str, str]] = []
    for unit in shown:
        name = unit["Id"]
        if not name.endswith(".service") or unit.get("LoadState") in ("not-found", "masked") or name in found:
            continue
        words = _flat_words(unit.get("ExecStart", ""))
        if find_engine(words) is not None:
            found[name] = FoundUnit(name, manager.scope, _active(unit), "its command line names an engine")
        elif any("$" in word for word in words) and _hints(unit):
            doubtful.append(unit)
    for name in await _by_process(manager):
        found.setdefault(name, FoundUnit(name, manager.scope, True, "an engine runs in it, started by a script"))
    for unit in doubtful:
        if unit["Id"] not in found and await _names_engine(manager, unit["Id"]):
            found[unit["Id"]] = FoundUnit(
                unit["Id"], manager.scope, _active(unit), "its command line, with its variables, names one"
            )
    return list(found.values())


async def _loaded(manager: Manager) -> list[dict[str, str]]:
    done = await manager.transport.run(await manager.systemctl("show", "--all", "--property", _PROPERTIES, "--", "*.service"))
    return _records(done.stdout)


async def _show(manager: Manager, names: list[str]) -> list[dict[str, str]]:
    done = await manager.transport.run(await manager.systemctl("show", "--property", _PROPERTIES, "--", *names))
    return _records(done.stdout)


def _records(data: bytes) -> list[dict[str, str]]:
    """``systemctl show`` of several units: an empty line stands between them."""
    records = (parse_show(part) for part in data.split(b"\n\n"))
    return [record for record in records if record.get("Id")]


async def _unit_files(manager: Manager) -> list[str]:
    """Services that are installed; of templates the instances that are enabled."""
    done = await manager.transport.run(
        await manager.systemctl("list-unit-files", "--type=service", "--no-legend", "--plain", "--full")
    )
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    names = [line.split()[0] for line in lines if line.split()]
    return [name for name in names if "@." not in name]


def _flat_words(text: str) -> list[str]:
    """The words of the last command of an ExecStart property. Quotes are lost there, so a shell string falls into its words,
    which is as good for seeing whether an engine is named."""
    _, _, rest = text.rpartition("argv[]=")
    return rest.partition(" ; ignore_errors=")[0].split()


def _hints(unit: dict[str, str]) -> bool:
    """Whether a variable could hide an engine: only such units are worth reading in full."""
    inline = unit.get("Environment", "")
    program = (_flat_words(unit.get("ExecStart", "")) or [""])[0].rpartition("/")[2]
    launchers = ("python", "env", "sh", "bash", "dash", "docker", "podman", "sglang", "ddtree-launch", "numactl", "nice")
    return "sglang" in inline or "launch" in inline or program.startswith(launchers)


def _active(unit: dict[str, str]) -> bool:
    return unit.get("ActiveState") in ("active", "activating", "reloading", "deactivating")


async def _names_engine(manager: Manager, unit: str) -> bool:
    from .systemd import SystemdService

    try:
        config = await SystemdService(manager.transport, unit, scope=manager.scope).configuration()
    except HostError:
        return False
    return find_engine(config.command) is not None


async def _by_process(manager: Manager) -> Iterable[str]:
    done = await manager.run_root(["sh", "-c", _PROCESSES])
    uid = (await manager.facts()).uid
    units: dict[str, None] = {}
    for line in done.stdout.decode("ascii", "replace").splitlines():
        unit = _unit_of(line, None if manager.scope == "system" else uid)
        if unit:
            units[unit] = None
    return units


def _unit_of(line: str, uid: int | None) -> str:
    """The service in whose control group an engine's process is; empty when it is none, or no service of the system's manager
    (``uid`` is ``None``) or of this user's."""
    parts = line.split(" ")
    if len(parts) != 3 or not parts[0].isdigit():
        return ""
    cmdline, cgroup = b64decode(parts[1]), b64decode(parts[2])
    if find_engine(parse_cmdline(cmdline)) is None:
        return ""
    found = parse_process(int(parts[0]), cmdline=cmdline, cgroup=cgroup)
    of_user = "/user.slice/" in found.cgroup
    mine = not of_user if uid is None else f"/user@{uid}.service/" in found.cgroup
    return found.unit if mine and found.unit.endswith(".service") else ""
