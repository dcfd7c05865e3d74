"""An ``EnvironmentFile=`` as systemd reads it (systemd.exec(5), ``parse_env_file`` of systemd 252).

Shell-like, without expansion: single quotes are literal, double quotes know ``\\"``, ``\\\\``, ``\\$`` and ``\\```, a backslash
joins the next line, ``#`` and ``;`` begin a comment at the start of a line only, blanks around an unquoted value are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

_BLANKS = " \t\r"


@dataclass(frozen=True)
class Variable:
    """One assignment of the file."""

    name: str
    value: str
    line: int
    """From 1."""


def parse_env_file(text: str) -> tuple[Variable, ...]:
    """Variables in the order of the file; a later one of the same name wins. Lines that are none are skipped."""
    found: list[Variable] = []
    at, size = 0, len(text)
    while at < size:
        line = text.count("\n", 0, at) + 1
        while at < size and text[at] in _BLANKS + "\n":
            line += text[at] == "\n"
            at += 1
        if at < size and text[at] in "#;":
            at = _line_end(text, at)
            continue
        equals, end = text.find("=", at), _line_end(text, at)
        if equals < 0 or equals > end:
            at = end + 1
            continue
        name = text[at:equals].strip(_BLANKS)
        value, at = _value(text, equals + 1)
        if name.isidentifier() and name.isascii():
            found.append(Variable(name, value, line))
    return tuple(found)


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _value(text: str, at: int) -> tuple[str, int]:
    """The value that begins at ``at``, and the place of the newline that ends it."""
    parts: list[str] = []
    bare = 0
    """Trailing blanks outside quotes, which do not count."""
    size = len(text)
    while at < size and text[at] != "\n":
        character = text[at]
        if character == "'":
            close = text.find("'", at + 1)
            close = size if close < 0 else close
            parts.append(text[at + 1 : close])
            bare, at = 0, close + 1
        elif character == '"':
            quoted, at = _double_quoted(text, at + 1)
            parts.append(quoted)
            bare = 0
        elif character == "\\":
            if text[at + 1 : at + 2] != "\n":
                parts.append(text[at + 1 : at + 2])
                bare = 0
            at += 2
        else:
            blank = character in _BLANKS
            if not (blank and not parts):
                parts.append(character)
                bare = bare + 1 if blank else 0
            at += 1
    return "".join(parts[: len(parts) - bare]), at


def _double_quoted(text: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    while at < len(text) and text[at] != '"':
        if text[at] == "\\" and at + 1 < len(text):
            following = text[at + 1]
            if following in '"\\`$':
                parts.append(following)
            elif following != "\n":
                parts.append("\\" + following)
            at += 2
        else:
            parts.append(text[at])
            at += 1
    return "".join(parts), at + 1
