"""Flags outside the catalogue that two command lines give differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..knobs import FLAG_PREFIX, KNOBS
from .command import engine_arguments, find_engine, names_flag
from .reading import Reading, absent, valued
from .secrets import MASK, is_secret_name, mask_text

MAX_FLAGS = 20


@dataclass(frozen=True)
class FlagPair:
    """One flag as the unit file and as the process have it (secrets masked)."""

    flag: str
    unit: Reading
    process: Reading

    @property
    def name(self) -> str:
        return FLAG_PREFIX + self.flag


def other_flags(command: Sequence[str] | None, argv: Sequence[str] | None) -> tuple[FlagPair, ...]:
    """Flags whose words differ, at most :data:`MAX_FLAGS`; nothing when one side was not read or hides the engine.

    A difference in spelling only (a prefix, ``=``) is reported as well: without the engine's own parser it cannot be told
    from another flag.
    """
    if command is None or argv is None or find_engine(command) is None:
        return ()
    found = find_engine(argv)
    if found is None or found.container:
        return ()
    written, running = _flags(engine_arguments(command)), _flags(found.arguments)
    names = [*written, *(name for name in running if name not in written)]
    pairs = [
        FlagPair(name, _reading(name, written.get(name), "unit file"), _reading(name, running.get(name), "process"))
        for name in names
        if written.get(name) != running.get(name) and not _expansion(written.get(name))
    ]
    return tuple(pairs[:MAX_FLAGS])


def _flags(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Values by flag, catalogued settings left out; the last occurrence counts."""
    found: dict[str, tuple[str, ...]] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = (value,) if equals else ()
        elif name:
            found[name] = (*found[name], word)
    return {flag: values for flag, values in found.items() if not any(names_flag(flag, knob.flags) for knob in KNOBS.values())}


def _expansion(values: tuple[str, ...] | None) -> bool:
    """The file holds a variable or a command: what the process got from it cannot be compared."""
    return values is not None and any("$" in value or "`" in value for value in values)


def _reading(flag: str, values: tuple[str, ...] | None, where: str) -> Reading:
    if values is None:
        return absent("not given", where)
    if is_secret_name(flag):
        return valued(MASK, MASK, where)
    return valued(mask_text(" ".join(values)) if values else True, "", where)
