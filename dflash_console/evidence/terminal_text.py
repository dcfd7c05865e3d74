"""Text as a terminal would show it: escape sequences gone, progress bars reduced to their last state.

Everything that a host sends is text to show, never commands to this terminal: cursor movement, colours, titles and
invisible direction marks are dropped before anything else looks at a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .values import whole

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)"  # OSC: titles, links, clipboard
    r"|\x1b[PX^_][^\x1b\n]{0,4096}\x1b\\"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor movement
    r"|\x1b[ -/]*[0-~]?"
)
"""One that takes a text and has no end takes only its beginning along: what follows would be hidden, to the end of an answer."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_INVISIBLE = re.compile("[\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")

_BAR = re.compile(
    r"(?P<label>[^\r\n|]{0,200}?):?\s{0,8}(?P<percent>\d{1,3})%(?:\s*Completed)?\s*\|(?:[^|\r\n]*\|)?"
    r"\s*(?P<done>\d+)/(?P<total>\d+)\s*\[(?P<times>[^\]\r\n]*)\]"
)
_TIMES = re.compile(r"(?P<elapsed>[\d:]+)<(?P<left>[\d:]+)")
_DETAIL = re.compile(r"\s*\([^()]*\)\s*$")


@dataclass(frozen=True)
class Progress:
    """The last state of a progress bar (tqdm's form)."""

    label: str
    """What is being done, without the changing details: ``Capturing batches``."""
    done: int
    total: int
    percent: int
    elapsed_s: float | None = None
    left_s: float | None = None
    """The bar's own estimate."""

    @property
    def finished(self) -> bool:
        return self.total > 0 and self.done >= self.total


def strip_escapes(text: str) -> str:
    """``text`` without escape sequences and control characters; newlines, tabs and carriage returns stay."""
    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)
    return _CONTROLS.sub("", text)


def clean_line(text: str) -> str:
    """One line to show: the last state of what carriage returns overwrote, no escapes, no invisible characters."""
    visible = ""
    for part in strip_escapes(text).split("\r"):
        if part.strip():
            visible = part
    return _INVISIBLE.sub("", visible).replace("\t", "    ").rstrip("\n ")


def one_line(text: str) -> str:
    """As :func:`clean_line`, for text that may have line ends inside it, such as an argument that is a script."""
    return clean_line(text.strip("\n").replace("\n", "⏎ "))


def split_line(text: str) -> tuple[str | Progress, ...]:
    """What one stored line holds: progress bars (only the last state of each run of one bar) and other text, in order.

    A bar and the next log line may share a stored line, because a bar ends without a newline.
    """
    parts: list[str | Progress] = []
    for raw in strip_escapes(text).split("\r"):
        rest = raw
        while rest.strip():
            match = _BAR.match(rest) if "%" in rest else None
            if match is None:
                parts.append(rest.strip("\n"))
                break
            progress = _progress(match)
            if progress is None:
                parts.append(rest.strip("\n"))
                break
            if parts and isinstance(parts[-1], Progress) and parts[-1].total == progress.total:
                parts.pop()
            parts.append(progress)
            rest = rest[match.end() :]
    return tuple(parts)


def parse_progress(text: str) -> Progress | None:
    """The last state of the progress bar in ``text``; ``None`` when there is none."""
    bars = [part for part in split_line(text) if isinstance(part, Progress)]
    return bars[-1] if bars else None


def _progress(match: re.Match[str]) -> Progress | None:
    """The bar; ``None`` when its counts are no numbers."""
    done, total, percent = whole(match["done"]), whole(match["total"]), whole(match["percent"])
    if done is None or total is None or percent is None:
        return None
    times = _TIMES.search(match["times"])
    return Progress(
        label=_DETAIL.sub("", match["label"]).strip(),
        done=done,
        total=total,
        percent=percent,
        elapsed_s=_seconds(times["elapsed"]) if times else None,
        left_s=_seconds(times["left"]) if times else None,
    )


def _seconds(clock: str) -> float | None:
    """Seconds of ``mm:ss`` or ``h:mm:ss``."""
    total = 0
    for part in clock.split(":"):
        if (number := whole(part)) is None:
            return None
        total = total * 60 + number
    return float(total)
