"""POSIX shell words with their places in the text, so that one word can be edited and every other byte stays.

Only what is needed to find an engine's command line in ``bash -c '…'``: words, quotes, escapes, operators, comments.
Nothing is ever expanded; ``$(…)``, ``${…}``, ``$NAME`` and backquotes stay as written and mark their word *opaque*.
Source: POSIX.1-2017, Shell Command Language, sections 2.2 and 2.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_OPERATOR = re.compile(r"\d*(?:<<<|<<-|<<|<>|<&|>>|>\||>&|<|>)|&>>|&>|&&|\|\||;;|[;&|()\n]")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_DOLLAR = "$"
_C_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<x>[0-9a-fA-F]{1,2})|u(?P<u>[0-9a-fA-F]{1,4})|U(?P<U>[0-9a-fA-F]{1,8})|(?P<named>.))",
    re.DOTALL,
)
_C_NAMED = {
    **{"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"},
    **{character: character for character in "\\'\"?"},
}
_HERE = re.compile(r"\d*<<(-?)")
_REDIRECTION = re.compile(r"^(?:\d*[<>]|&>)")


@dataclass(frozen=True)
class ShellWord:
    """One word or operator of a shell text."""

    value: str
    """The word after quote removal; expansions stand in it as written."""
    start: int
    end: int
    """``text[start:end]`` is the word as written."""
    spans: tuple[tuple[int, int], ...] = field(repr=False)
    """For each character of ``value``: where in the text it is written."""
    quotes: str = field(repr=False)
    """For each character of ``value``: ``'``, ``"``, ``$`` (in ``$'…'``) or a blank (not quoted)."""
    opaque: bool = False
    """Holds an expansion: what the program gets is not known here."""
    operator: bool = False

    @property
    def redirection(self) -> bool:
        return self.operator and _REDIRECTION.match(self.value) is not None

    def place(self, start: int, end: int) -> tuple[int, int]:
        """Where ``value[start:end]`` is written; an empty range is the point after the character before it."""
        if start < end:
            return self.spans[start][0], self.spans[end - 1][1]
        if start > 0:
            return self.spans[start - 1][1], self.spans[start - 1][1]
        point = self.spans[0][0] if self.spans else self.end
        return point, point

    def unbroken(self, start: int, end: int) -> bool:
        """Whether ``value[start:end]`` is written in one piece: no quote begins or ends inside."""
        return all(one[1] == other[0] for one, other in zip(self.spans[start:end], self.spans[start + 1 : end], strict=False))

    def quote_at(self, position: int) -> str:
        """The quoting in force where a character would be inserted at ``position`` of the value."""
        if not self.quotes:
            return " "
        return self.quotes[min(max(position - 1, 0), len(self.quotes) - 1)]


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._clear()

    def _clear(self) -> None:
        self.value: list[str] = []
        self.spans: list[tuple[int, int]] = []
        self.quotes: list[str] = []
        self.opaque = False

    def _take(self, start: int, end: int, quote: str, value: str | None = None) -> None:
        """Characters written at ``start … end``; ``value`` when they stand for something shorter."""
        if value is None:
            for position in range(start, end):
                self.value.append(self.text[position])
                self.spans.append((position, position + 1))
                self.quotes.append(quote)
        else:
            self.value.append(value)
            self.spans.append((start, end))
            self.quotes.append(quote)
        self.at = end

    def words(self) -> tuple[ShellWord, ...]:
        found: list[ShellWord] = []
        documents: list[tuple[str, bool]] = []
        """Here-documents whose text begins behind the next line end: the line that ends it, and whether tabs before it count."""
        text, size = self.text, len(self.text)
        while self.at < size:
            if text[self.at] in " \t\r":
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif text[self.at] == "#":
                newline = text.find("\n", self.at)
                self.at = size if newline < 0 else newline
            elif match := _OPERATOR.match(text, self.at):
                self.at = match.end()
                spans = tuple((i, i + 1) for i in range(match.start(), match.end()))
                found.append(ShellWord(match.group(), match.start(), match.end(), spans, " " * len(spans), operator=True))
                if match.group() == "\n":
                    while documents:
                        self._skip_document(*documents.pop(0))
            else:
                found.append(self._word())
                if len(found) > 1 and found[-2].operator and (document := _HERE.fullmatch(found[-2].value)):
                    documents.append((found[-1].value, not document[1]))
        return tuple(found)

    def _skip_document(self, last: str, tabs: bool) -> None:
        """Pass the text of a here-document: what stands in it is no command."""
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            line = self.text[self.at : end]
            self.at = min(end + 1, len(self.text))
            if (line if tabs else line.lstrip("\t")) == last:
                return

    def _word(self) -> ShellWord:
        self._clear()
        start, text, size = self.at, self.text, len(self.text)
        while self.at < size and not (text[self.at] in " \t\r" or self._ends_word()):
            character = text[self.at]
            if character == "'":
                close = text.find("'", self.at + 1)
                close = size if close < 0 else close
                self._take(self.at + 1, close, "'")
                self.at = min(close + 1, size)
            elif character == '"':
                self._double_quoted()
            elif text.startswith("$'", self.at):
                self._dollar_quoted()
            elif text.startswith('$"', self.at):
                # A translated string: in a shell without translations the string itself.
                self.at += 1
            elif character == "\\":
                self._escape()
            elif character in "$`":
                self._expansion(" ")
            else:
                self._take(self.at, self.at + 1, " ")
        return ShellWord("".join(self.value), start, self.at, tuple(self.spans), "".join(self.quotes), opaque=self.opaque)

    def _ends_word(self) -> bool:
        match = _OPERATOR.match(self.text, self.at)
        # Digits before < or > belong to the operator only at the start of a word ("2>&1"), and _word is not called there.
        return match is not None and not match.group()[0].isdigit()

    def _escape(self) -> None:
        following = self.text[self.at + 1 : self.at + 2]
        if following == "\n":
            self.at += 2
        elif following:
            self._take(self.at, self.at + 2, " ", following)
        else:
            self._take(self.at, self.at + 1, " ")

    def _double_quoted(self) -> None:
        text, size = self.text, len(self.text)
        self.at += 1
        while self.at < size and text[self.at] != '"':
            following = text[self.at + 1 : self.at + 2]
            if text[self.at] == "\\" and following == "\n":
                self.at += 2
            elif text[self.at] == "\\" and following and following in '$`"\\':
                self._take(self.at, self.at + 2, '"', following)
            elif text[self.at] in "$`":
                self._expansion('"')
            else:
                self._take(self.at, self.at + 1, '"')
        self.at = min(self.at + 1, size)

    def _dollar_quoted(self) -> None:
        """``$'…'``: as single quotes, with escapes as in C (POSIX.1-2024, 2.2.4; bash and its relatives)."""
        text, size = self.text, len(self.text)
        self.at += 2
        while self.at < size and text[self.at] != "'":
            match = _C_ESCAPE.match(text, self.at)
            if match is None:
                self._take(self.at, self.at + 1, _DOLLAR)
                continue
            digits = match["octal"] or match["x"] or match["u"] or match["U"]
            code = int(digits, 8 if match["octal"] else 16) if digits else 0
            plain = chr(code) if 0 < code < 128 else _C_NAMED.get(match["named"] or "")
            # A byte, or a character by its number, is what the locale makes of it; other escapes are not even that.
            self.opaque = self.opaque or plain is None
            self._take(match.start(), match.end(), _DOLLAR, plain)
        self.at = min(self.at + 1, size)

    def _expansion(self, quote: str) -> None:
        start, text = self.at, self.text
        if text[start] == "`":
            close = text.find("`", start + 1)
            end = len(text) if close < 0 else close + 1
        elif text.startswith(("$(", "${"), start):
            end = _closing(text, start + 1)
        elif match := _NAME.match(text, start + 1):
            end = match.end()
        else:
            self._take(start, start + 1, quote)
            return
        self.opaque = True
        self._take(start, end, quote)


def _closing(text: str, opening: int) -> int:
    """The position after the bracket that closes the one at ``opening``; the text's end when none does."""
    pairs = {"(": ")", "{": "}"}
    stack = [pairs[text[opening]]]
    at = opening + 1
    while at < len(text) and stack:
        character = text[at]
        if character == "\\":
            at += 1
        elif character == "'":
            close = text.find("'", at + 1)
            at = len(text) if close < 0 else close
        elif character == stack[-1]:
            stack.pop()
        elif character in pairs and (character == "(" or text[at - 1] == "$"):
            stack.append(pairs[character])
        at += 1
    return min(at, len(text))


def split_shell(text: str) -> tuple[ShellWord, ...]:
    """The words and operators of ``text`` in order. An unclosed quote or bracket runs to the end; nothing raises."""
    return _Scanner(text).words()
