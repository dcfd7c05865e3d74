"""Edits of words that may lie inside shell strings inside other words, without touching any other byte.

A :class:`Layers` is a stack: the outermost layer is an argument list, each further one the shell text that a word of the
layer above is. Edits are stated in words of the innermost layer and carried outwards as replacements of character ranges.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .shell import ShellWord, split_shell

_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./~^-]*")


class EditError(ValueError):
    """The place cannot be edited without changing how the text around it is read."""


@dataclass(frozen=True)
class Edit:
    """One change of the innermost words."""

    index: int
    words: tuple[str, ...]
    """New words to insert before ``index``, or the one replacement; empty to remove the word."""
    start: int | None = None
    """For a replacement: from this character of the word to its end."""

    @classmethod
    def replace(cls, index: int, start: int, text: str) -> Edit:
        return cls(index, (text,), start)

    @classmethod
    def insert(cls, index: int, words: Sequence[str]) -> Edit:
        return cls(index, tuple(words))

    @classmethod
    def remove(cls, index: int) -> Edit:
        return cls(index, ())


@dataclass(frozen=True)
class _Splice:
    start: int
    end: int
    text: str


@dataclass(frozen=True)
class _Text:
    """A shell text and the words in it."""

    text: str
    tokens: tuple[ShellWord, ...]


@dataclass(frozen=True)
class Layers:
    """The argument list, and the shell texts entered on the way in."""

    argv: tuple[str, ...]
    texts: tuple[_Text, ...] = ()
    entered: tuple[int, ...] = ()
    """For each text: the index of the word it is, in the layer above."""

    @property
    def words(self) -> tuple[str, ...]:
        """Words of the innermost layer (operators of a shell text included, in their places)."""
        return tuple(token.value for token in self.texts[-1].tokens) if self.texts else self.argv

    def opaque(self, index: int) -> bool:
        return bool(self.texts) and self.texts[-1].tokens[index].opaque

    def enter(self, index: int) -> Layers:
        """The stack with the word at ``index`` of the innermost layer taken as a shell text."""
        text = self.words[index]
        return Layers(self.argv, (*self.texts, _Text(text, split_shell(text))), (*self.entered, index))

    def commands(self) -> Iterator[tuple[int, int]]:
        """Index ranges of the simple commands of the innermost layer. A redirection ends the range that it stands behind."""
        if not self.texts:
            yield 0, len(self.argv)
            return
        begin = 0
        tokens = self.texts[-1].tokens
        for index, token in enumerate(tokens):
            if token.operator:
                if index > begin:
                    yield begin, index
                begin = index + 1
        if begin < len(tokens):
            yield begin, len(tokens)

    def apply(self, edits: Iterable[Edit]) -> tuple[str, ...]:
        """The argument list after the edits.

        Raises:
            EditError: a value would need quoting inside a string that is itself quoted.
        """
        pending = list(edits)
        if not pending:
            return self.argv
        if not self.texts:
            return edited(self.argv, pending)
        splices = _to_splices(self.texts[-1], pending)
        for level in range(len(self.texts) - 1, 0, -1):
            token = self.texts[level - 1].tokens[self.entered[level]]
            splices = [_outwards(token, splice) for splice in splices]
        changed = _apply_splices(self.texts[0].text, splices)
        index = self.entered[0]
        return (*self.argv[:index], changed, *self.argv[index + 1 :])


def top_layer(argv: Sequence[str]) -> Layers:
    return Layers(tuple(argv))


def edited(argv: Sequence[str], edits: Iterable[Edit]) -> tuple[str, ...]:
    """The words after the edits."""
    words = list(argv)
    for edit in sorted(edits, key=lambda edit: edit.index, reverse=True):
        if edit.start is not None:
            words[edit.index] = words[edit.index][: edit.start] + edit.words[0]
        elif edit.words:
            words[edit.index : edit.index] = edit.words
        else:
            del words[edit.index]
    return tuple(words)


def _to_splices(layer: _Text, edits: Sequence[Edit]) -> list[_Splice]:
    splices: list[_Splice] = []
    for edit in edits:
        if edit.start is not None:
            token = layer.tokens[edit.index]
            splices.append(_replacement(layer, token, edit.start, edit.words[0]))
        elif edit.words:
            point = layer.tokens[edit.index - 1].end
            splices.append(_Splice(point, point, "".join(f" {shlex.quote(word)}" for word in edit.words)))
        else:
            token = layer.tokens[edit.index]
            splices.append(_Splice(_gap_start(layer, edit.index), token.end, ""))
    return splices


def _replacement(layer: _Text, token: ShellWord, start: int, text: str) -> _Splice:
    empty_quotes = start == len(token.value) and layer.text[token.start : token.end][-2:] in ("''", '""')
    if not text or not _SAFE.fullmatch(text) or token.opaque or empty_quotes or not token.unbroken(start, len(token.value)):
        # Quoting of the old word cannot be kept: the whole word is written anew.
        return _Splice(token.start, token.end, shlex.quote(token.value[:start] + text))
    begin, end = token.place(start, len(token.value))
    return _Splice(begin, end, text)


def _gap_start(layer: _Text, index: int) -> int:
    """Where the blanks before a word begin, so that removing both leaves one gap."""
    start = layer.tokens[index].start
    floor = layer.tokens[index - 1].end if index else 0
    gap = layer.text[floor:start]
    if gap.replace("\\\n", "").strip(" \t\r"):
        return start
    return floor


def _outwards(token: ShellWord, splice: _Splice) -> _Splice:
    if not token.unbroken(splice.start, splice.end):
        raise EditError("the value is written in several quoted parts inside a shell string; edit it by hand")
    start, end = token.place(splice.start, splice.end)
    quote = token.quote_at(splice.end if splice.start == splice.end else splice.start + 1)
    text = splice.text
    if not _SAFE.fullmatch(text.replace(" ", "")):
        raise EditError("the value needs quoting inside a shell string within a shell string; edit it by hand")
    if quote == " ":
        text = text.replace(" ", "\\ ")
    return _Splice(start, end, text)


def _apply_splices(text: str, splices: Sequence[_Splice]) -> str:
    for splice in sorted(splices, key=lambda splice: splice.start, reverse=True):
        text = text[: splice.start] + splice.text + text[splice.end :]
    return text
