"""A host over SSH, opened: the connection to it and the systemd unit on it that is meant."""

from __future__ import annotations

import getpass
import socket

from .config import HostEntry
from .hosts.ssh import SshTransport
from .hosts.ssh_destination import BadDestination
from .hosts.systemd import SystemdService, full_name
from .hosts.systemd_find import find_units
from .hosts.systemd_manager import Manager, Scope
from .hosts.transport import HostError, HostUnreachable, Transport
from .session import NoSuchHost, NoSuchUnit, SeveralUnits

SCOPES: tuple[Scope, ...] = ("system", "user")


async def open_remote(name: str, entry: HostEntry, unit: str | None) -> tuple[SshTransport, SystemdService]:
    """Connect, and find the unit: the one that is named, or the only one that runs an engine.

    Args:
        name: how the host is called on screens.
        entry: its address; the name itself is the address when that is empty.
        unit: the unit's name, with or without ``.service``; the user's own units count where the system has none so called. One
            whose file is gone is opened where configurations of it are kept: a roll-back brings it back.

    Raises:
        NoSuchHost: the address is none.
        NoSuchUnit: the host has no such unit, or none that runs an engine.
        SeveralUnits: no unit was named and there are several.
        HostKeyUnknown: the host's key has to be accepted first.
        HostUnreachable: it cannot be reached; the message says why.
        HostError: systemd does not answer there.
    """
    try:
        transport = SshTransport(entry.address or name, name)
    except BadDestination as error:
        raise NoSuchHost(str(error)) from None
    try:
        await transport.connect()
        found, scope = await (_named(transport, unit) if unit else _only(transport, name))
    except BaseException:
        await transport.close()
        raise
    return transport, SystemdService(transport, found, scope=scope, author=f"{_user()}@{socket.gethostname()}")


async def _named(transport: Transport, unit: str) -> tuple[str, Scope]:
    try:
        unit = full_name(unit)
    except HostError as error:
        raise NoSuchUnit(str(error)) from None
    # An alias is the same unit: by its own name everybody meets at the same lock, files and journal.
    shown = await Manager(transport, "system").show(unit)
    if shown.get("LoadState") != "not-found":
        return shown.get("Id") or unit, "system"
    try:
        shown = await Manager(transport, "user").show(unit)
        if shown.get("LoadState") != "not-found":
            return shown.get("Id") or unit, "user"
    except HostUnreachable:
        raise
    except HostError:
        # No manager of this user's runs there, so it has no unit either.
        pass
    if (scope := await _kept_scope(transport, unit)) is not None:
        return unit, scope
    known = ", ".join(found.unit for found in await find_units(transport))
    raise NoSuchUnit(f"{transport.name} has no unit called {unit}; units with an engine: {known or 'none'}")


async def _kept_scope(transport: Transport, unit: str) -> Scope | None:
    """Whose manager's unit it was of which configurations are kept on the host; ``None`` when none are."""
    # Only a unit that is gone needs it, and a start has to be fast.
    from .apply.confirmed import ConfirmedStore

    for scope in SCOPES:
        service = SystemdService(transport, unit, scope=scope)
        try:
            await service.state()
            store = ConfirmedStore(transport, service)
            for record in await store.records():
                # Without root's rights both managers' are kept in one folder; the drop-in's place tells whose it is.
                if service.drop_in in await store.read_texts(record.text_path):
                    return scope
        except HostUnreachable:
            raise
        except HostError:
            continue
    return None


async def _only(transport: Transport, name: str) -> tuple[str, Scope]:
    found = await find_units(transport)
    if not found:
        kept = await _kept_units(transport)
        known = f"configurations of {', '.join(kept)} are kept there" if kept else ""
        said = "; ".join(filter(None, (f"no unit on {name} has an engine in its command line", known, "name one with --unit")))
        raise NoSuchUnit(said)
    if len(found) > 1:
        raise SeveralUnits(name, tuple(unit.unit for unit in found))
    return found[0].unit, found[0].scope


async def _kept_units(transport: Transport) -> tuple[str, ...]:
    """Units of which something is kept: one that is gone, masked or damaged names no engine, and may be the one that is meant."""
    try:
        service = SystemdService(transport, "any")
        await service.state()
        inside = await transport.listdir(service.keep.rpartition("/")[0])
        return tuple(sorted(name for name in inside if name.endswith(".service")))
    except HostUnreachable:
        raise
    except HostError:
        return ()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
