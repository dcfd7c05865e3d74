"""The smallest change of a written text that makes it mean another value, when each character of the value knows its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Span = tuple[int, int]
_TOKENS = re.compile(r"\s+|\S+")


@dataclass(frozen=True)
class Splice:
    """``text[start:end]`` becomes ``text``."""

    start: int
    end: int
    text: str

    def apply(self, text: str) -> str:
        return text[: self.start] + self.text + text[self.end :]


def compose(outer: Sequence[Span], inner: Sequence[Span]) -> tuple[Span, ...]:
    """Places of characters two levels down: ``inner`` ranges are positions in what ``outer`` gives places for."""
    return tuple((outer[start][0], outer[end - 1][1]) if start < end <= len(outer) else (-1, -1) for start, end in inner)


def changed_middle(old: str, new: str) -> tuple[int, int, str]:
    """``old[start:end]`` → text, with what is equal at both ends left out.

    In a long text the last place that changed is given alone, so that what stands between two places is not rewritten.
    """
    old_tokens, new_tokens = _TOKENS.findall(old), _TOKENS.findall(new)
    if len(old_tokens) == len(new_tokens) > 1:
        changed = [index for index, pair in enumerate(zip(old_tokens, new_tokens, strict=True)) if pair[0] != pair[1]]
        if changed:
            before = sum(len(token) for token in old_tokens[: changed[-1]])
            start, end, text = _middle(old_tokens[changed[-1]], new_tokens[changed[-1]])
            return before + start, before + end, text
    return _middle(old, new)


def _middle(old: str, new: str) -> tuple[int, int, str]:
    shorter = min(len(old), len(new))
    head = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    tail = next((index for index in range(shorter - head) if old[-1 - index] != new[-1 - index]), shorter - head)
    return head, len(old) - tail, new[head : len(new) - tail]


def splice_value(old: str, new: str, places: Sequence[Span], write: Callable[[str], str | None]) -> Splice | None:
    """One step from ``old`` to ``new`` where ``old`` is written; ``None`` when it cannot be done without rewriting the whole.

    Args:
        places: for each character of ``old`` where it is written.
        write: how characters are written at that place; ``None`` when they cannot be.
    """
    if not old or len(places) != len(old):
        return None
    start, end, text = changed_middle(old, new)
    # A place that stands for several characters (a specifier, an escape) can only be replaced whole.
    if 0 < start < len(old) and places[start - 1] == places[start] and places[start][1] - places[start][0] > 1:
        return None
    if 0 < end < len(old) and places[end - 1] == places[end] and places[end][1] - places[end][0] > 1:
        return None
    written = write(text)
    if written is None:
        return None
    first = places[start][0] if start < end else (places[start - 1][1] if start else places[0][0])
    last = places[end - 1][1] if start < end else first
    return Splice(first, last, written) if 0 <= first <= last else None
