"""What a command prints: one JSON document for programs, or plain text for people.

Text that came from a host (log lines, names, model output) is data: control characters are taken out before it is shown,
so that it can neither move the cursor nor colour the terminal.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TextIO

from ..evidence.terminal_text import strip_escapes
from .asking import forget_typed
from .outcome import CommandError

JsonValue = str | int | float | bool | None | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
"""What a JSON document is made of."""


BETWEEN = "  "
"""Between two columns of a table."""


class Tone(Enum):
    """What a piece of text says, beside its words: shown as colour where the terminal has it."""

    GOOD = "32"
    BAD = "31"
    CAUTION = "33"
    FAINT = "2"
    STRONG = "1"


@dataclass(frozen=True)
class Cell:
    """A table's cell with a tone; plain strings are cells without one."""

    text: str
    tone: Tone | None = None


_NOT_IN_JSON = re.compile(r"[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What JSON does not escape by itself and a terminal may act on: U+009B begins a sequence as escape and bracket do."""
_DIRECTION = re.compile(r"[\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Marks that turn the direction of writing: they can make a line read as another."""


def clean(text: str) -> str:
    """``text`` without escape sequences, control and direction characters; tabs and line ends stay."""
    if text.isascii() and text.isprintable():
        return text
    return _DIRECTION.sub("", strip_escapes(text)).replace("\r", "")


def _dumped(value: JsonValue, indent: int | None = None) -> str:
    """One document and a line end; its strings are those of ``value``, and nothing in it acts on a terminal."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False)
    return _NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


class ReaderGone(Exception):
    """Whoever read the output has had enough (``… | head``)."""


class OutputFailed(CommandError):
    """What was to be printed could not be (a full disk, a terminal that hung up)."""


class Output:
    """Standard output and error of one command."""

    def __init__(self, *, json_wanted: bool, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self._out = sys.stdout if stdout is None else stdout
        self._err = sys.stderr if stderr is None else stderr
        self.json_wanted = json_wanted
        self._colour = not json_wanted and _has_colour(self._out)
        self._finish = False

    def finish_unread(self) -> None:
        """Output that cannot be written ends nothing from here on: the exit code of a change of a host must be true."""
        self._finish = True

    @property
    def interactive(self) -> bool:
        """Whether somebody is there to be asked."""
        return not self.json_wanted and sys.stdin is not None and sys.stdin.isatty() and self._out.isatty()

    @property
    def columns(self) -> int | None:
        """The terminal's width; ``None`` for a pipe or a file, which take whole lines."""
        return shutil.get_terminal_size().columns if self._out.isatty() else None

    def document(self, value: JsonValue) -> None:
        """Print the command's JSON document. Unlike text it holds remote strings as they are: JSON escapes them."""
        self._put(_dumped(value, indent=2))

    def record(self, value: JsonValue) -> None:
        """Print one JSON document on a line of its own (streams of records)."""
        self._put(_dumped(value))

    def line(self, text: str = "", tone: Tone | None = None) -> None:
        self._put(self.paint(clean(text), tone) + "\n")

    def write(self, text: str, tone: Tone | None = None) -> None:
        """Text without a line end: answers as they stream."""
        self._put(self.paint(clean(text), tone))

    def note(self, text: str) -> None:
        """A remark beside the result, on standard error."""
        self._put(clean(text) + "\n", self._err)

    def error(self, message: str) -> None:
        """The sentence that a failed command ends with; with ``--json`` also as a document."""
        if self.json_wanted:
            self.document({"error": message})
        self.note(f"ddtree-console: {message}")

    def paint(self, text: str, tone: Tone | None) -> str:
        return f"\x1b[{tone.value}m{text}\x1b[0m" if self._colour and tone is not None and text else text

    def table(
        self, rows: Sequence[Sequence[str | Cell]], *, header: Sequence[str] = (), indent: int = 0, wrap: bool = False
    ) -> None:
        """Columns padded to their widest cell, the last one unpadded.

        Args:
            wrap: on a terminal, sentences in the last column go on under themselves; a pipe or a file takes whole lines.
        """
        cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
        cells = [[Cell(clean(cell.text).replace("\n", " "), cell.tone) for cell in row] for row in cells]
        if header:
            cells.insert(0, [Cell(title, Tone.FAINT) for title in header])
        if not cells:
            return
        widths = [max(width(row[column].text) for row in cells if column < len(row)) for column in range(max(map(len, cells)))]
        edge = indent + sum(column + len(BETWEEN) for column in widths[:-1])
        room = self.columns - edge if wrap and self.columns is not None else None
        lines = []
        for row in cells:
            *first, last = row or [Cell("")]
            parts = [
                self.paint(cell.text, cell.tone) + " " * (size - width(cell.text))
                for cell, size in zip(first, widths, strict=False)
            ]
            texts = [last.text]
            if room is not None and len(row) == len(widths) and width(last.text) > room:
                # Only here: the first paint of the screens waits for nothing that it does not show.
                from engine_launch.spec.wrapping import under_itself

                texts = under_itself(last.text, room)
            parts.append(f"\n{' ' * edge}".join(self.paint(text, last.tone) for text in texts))
            lines.append(" " * indent + BETWEEN.join(parts).rstrip() + "\n")
        self._put("".join(lines))

    def ask(self, question: str) -> bool:
        """A yes-or-no question at a terminal; anything but yes is no, and what was typed before it is no answer."""
        forget_typed()
        self._put(f"{question} [y/N] ")
        return sys.stdin.readline().strip().casefold() in ("y", "yes")

    def _put(self, text: str, stream: TextIO | None = None) -> None:
        """Raises: ReaderGone, OutputFailed: what is said reaches nobody any more, and the command has nothing to finish."""
        to = self._out if stream is None else stream
        try:
            to.write(text)
            to.flush()
        except OSError as problem:
            # Python would complain again when it exits, about what is still in the stream's buffer.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), to.fileno())
            if self._finish or stream is not None:
                return
            if isinstance(problem, BrokenPipeError):
                raise ReaderGone from None
            raise OutputFailed(f"the output cannot be written: {problem.strerror}") from None


def width(text: str) -> int:
    """Columns that ``text`` takes in a terminal (East Asian wide characters take two, combining ones none)."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text
    )


def _has_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
