"""systemd's words: how a command line or a list of assignments in a unit file is split, and how variables enter it.

Source: systemd.service(5), "Command lines", and ``extract_first_word`` of systemd 252. Quotes are removed anywhere in a
word, and C escapes count inside both kinds of quotes. ``%`` specifiers are left as they are.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"', "'": "'", "s": " "}
_HEX = {"x": 2, "u": 4, "U": 8}
_BLANKS = " \t\n\r"
PREFIXES = "@-:+!|"
"""Characters before an executable's path that change how it is run."""
_BYTE = ("\udc80", "\udcff")
"""A byte that an escape stands for, until it is put together with its neighbours: systemd escapes bytes, not characters."""
_BRACED = re.compile(r"\$\{([^}:]*)\}")
"""``${NAME:-default}`` is a shell's: systemd leaves it as it is."""


@dataclass(frozen=True)
class UnitWord:
    """One word of a value."""

    value: str
    start: int
    end: int
    """``value[start:end]`` of the assignment is the word as written."""
    spans: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    """For each character of the word: where in the assignment's value it is written."""
    odd_escapes: bool = False
    """Holds an escape that systemd does not know; it is kept as written, with a warning in the journal."""
    glued: bool = False
    """Such an escape is of a blank: what stands behind it is a part of this word."""
    unclosed: bool = False
    """A quote in it is not closed: systemd refuses a command with such a word."""


def split_words(value: str, *, c_escapes: bool = True) -> tuple[UnitWord, ...]:
    """The words of an assignment's value. An unclosed quote runs to the end (systemd would ignore the whole line).

    Without ``c_escapes`` a backslash only makes the next character an ordinary one: so are a variable's words split.
    """
    words: list[UnitWord] = []
    at = 0
    while at < len(value):
        if value[at] in _BLANKS:
            at += 1
            continue
        word, at = _word(value, at, c_escapes)
        words.append(word)
    return tuple(words)


def _word(value: str, start: int, c_escapes: bool) -> tuple[UnitWord, int]:
    characters: list[str] = []
    spans: list[tuple[int, int]] = []
    quote, odd, glued, at = "", False, False, start
    while at < len(value) and (quote or value[at] not in _BLANKS):
        character = value[at]
        if character == "\\":
            text, end, known = _escape(value, at) if c_escapes else (value[at + 1 : at + 2], at + 2, True)
            odd = odd or not known
            glued = glued or (not known and not quote and text[1:] in ("\t", " ", "\n", "\r"))
            characters += text
            spans += [(at, end)] * len(text) if known else [(place, place + 1) for place in range(at, at + len(text))]
            at = min(end, len(value))
        elif character == quote:
            quote, at = "", at + 1
        elif not quote and character in "'\"":
            quote, at = character, at + 1
        else:
            characters.append(character)
            spans.append((at, at + 1))
            at += 1
    text, places = _joined(characters, spans)
    return UnitWord(text, start, at, places, odd, glued, bool(quote)), at


def _joined(characters: list[str], spans: list[tuple[int, int]]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The word, bytes that were escaped one by one (``\\xc3\\xa9``) put together to characters."""
    if not any(_BYTE[0] <= character <= _BYTE[1] for character in characters):
        return "".join(characters), tuple(spans)
    text, begin = "", 0
    places: list[tuple[int, int]] = []
    decoder = getincrementaldecoder("utf-8")("replace")
    for place, character in enumerate(characters):
        made = decoder.decode(character.encode("utf-8", "surrogateescape"), final=place == len(characters) - 1)
        if made:
            text += made
            places += [(spans[begin][0], spans[place][1])] * len(made)
            begin = place + 1
    return text, tuple(places)


def _escape(value: str, at: int) -> tuple[str, int, bool]:
    """(characters, place after, known) of the escape at ``at``; a byte above 127 is a lone surrogate (:data:`_BYTE`)."""
    mark = value[at + 1 : at + 2]
    if mark in _ESCAPES and mark:
        return _ESCAPES[mark], at + 2, True
    if mark in _HEX:
        digits = value[at + 2 : at + 2 + _HEX[mark]]
        code = int(digits, 16) if len(digits) == _HEX[mark] and all(d in "0123456789abcdefABCDEF" for d in digits) else 0
        if 0 < code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF:
            return _byte(code) if mark == "x" else chr(code), at + 2 + len(digits), True
    digits = value[at + 1 : at + 4]
    if len(digits) == 3 and all(d in "01234567" for d in digits) and 0 < int(digits, 8) < 256:
        return _byte(int(digits, 8)), at + 4, True
    # What follows is kept with it, a blank too: "\\ --flag" is one word.
    return value[at : at + 2], at + 2, False


def _byte(code: int) -> str:
    return chr(code) if code < 0x80 else chr(0xDC00 + code)


def quote_word(word: str) -> str:
    """``word`` so that :func:`split_words` gives it back, specifiers and variables in it included as they are."""
    if word and all(character.isprintable() and character not in " \t\n\r'\"\\;#" for character in word):
        return word
    escaped = "".join(_quoted(character) for character in word)
    return f'"{escaped}"'


def literal_word(word: str, *, variables: bool = True) -> str:
    """``word`` quoted for a command line of a unit so that the program gets these very characters: no specifier, no variable.

    Args:
        variables: whether systemd expands variables in this command (it does not behind the prefix ``:``).
    """
    escaped = word.replace("%", "%%")
    return quote_word(escaped.replace("$", "$$") if variables else escaped)


def _quoted(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[character]
    if ord(character) < 32 or ord(character) == 127:
        return f"\\x{ord(character):02x}"
    return character


@dataclass(frozen=True)
class ExpandedWord:
    """One argument after variable expansion."""

    value: str
    index: int
    """The word that it comes from."""
    variable: str = ""
    """When the word is ``$NAME`` alone: that name, and :attr:`part` says which word of its value this is."""
    part: int = 0


def expand_words(words: Sequence[str], environment: Mapping[str, str]) -> tuple[ExpandedWord, ...]:
    """The arguments after systemd's variable expansion (``replace_env_argv`` of systemd 252): a word that begins with ``$`` is a
    variable as a whole and becomes as many words as its value has, ``${NAME}`` anywhere becomes its value as it is, ``$$`` is
    ``$``. Unset variables are empty; ``${NAME:-…}`` stays as it is."""
    expanded: list[ExpandedWord] = []
    for index, word in enumerate(words):
        if name := variable_of(word):
            parts = split_words(environment.get(name[1:], ""), c_escapes=False)
            expanded += [ExpandedWord(part.value, index, name[1:], number) for number, part in enumerate(parts)]
        else:
            expanded.append(ExpandedWord(_braces(word, environment), index))
    return tuple(expanded)


def variable_of(word: str) -> str:
    """``$NAME`` when the word is a variable that is split into words; empty for any other word."""
    return word if word.startswith("$") and word[1:2] not in ("{", "$") else ""


def variables_in(word: str) -> tuple[str, ...]:
    """Names of the variables that a word takes."""
    if name := variable_of(word):
        return (name[1:],)
    return tuple(_BRACED.findall(word.replace("$$", "")))


def expand(words: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The values of :func:`expand_words`."""
    return tuple(word.value for word in expand_words(words, environment))


def _braces(word: str, environment: Mapping[str, str]) -> str:
    return replace_braces(word, environment)[0]


def replace_braces(word: str, environment: Mapping[str, str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """``word`` with ``${NAME}`` and ``$$`` replaced, and for each character of it the range of ``word`` that it stands for."""
    characters: list[str] = []
    places: list[tuple[int, int]] = []
    at = 0
    while at < len(word):
        close = word.find("}", at)
        if word.startswith("$$", at):
            text, end = "$", at + 2
        elif word.startswith("${", at) and close > 0 and ":" not in word[at:close]:
            text, end = environment.get(word[at + 2 : close], ""), close + 1
        else:
            text, end = word[at], at + 1
        characters += text
        places += [(at, end)] * len(text)
        at = end
    return "".join(characters), tuple(places)
