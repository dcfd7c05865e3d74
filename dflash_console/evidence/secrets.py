"""Secrets out of everything that is shown, logged, stored or exported.

A value is a secret by the name that stands before it (a flag, an environment variable, a header, a JSON field), never by
its looks: guessing by looks both misses keys and destroys hashes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from .secret_options import HINTS, secret_spans, secret_words

MASK = "******"
"""What stands in a secret's place."""

_PLAIN_WORDS = r"(?:api|admin|auth|access|bearer|hf|private|secret|refresh|session)"
_NAME = re.compile(
    rf"(?:^|[-_.\d]){_PLAIN_WORDS}[-_]?(?:key|token)(?:$|[-_.])|passw(?:or)?d|passphrase|(?:^|[-_.\d])secret(?:$|[-_.])"
    r"|credential|(?:^|[-_.])pwd$|apikey",
    re.IGNORECASE,
)
# A bare "token" is a secret in a flag or an environment name only: a log line's "#token: 311" counts tokens.
# So is a bare "key": a field of that name may be anything (a cache's key, a public one).
_TOKEN_NAME = re.compile(r"(?:[A-Z0-9]+_)*\d*(?:TOKEN|KEY)|--?(?:[a-z0-9]+[-_])*(?:token|key)")
_SHORT_FLAG = re.compile(r"-[A-Za-z]")
_NOT_SECRET = re.compile(
    r"(?:mask|eos|bos|pad|stop|num|max|new|draft|prefill|decode|first|per)[-_]?token|(?:public|host|cache|sort|primary|foreign)[-_]key",
    re.IGNORECASE,
)

# Log lines may be megabytes long and are read while the screen waits: every pattern here takes a time that grows with the line
# and not with its square. So a name is a whole word, taken at once, and its value is sought only when the name is a secret's.
_ASSIGNED = re.compile(
    r"(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z0-9_.-]++)(?P<gap>[\"']?(?:\s*+[=:]\s*|\s+)(?:\\\r?\n[-+]?\s*)*+|[\"'],\s*+[-+]?\s*(?=[\"']))"
)
"""A name and what may stand before its value: blanks, ``=``, ``:``, a continued line (in a diff, too), a comma between two words
of a list."""
_VALUE = re.compile(r"""\\?["']?(?P<value>\$\([^)]*\)|(?<=["'])[^"'\n]+|[^\s"',;)}\]]+)""")
_HEADER = re.compile(
    r"(?P<head>\b(?:proxy-)?authorization\b[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token)?\s*)(?P<value>[^\s\"',;]+)", re.IGNORECASE
)
_BEARER = re.compile(r"(?P<head>\bbearer\s+)(?P<value>[A-Za-z0-9._~+/=-]{6,})", re.IGNORECASE)
_QUERY = re.compile(r"(?P<head>[?&](?:token|key|api_key|access_token)=)(?P<value>[^\s&#\"']+)", re.IGNORECASE)
_URL = re.compile(r"(?P<head>(?<=[a-z0-9+.-])://[^\s/:@]*:|\bhttps?://)(?P<value>[^\s/@:]+|(?<=:)[^\s/@]+)(?=@)", re.IGNORECASE)
"""A password in an address, and a user without one where that is a token (``https://TOKEN@github.com``)."""

_HINTS = (
    *("key", "passw", "passphrase", "secret", "credential", "authorization", "bearer", "pwd"),
    *("-token", "_token", "?token", "&token", "--ap", "--ad", "--ssl-keyfile-"),
    *(f"{word}token" for word in ("auth", "hf", "access", "refresh", "session", "admin", "api")),
)
"""In lower case: one of them is in every text that holds a secret's name, but for an address and a name all in capitals. Most
log lines have none ("#token: 311" is a count) and are passed on unread; substrings are sought much faster than a pattern."""


def _may_hold_secret(text: str) -> bool:
    lower = text.lower()
    return any(hint in lower for hint in (*_HINTS, *HINTS)) or "TOKEN" in text or ("://" in text and "@" in text)


def is_secret_name(name: str) -> bool:
    """Whether a flag, variable or field of this name holds a secret (``--api-key``, ``HF_TOKEN``, ``ssl_keyfile_password``)."""
    name = name.strip()
    bare = name.strip("-")
    named = _NAME.search(bare) is not None or _TOKEN_NAME.fullmatch(name) is not None
    if named and _NOT_SECRET.search(bare) is None:
        return True
    return name.startswith("--") and len(name) in _FLAG_LENGTHS and _shortens_secret_flag(name)


_FLAG_LENGTHS = range(4, 80)
"""Characters of a flag; what is longer is none, and is not remembered either."""


@lru_cache(maxsize=4096)
def _shortens_secret_flag(name: str) -> bool:
    """Whether the engine takes ``name`` for a secret flag, as argparse takes any beginning that fits one flag only."""
    # The list of all flags takes a twentieth of the time to the first paint, before which no command line is read.
    from engine_launch.spec.flags import BY_SPELLING

    if name in BY_SPELLING:
        return False
    meant = [flag for flag in BY_SPELLING if flag.startswith(name)]
    return bool(meant) and all(is_secret_name(flag) for flag in meant)


def mask_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line with the values of secret flags masked, also inside nested shell strings."""
    shown: list[str] = []
    hide = False
    passwords = secret_words(argv)
    for index, word in enumerate(argv):
        name, equals, _ = word.partition("=")
        if index in passwords and not hide:
            shown.append(word[: passwords[index]] + MASK)
            continue
        if hide and not word.startswith("--"):
            shown.append(MASK)
            hide = False
            continue
        hide = False
        if equals and is_secret_name(name):
            shown.append(f"{name}={MASK}")
        elif word.startswith("-") and is_secret_name(word):
            shown.append(word)
            hide = True
        else:
            shown.append(mask_text(word))
    return tuple(shown)


def mask_text(text: str) -> str:
    """``text`` with every value masked that follows a secret's name; other bytes are untouched."""
    if not _may_hold_secret(text):
        return text
    masked = _HEADER.sub(lambda m: m["head"] + MASK, text)
    masked = _BEARER.sub(lambda m: m["head"] + MASK, masked)
    masked = _QUERY.sub(lambda m: m["head"] + MASK, masked)
    masked = _URL.sub(lambda m: m["head"] + MASK, masked)
    masked = _mask_assignments(masked)
    for start, end in reversed(secret_spans(masked)):
        if masked[start:end] != MASK:
            masked = masked[:start] + MASK + masked[end:]
    return masked


def _mask_assignments(text: str) -> str:
    parts: list[str] = []
    position = 0
    while match := _ASSIGNED.search(text, position):
        name, gap = match["name"], match["gap"]
        # "NAME value" without = or : is an assignment for flags only; prose ("the password is") is left alone.
        assigned = gap.strip("\"' \t") in ("=", ":") or name.startswith("--") or _SHORT_FLAG.match(name) is not None
        found = _VALUE.match(text, match.end()) if assigned and is_secret_name(name) else None
        end = match.end("name")
        if found is not None and found["value"] not in ("None", "null", "False", "True", MASK):
            if name.startswith("--") and not gap.strip("\"', \t\r\n\\") and found["value"].startswith("--"):
                # Another flag: the one before has no value.
                end = match.end()
            else:
                parts += [text[position : found.start("value")], MASK]
                position = found.end()
                continue
        parts.append(text[position:end])
        position = end
    parts.append(text[position:])
    return "".join(parts)


def mask_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """A copy with the values of secret variables masked."""
    return {name: MASK if is_secret_name(name) else mask_text(value) for name, value in environment.items()}
