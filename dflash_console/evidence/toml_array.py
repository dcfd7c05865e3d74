"""Edits of one TOML array of strings that keep its layout: a changed word is changed in its place, no comment is ever lost.

Grammar: TOML 1.0, "Array", "String" and "Comment". Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .word_diff import differences

_TOKEN = re.compile(
    r"""(?P<string>\"{3}(?:\\.|(?!\"{3}).)*\"{3,5}|'{3}(?:(?!'{3}).)*'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
    r"""|(?P<comma>,)|(?P<comment>\#[^\n]*)|(?P<blank>[ \t\r\n]+)|(?P<end>\])""",
    re.DOTALL,
)


@dataclass(frozen=True)
class _Item:
    """One string of the array: where it stands in the text, and where the comma behind it ends, if it has one."""

    start: int
    end: int
    comma: int | None


@dataclass(frozen=True)
class _Array:
    items: tuple[_Item, ...]
    end: int
    """Behind the closing bracket."""


def quote(word: str) -> str:
    """``word`` as a TOML basic string."""
    named = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
    return '"' + "".join(named.get(c) or (f"\\u{ord(c):04x}" if ord(c) < 0x20 or ord(c) == 0x7F else c) for c in word) + '"'


def edit_array(text: str, start: int, old: Sequence[str], new: Sequence[str], newline: str = "\n") -> str | None:
    """``text`` with the words of one array changed from ``old`` to ``new``.

    A word that gives way to another is replaced where it stands. A word more stands on a line of its own where the words
    around it do, else behind its neighbour. With a word less, its comma goes too, and its line when nothing else is on it.
    Comments stay, also behind a word that goes.

    Args:
        start: just behind the array's opening bracket.
        old: the words as TOML reads them; not empty.
        newline: what ends a line of the file.

    Returns:
        ``None`` when there is no array of just ``old``'s length at ``start``.
    """
    array = _scan(text, start)
    if array is None or len(array.items) != len(old) or not new:
        return None
    # From the end, so that the places before a change stay right.
    for first, last, new_first, new_last in reversed(differences(old, new)):
        both = min(last - first, new_last - new_first)
        if (more := new[new_first + both : new_last]) and first + both:
            text = _insert_behind(text, start, first + both - 1, more, newline)
        elif more:
            text = _insert_first(text, start, more, newline)
        for place in range(last - 1, first + both - 1, -1):
            text = _remove(text, start, place)
        for offset in range(both - 1, -1, -1):
            text = _replace(text, start, first + offset, new[new_first + offset])
    return text


def _scan(text: str, start: int) -> _Array | None:
    items: list[_Item] = []
    at = start
    while found := _TOKEN.match(text, at):
        at = found.end()
        if found.lastgroup == "string":
            items.append(_Item(found.start(), at, None))
        elif found.lastgroup == "comma" and items:
            items[-1] = _Item(items[-1].start, items[-1].end, at)
        elif found.lastgroup == "end":
            return _Array(tuple(items), at)
    return None


def _items(text: str, start: int) -> tuple[_Item, ...]:
    array = _scan(text, start)
    return array.items if array is not None else ()


def _replace(text: str, start: int, place: int, word: str) -> str:
    item = _items(text, start)[place]
    literal = text[item.start] == "'" and text[item.start : item.start + 3] != "'''" and re.fullmatch(r"[^'\x00-\x1f\x7f]*", word)
    return text[: item.start] + (f"'{word}'" if literal else quote(word)) + text[item.end :]


def _remove(text: str, start: int, place: int) -> str:
    items = _items(text, start)
    item = items[place]
    begin, end = item.start, item.comma if item.comma is not None else item.end
    if item.comma is not None and text[item.end : end - 1].strip(" \t"):
        # A comment or a line's end stands between the word and its comma: those stay.
        return text[:begin] + text[item.end : end - 1] + text[end:]
    behind = _blanks(text, end)
    alone = _line_start(text, begin) is not None
    if alone and text.startswith(("\n", "\r\n"), behind):
        return text[: _line_start(text, begin)] + text[text.index("\n", behind) + 1 :]
    if item.comma is None and place and not text[(before := items[place - 1].end) : begin].strip(" \t,"):
        # The last word of a line without a comma at its end: its neighbour becomes such a word.
        return text[:before] + text[end:]
    if text[behind] in "\r\n":
        return text[:begin].rstrip(" \t") + text[behind:]
    return text[:begin] + text[behind:]


def _insert_behind(text: str, start: int, place: int, words: Sequence[str], newline: str) -> str:
    items = _items(text, start)
    item = items[place]
    line = text.rfind("\n", 0, item.start) + 1
    indent = text[line : _blanks(text, line)]
    rest = _rest_of_line(text, item)
    if rest is None or line <= start:
        separator = "," if re.search(r"[\"'],[\"']", text[start : items[-1].end]) else ", "
        return text[: item.end] + "".join(separator + quote(word) for word in words) + text[item.end :]
    # A line of its own for each word where words have that, one line for all where lines hold several.
    own = _line_start(text, item.start) is not None
    fresh = [quote(word) for word in words] if own else [", ".join(quote(word) for word in words)]
    lines = "".join(f"{newline}{indent}{word}," for word in fresh)
    if item.comma is None:
        return text[: item.end] + "," + text[item.end : rest] + lines[:-1] + text[rest:]
    return text[:rest] + lines + text[rest:]


def _insert_first(text: str, start: int, words: Sequence[str], newline: str) -> str:
    item = _items(text, start)[0]
    line = _line_start(text, item.start)
    between = f",{newline}{text[line : item.start]}" if line is not None and line > start else ", "
    return text[: item.start] + "".join(quote(word) + between for word in words) + text[item.start :]


def _rest_of_line(text: str, item: _Item) -> int | None:
    """Where the line ends that ``item`` is the last word of; ``None`` when something else than a comment follows it there."""
    if item.comma is not None and text[item.end : item.comma - 1].strip(" \t"):
        return None
    at = _blanks(text, item.comma if item.comma is not None else item.end)
    if text[at] == "#":
        at = text.index("\n", at)
        return at - 1 if text[at - 1] == "\r" else at
    return at if text.startswith(("\n", "\r\n"), at) else None


def _line_start(text: str, at: int) -> int | None:
    """Where the line of ``at`` begins, when nothing but blanks stands between."""
    line = text.rfind("\n", 0, at) + 1
    return line if not text[line:at].strip(" \t") else None


def _blanks(text: str, at: int) -> int:
    """The first place from ``at`` on that is no blank."""
    while text[at : at + 1] in (" ", "\t"):
        at += 1
    return at
