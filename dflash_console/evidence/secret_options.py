"""Options that hold a password without being named so: ``sshpass -p``, ``curl -u``, ``docker login -p`` and their like.

What a short option means depends on the program, so it is sought only in a command of one of these programs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True)
class _Rule:
    """Where one program takes a password."""

    option: re.Pattern[str]
    """A word that the password follows, or that it may be attached to."""
    after: str = ""
    """A subcommand that must stand before the option."""
    half: bool = False
    """The value is ``user:password``."""
    apart: bool = True
    """The password may be the next word; otherwise it is attached (``-pWORD``), and the option alone asks for it."""
    leading: bool = False
    """Only before the program's first argument, which is another program with options of its own."""


_LOGIN = _Rule(re.compile(r"-p=?"), after="login")
_MYSQL = _Rule(re.compile(r"-p"), apart=False)
_RULES = {
    "sshpass": _Rule(re.compile(r"-[v]?p"), leading=True),
    "curl": _Rule(re.compile(r"--(?:proxy-)?user=?|-[A-Za-z]{0,5}?[uU]"), half=True),
    **dict.fromkeys(("docker", "podman", "nerdctl", "buildah", "skopeo", "helm", "oras"), _LOGIN),
    **dict.fromkeys(("mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump"), _MYSQL),
    "redis-cli": _Rule(re.compile(r"-a|--pass=?")),
}
HINTS = ("sshpass", "curl", "login", "mysql", "mariadb", "redis-cli")
"""One of them is in every text that :func:`secret_spans` finds something in."""

_PROGRAM = re.compile(rf"(?<![\w.-])(?:{'|'.join(sorted(_RULES, key=len, reverse=True))})(?=[\s\"'])")
_WORD = re.compile(
    r"""[\s,]*+(?P<stop>\n|[;|&](?=\s|$)|[;|&]{2})|[\s,]*+(?P<word>(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\\.|[^\s"'\\,]|["'])++)"""
)
_LONGEST = 64
"""Words of a command that are looked at."""


def secret_words(words: Sequence[str]) -> dict[int, int]:
    """Words of a command line that hold such a password: index → the character at which it begins."""
    found: dict[int, int] = {}
    for index, word in enumerate(words):
        rule = _RULES.get(word.rsplit("/", 1)[-1])
        if rule is not None:
            for offset, begin in _passwords(words[index + 1 : index + 1 + _LONGEST], rule):
                found.setdefault(index + 1 + offset, begin)
    return found


def secret_spans(text: str) -> list[tuple[int, int]]:
    """Where such passwords stand in ``text`` (a log line, a shell string, a list of quoted words), in order."""
    spans: list[tuple[int, int]] = []
    programs = [*_PROGRAM.finditer(text)]
    for program, following in zip_longest(programs, programs[1:]):
        # To the next program only, so that a long line takes a time that grows with its length.
        until = following.start() if following is not None else len(text)
        places = list(_words(text, program.end() + (text[program.end()] in "\"'"), until))
        for index, begin in _passwords([text[start:end] for start, end in places], _RULES[program[0]]):
            start, end = places[index]
            if not spans or start + begin >= spans[-1][1]:
                spans.append((start + begin, end))
    return spans


def _words(text: str, at: int, until: int) -> Iterator[tuple[int, int]]:
    """The words from ``at`` to the end of the command or to the word at ``until``, without the quotes around them."""
    for _ in range(_LONGEST):
        if at > until:
            return
        found = _WORD.match(text, at)
        if found is None or found["word"] is None:
            return
        at = found.end()
        start, end = found.span("word")
        quoted = end - start > 1 and text[start] in "\"'" and text[end - 1] == text[start]
        yield (start + 1, end - 1) if quoted else (start, end)


def _passwords(words: Sequence[str], rule: _Rule) -> Iterator[tuple[int, int]]:
    """Index of each word with a password, and where in the word it begins."""
    ready, value = not rule.after, False
    for index, word in enumerate(words):
        if value:
            value = False
            begin: int | None = 0
        elif not ready:
            ready = word == rule.after
            continue
        elif (option := rule.option.match(word)) is None:
            if rule.leading and not word.startswith("-"):
                return
            continue
        elif option.end() == len(word) and not word.endswith("="):
            value = rule.apart
            continue
        elif word.startswith("--") and not option[0].endswith("="):
            # Another option that begins alike.
            continue
        else:
            begin = option.end()
        if rule.half:
            colon = word.find(":", begin)
            begin = colon + 1 if colon >= 0 else None
        if begin is not None and begin < len(word):
            yield index, begin
