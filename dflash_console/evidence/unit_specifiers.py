"""systemd's ``%`` specifiers: what a unit's name alone tells, and the text after all that are known were replaced.

Source: systemd.unit(5), "Specifiers", and ``unit_full_printf`` of systemd 252. A letter that systemd does not know makes it
refuse the value; one that is not known here stays as written and is named, so that nobody takes it for an argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BY_NAME = frozenset("nNpPiIjJf%")
"""Specifiers that the unit's name alone tells; the host tells the others."""


@dataclass(frozen=True)
class SpecifiedText:
    """A text with its specifiers replaced."""

    value: str
    places: tuple[tuple[int, int], ...]
    """For each character of ``value``: the range of the text that it stands for."""
    unknown: str = ""
    """Letters whose values are not known; they stand in ``value`` as written."""


@dataclass(frozen=True)
class UnitName:
    """A service's full name in its parts (systemd.unit(5), "Description")."""

    full: str

    @property
    def stem(self) -> str:
        return self.full.rpartition(".")[0]

    @property
    def prefix(self) -> str:
        """Before the ``@``, escaped; the whole stem when there is none."""
        return self.stem.partition("@")[0]

    @property
    def instance(self) -> str:
        """Between ``@`` and ``.service``, escaped; empty for a unit that is no instance."""
        return self.stem.partition("@")[2]

    @property
    def template(self) -> str:
        """The template's name (``sgl@.service``); empty for a unit that is no instance."""
        return f"{self.prefix}@.{self.full.rpartition('.')[2]}" if self.instance else ""

    def specifiers(self) -> dict[str, str]:
        """Values of :data:`BY_NAME`."""
        instance, prefix = unescape(self.instance), unescape(self.prefix)
        last = self.prefix.rpartition("-")[2]
        path = instance or prefix
        return {
            "%": "%",
            "n": self.full,
            "N": self.stem,
            "p": self.prefix,
            "P": prefix,
            "i": self.instance,
            "I": instance,
            "j": last,
            "J": unescape(last),
            "f": path if path.startswith("/") else f"/{path}",
        }


def unescape(name: str) -> str:
    """A part of a unit's name as ``systemd-escape --unescape`` gives it; an escape that is none stays."""
    result = bytearray()
    at = 0
    while at < len(name):
        digits = name[at + 2 : at + 4]
        if name.startswith("\\x", at) and len(digits) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in digits):
            result.append(int(digits, 16))
            at += 4
        else:
            result += b"/" if name[at] == "-" else name[at].encode("utf-8", "surrogatepass")
            at += 1
    return result.decode("utf-8", "replace")


def replace_specifiers(text: str, values: Mapping[str, str]) -> SpecifiedText:
    """``text`` with each ``%X`` replaced; a ``%`` at the very end stays, as in systemd."""
    characters: list[str] = []
    places: list[tuple[int, int]] = []
    unknown = ""
    at = 0
    while at < len(text):
        letter = text[at + 1 : at + 2]
        if text[at] != "%" or not letter:
            characters.append(text[at])
            places.append((at, at + 1))
            at += 1
            continue
        value = values.get(letter)
        if value is None:
            unknown += letter
            characters += ("%", letter)
            places += ((at, at + 1), (at + 1, at + 2))
        else:
            characters += value
            places += [(at, at + 2)] * len(value)
        at += 2
    return SpecifiedText("".join(characters), tuple(places), unknown)


def specifier_letters(text: str) -> frozenset[str]:
    """The letters that ``text`` uses."""
    found: set[str] = set()
    at = text.find("%")
    while 0 <= at < len(text) - 1:
        found.add(text[at + 1])
        at = text.find("%", at + 2)
    return frozenset(found)
