"""Text of a systemd unit file → assignments, read exactly as systemd reads it, each character's place kept.

Rules (systemd.syntax(7), and ``config_parse`` of systemd 252): a line whose last backslash is not itself escaped goes on in
the next, the backslash becoming a blank; lines that begin with ``#`` or ``;`` after blanks are skipped, also between
continued lines; a line without ``=`` is ignored with a warning; CRLF, CR and NUL end a line like LF; the first byte order mark
that begins a line is dropped; at a section header that is none, and at a line but a comment that is not UTF-8, the reading ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_LINE_END = re.compile(r"\r\n|\n|\r|\0")
_BLANKS = " \t\n\r"
_MARK = "\ufeff"
_NOT_UTF_8 = "\ufffd"
"""What reading puts in the place of bytes that are no UTF-8."""


@dataclass(frozen=True)
class UnitWarning:
    """Something in a unit file that does not mean what it seems to."""

    line: int
    """From 1."""
    text: str
    serious: bool = False
    """Settings are lost or arguments added without a word of systemd's on the screen."""


@dataclass(frozen=True)
class Assignment:
    """One ``key=value``, continued lines joined."""

    section: str
    key: str
    value: str
    line: int
    """The line that it begins in, from 1."""
    end_line: int
    offsets: tuple[int, ...] = field(default=(), repr=False)
    """For each character of ``value``: its place in the text (a joined line's blank is at the backslash)."""


@dataclass(frozen=True)
class UnitText:
    assignments: tuple[Assignment, ...]
    warnings: tuple[UnitWarning, ...] = ()
    broken: str = ""
    """Why systemd reads no further; a unit file with that is not loaded at all, a drop-in counts up to there."""

    def values(self, section: str, key: str) -> tuple[Assignment, ...]:
        """The assignments of one setting in order; an empty value resets what came before it, for settings that are lists."""
        return tuple(item for item in self.assignments if item.section == section and item.key == key)


@dataclass
class _Logical:
    """A line with those that continue it."""

    text: str
    offsets: list[int]
    line: int
    end_line: int

    def strip(self) -> None:
        start = len(self.text) - len(self.text.lstrip(_BLANKS))
        end = max(start, len(self.text.rstrip(_BLANKS)))
        self.text, self.offsets = self.text[start:end], self.offsets[start:end]


def parse_unit(text: str) -> UnitText:
    """Read a unit file or drop-in. Nothing raises; what is ignored is a warning."""
    assignments: list[Assignment] = []
    warnings: list[UnitWarning] = []
    section = broken = ""
    for logical in _logical_lines(text):
        logical.strip()
        line = logical.text
        if not line:
            continue
        if _NOT_UTF_8 in line:
            broken = _broken(warnings, logical.end_line, "The line is not UTF-8")
            break
        if line.startswith("["):
            if line.endswith("]"):
                section = line[1:-1]
                continue
            broken = _broken(warnings, logical.end_line, f"'{line[:60]}' is no section header")
            break
        key, equals, _ = line.partition("=")
        if not equals:
            # systemd names the last of the lines that were joined.
            warnings.append(UnitWarning(logical.end_line, "Missing '=', ignoring line.", serious=True))
            continue
        if not section:
            warnings.append(UnitWarning(logical.line, "Assignment outside of section. Ignoring."))
            continue
        value = _Logical(line[len(key) + 1 :], logical.offsets[len(key) + 1 :], logical.line, logical.end_line)
        value.strip()
        if value.text.endswith("\\") and not value.text.endswith("\\\\"):
            message = (
                "a blank follows the backslash at the end of the line: the line does not continue, and what stands below is lost"
            )
            warnings.append(UnitWarning(logical.end_line, message, serious=True))
        assignments.append(
            Assignment(section, key.strip(_BLANKS), value.text, logical.line, logical.end_line, tuple(value.offsets))
        )
    return UnitText(tuple(assignments), tuple(warnings), broken)


def _broken(warnings: list[UnitWarning], line: int, what: str) -> str:
    """Note that the reading ends at a line, and say it with the line's number."""
    said = f"{what}, and systemd reads no further"
    warnings.append(UnitWarning(line, said, serious=True))
    return f"In line {line} {said[:1].lower()}{said[1:]}."


def _logical_lines(text: str) -> Iterator[_Logical]:
    pending: _Logical | None = None
    for number, (start, raw) in enumerate(_physical_lines(text), 1):
        if raw.lstrip(_BLANKS)[:1] in ("#", ";"):
            continue
        if pending is None:
            pending = _Logical("", [], number, number)
        pending.text += raw
        pending.offsets += range(start, start + len(raw))
        pending.end_line = number
        if _continues(pending.text):
            pending.text = pending.text[:-1] + " "
            continue
        yield pending
        pending = None
    if pending is not None:
        yield pending


def _physical_lines(text: str) -> Iterator[tuple[int, str]]:
    start, marked = 0, False
    for match in (*_LINE_END.finditer(text), None):
        end = match.start() if match is not None else len(text)
        if not marked and text.startswith(_MARK, start, end):
            start, marked = start + len(_MARK), True
        if match is not None or start < end:
            yield start, text[start:end]
        start = match.end() if match is not None else end


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1
