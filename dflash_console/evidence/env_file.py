"""An ``EnvironmentFile=`` as systemd reads it (systemd.exec(5), ``parse_env_file`` of systemd 252).

Shell-like, without expansion: single quotes are literal, double quotes know ``\\"``, ``\\\\``, ``\\$`` and ``\\```, a backslash
joins the next line, ``#`` and ``;`` begin a comment at the start of a line only, blanks around an unquoted value are dropped.
Unlike in a shell, a quote behind a bare character is a character (``A=x"y"`` keeps its quotes). A byte order mark is no blank, as
it is in a unit: it belongs to the name that it stands before, which is then none.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_BLANKS = " \t"
_NEWLINES = "\n\r"
_MARK = "\ufeff"


@dataclass(frozen=True)
class Variable:
    """One assignment of the file."""

    name: str
    value: str
    line: int
    """From 1."""
    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)
    """``text[start:end]`` is the value as written, quotes included."""
    spans: tuple[tuple[int, int], ...] = field(default=(), repr=False, compare=False)
    """For each character of ``value``: where in the text it is written."""


def parse_env_file(text: str) -> tuple[Variable, ...]:
    """Variables in the order of the file; a later one of the same name wins. Lines that are none are skipped."""
    found: list[Variable] = []
    at, size = 0, len(text)
    while at < size:
        while at < size and text[at] in _BLANKS + _NEWLINES:
            at += 1
        if text[at : at + 1] in ("#", ";"):
            at = _comment_end(text, at)
            continue
        end = _line_end(text, at)
        # A line that begins with "=" has a name that does, which is none.
        equals = text.find("=", at + 1, end)
        if equals < 0:
            at = end + 1
            continue
        line = text.count("\n", 0, at) + 1
        name = text[at:equals].strip(_BLANKS)
        value = _Value(text, equals + 1)
        at = value.at
        if name.isidentifier() and name.isascii():
            found.append(Variable(name, "".join(value.parts), line, value.start, value.end, tuple(value.spans)))
    return tuple(found)


def lost_to_mark(text: str) -> str:
    """The variable that systemd ignores because the file begins with a byte order mark, as some editors write it; else empty."""
    first = parse_env_file(text.removeprefix(_MARK))[:1] if text.startswith(_MARK) else ()
    return first[0].name if first and first[0].line == 1 else ""


def quote_value(value: str) -> str:
    """``value`` so that :func:`parse_env_file`, and a shell that reads the file, give it back."""
    if value and all(character.isalnum() or character in "_-./:,=+@%^" for character in value):
        return value
    return '"' + "".join(f"\\{character}" if character in '"\\`$' else character for character in value) + '"'


def _line_end(text: str, at: int) -> int:
    while at < len(text) and text[at] not in _NEWLINES:
        at += 1
    return at


def _comment_end(text: str, at: int) -> int:
    """Up to systemd 253 a backslash at the end of a comment makes the next line a comment too."""
    while at < len(text) and text[at] not in _NEWLINES:
        at += 2 if text[at] == "\\" else 1
    return at


class _Value:
    """The value that begins at ``at``; afterwards ``at`` is the place of the newline that ends it.

    Quotes open at the beginning and after another quoted part only; blanks there are dropped. Once a bare character stands, the
    rest of the line is bare, quotes in it included.
    """

    def __init__(self, text: str, at: int) -> None:
        self.text = text
        self.at = self.start = self.end = at
        self.parts: list[str] = []
        self.spans: list[tuple[int, int]] = []
        self._trailing = 0
        """Bare blanks at the end, which do not count."""
        while self.at < len(text) and text[self.at] not in _NEWLINES:
            if text[self.at] in _BLANKS:
                self.at += 1
                self.start, self.end = (self.at, self.at) if self.end == self.start else (self.start, self.end)
                continue
            if text[self.at] not in "'\"":
                self._bare()
                break
            self._quoted(text[self.at])
            self.end = min(self.at, len(text))
        kept = len(self.parts) - self._trailing
        self.parts, self.spans = self.parts[:kept], self.spans[:kept]

    def _take(self, start: int, end: int, value: str | None = None) -> None:
        self.parts.append(self.text[start] if value is None else value)
        self.spans.append((start, end))
        self.at = end

    def _bare(self) -> None:
        text = self.text
        while self.at < len(text) and text[self.at] not in _NEWLINES:
            blank = text[self.at] in _BLANKS
            self._trailing = self._trailing + 1 if blank else 0
            if text[self.at] != "\\":
                self._take(self.at, self.at + 1)
            elif text[self.at + 1 : self.at + 2] in ("\n", "\r", ""):
                self.at += 2
            else:
                self._take(self.at, self.at + 2, text[self.at + 1])
            if not blank:
                self.end = min(self.at, len(text))

    def _quoted(self, quote: str) -> None:
        text = self.text
        self.at += 1
        while self.at < len(text) and text[self.at] != quote:
            following = text[self.at + 1 : self.at + 2]
            if quote == "'" or text[self.at] != "\\":
                self._take(self.at, self.at + 1)
            elif following and following in '"\\`$':
                self._take(self.at, self.at + 2, following)
            elif following in ("\n", ""):
                self.at += 2
            else:
                self._take(self.at, self.at + 1)
                self._take(self.at, self.at + 1)
        self.at += 1
