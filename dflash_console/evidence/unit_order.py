"""Which files make up a service, in systemd's order, from what lies in its folders.

Source: systemd.unit(5), "Unit File Load Path" and the passage on drop-ins, and ``unit_file_find_dirs`` of systemd 252: folders of
the load path come first by their own order; of two drop-ins with the same name the one in the earlier folder counts; all are then
read sorted by name. An empty file, or a link to ``/dev/null``, hides the later ones of its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .unit_specifiers import UnitName


@dataclass(frozen=True)
class UnitLayout:
    """The files of a service on disk, loaded or not."""

    fragment: str
    """The unit itself; empty when there is none."""
    drop_ins: tuple[str, ...]
    masked: bool = False
    """The unit is a link to ``/dev/null``."""


def drop_in_names(unit: str) -> tuple[str, ...]:
    """Names of the drop-in folders of a service, the most specific first: ``a-b@x.service.d``, ``a-b@.service.d``,
    ``a-.service.d``, ``service.d``."""
    name = UnitName(unit)
    suffix = unit.rpartition(".")[2]
    names = [unit, *([name.template] if name.template else [])]
    stem = name.prefix
    while "-" in stem.rstrip("-"):
        stem = stem.rstrip("-").rpartition("-")[0] + "-"
        names.append(f"{stem}.{suffix}")
    return tuple(f"{each}.d" for each in (*names, suffix))


def unit_candidates(unit: str, load_path: Sequence[str]) -> tuple[str, ...]:
    """Where the unit itself may lie, the first that exists counts: its own name in every folder, then its template's."""
    name = UnitName(unit)
    return tuple(f"{folder}/{each}" for each in (unit, name.template) if each for folder in load_path)


def drop_in_folders(names: Iterable[str], load_path: Sequence[str]) -> tuple[str, ...]:
    """Folders that may hold drop-ins of a service with these names (its own first, then aliases), in order of precedence."""
    found: dict[str, None] = {}
    for unit in names:
        own, shared = drop_in_names(unit)[:-1], drop_in_names(unit)[-1]
        found.update(dict.fromkeys(f"{folder}/{each}" for folder in load_path for each in own))
    found.update(dict.fromkeys(f"{folder}/{shared}" for folder in load_path))
    return tuple(found)


def lay_out(units: Sequence[str], folders: Sequence[str], kinds: Mapping[str, str]) -> UnitLayout:
    """The files that count.

    Args:
        units: candidates for the unit itself, in order.
        folders: of drop-ins, in order.
        kinds: path → ``f`` for a file, ``e`` for an empty one, anything else for what is no file (``c`` = a link to /dev/null).
    """
    fragment = next((path for path in units if path in kinds), "")
    chosen: dict[str, str] = {}
    for folder in folders:
        inside = sorted(path for path in kinds if path.rpartition("/")[0] == folder and path.endswith(".conf"))
        for path in inside:
            chosen.setdefault(path.rpartition("/")[2], path)
    drop_ins = tuple(chosen[name] for name in sorted(chosen) if kinds[chosen[name]] in ("f", "e"))
    return UnitLayout(fragment, drop_ins, masked=kinds.get(fragment, "f") not in ("f",))


def object_path(unit: str) -> str:
    """The unit's D-Bus object: every byte that is no ASCII letter or digit, and a leading digit, as ``_xx``."""
    label = "".join(
        chr(byte) if chr(byte).isascii() and chr(byte).isalnum() and not (place == 0 and chr(byte).isdigit()) else f"_{byte:02x}"
        for place, byte in enumerate(unit.encode())
    )
    return f"/org/freedesktop/systemd1/unit/{label}"
