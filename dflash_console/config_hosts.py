"""Hosts of the configuration file: adding one, and taking one out. Everything else in the file stays as it is."""

from __future__ import annotations

from pathlib import Path

from .config import EMBEDDED, HostEntry, load_config
from .config_edit import set_value
from .hosts.ssh_destination import BadDestination, parse_destination


def add_host(path: Path, name: str, entry: HostEntry) -> str:
    """Write ``[hosts.NAME]``.

    Args:
        name: how the host is called here; empty = its address without user and port.
        entry: ``address`` is anything that ``ssh`` accepts.

    Returns:
        The name.

    Raises:
        ValueError: the address or the name cannot be used, or the file is broken and is left alone.
        OSError: it cannot be written.
    """
    try:
        destination = parse_destination(entry.address)
    except BadDestination as error:
        raise ValueError(str(error)) from None
    chosen = name.strip() or destination.host
    if any(character.isspace() or not character.isprintable() for character in chosen):
        raise ValueError(f"{chosen!r} is no name for a host: use letters, digits, dots and dashes")
    known = load_config(path).config.hosts
    if chosen == EMBEDDED or chosen in known:
        whose = "this machine's embedded engine" if chosen == EMBEDDED else known[chosen].address or chosen
        raise ValueError(f"there is a host called {chosen} already ({whose}): give this one another name")
    address = entry.address.strip()
    values = {"address": "" if address == chosen else address, "unit": entry.unit.strip(), "note": entry.note.strip()}
    given = {key: value for key, value in values.items() if value}
    # An empty table is a whole entry: the name is the address then. A key makes the table's header appear.
    for key, value in (given or {"address": address}).items():
        set_value(path, ("hosts", chosen, key), value)
    return chosen


def remove_host(path: Path, name: str) -> str:
    """Take ``[hosts.NAME]`` out; the name again.

    Raises:
        ValueError: the file has no such host, or is broken and is left alone.
        OSError: it cannot be written.
    """
    if name not in load_config(path).config.hosts:
        raise ValueError(f"{path} has no host called {name}")
    set_value(path, ("hosts", name), None)
    return name
