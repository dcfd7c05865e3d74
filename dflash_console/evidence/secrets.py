"""Secrets out of everything that is shown, logged, stored or exported.

A value is a secret by the name that stands before it (a flag, an environment variable, a header, a JSON field), never by
its looks: guessing by looks both misses keys and destroys hashes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from .secret_options import HINTS, secret_spans, secret_words
from .terminal_text import strip_escapes

MASK = "******"
"""What stands in a secret's place."""

_PLAIN_WORDS = (
    r"(?:api|admin|auth|access|account|bearer|client|encryption|hf|license|master|private|secret|signing|refresh|session)"
)
_NAME = re.compile(
    rf"(?:^|[-_.\d]){_PLAIN_WORDS}[-_]?(?:keys?|token)(?:$|[-_.])|passw(?:or)?d|passphrase|(?:^|[-_.\d])secret(?:$|[-_.])"
    r"|(?:client|app|shared)secret|credential|(?:^|[-_.])(?:pwd|cookie)$|apikey",
    re.IGNORECASE,
)
# A bare "token" is a secret in a flag or an environment name only: a log line's "#token: 311" counts tokens.
# So is a bare "key": a field of that name may be anything (a cache's key, a public one).
_TOKEN_NAME = re.compile(r"(?:[A-Z0-9]+_)*\d*(?:TOKEN|KEY)|(?:[A-Z0-9]+_)+(?:PASS|PAT)|--?(?:[a-z0-9]+[-_])*(?:token|key|pass)")
_SHORT_FLAG = re.compile(r"-[A-Za-z]")
_NOT_SECRET = re.compile(
    r"(?:mask|eos|bos|pad|stop|num|max|new|draft|prefill|decode|first|per)[-_]?token|(?:public|host|cache|sort|primary|foreign)[-_]key",
    re.IGNORECASE,
)

# Log lines may be megabytes long and are read while the screen waits: every pattern here takes a time that grows with the line
# and not with its square. So a name is a whole word, taken at once, and its value is sought only when the name is a secret's.
_ASSIGNED = re.compile(
    r"(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z0-9_.-]++)"
    r"(?P<gap>(?:\\(?=[\"']))?[\"']?(?:\s*+[=:]\s*|\s+|(?=\\\r?\n))(?:\\\r?\n[-+]?\s*)*+|[\"'],\s*+[-+]?\s*(?=[\"']))"
)
"""A name and what may stand before its value: blanks, ``=``, ``:``, a continued line (in a diff, too), a comma between two words
of a list."""
_ESCAPED_QUOTE = re.compile(r'\\"(?P<value>[^"\\\n]+)')
"""A string of JSON inside a string."""
_LIST = re.compile(r"(?P<value>\[[^\]\n]*+\]?)")
_QUOTED = r"""\$?"(?:\\.|[^"\\\n])*+"?|\$?'(?:\\'(?=[^'\n]*')|[^'\n])*+'?"""
_ONE_QUOTED = re.compile(_QUOTED)
_OF_FLAG = r"""\$\([^)\n]*\)?|\\[^\r\n]|[^\s"'\\]"""
_OF_ANYTHING = r"""\$\([^)\n]*\)?|\\[^\r\n]|[^\s"'\\,;)}\]]"""
_VALUE = {
    flag: re.compile(f"(?:{_QUOTED})(?:{_QUOTED}|{bare})*+|(?:{bare})++")
    for flag, bare in ((True, _OF_FLAG), (False, _OF_ANYTHING))
}
"""A word as shells and Python quote it. Not quoted, a flag's goes up to the next blank, others only to what ends a value too."""
_HEADER = re.compile(
    r"(?P<head>\b(?:proxy-)?authorization\b[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token)?\s*)(?P<value>[^\s\"',;]+)", re.IGNORECASE
)
_BEARER = re.compile(r"(?P<head>\bbearer\s+)(?P<value>[A-Za-z0-9._~+/=-]{6,})", re.IGNORECASE)
_QUERY = re.compile(
    r"(?P<head>[?&](?:token|key|api_key|access_token|sig|(?:x-amz-|x-goog-)?signature|x-amz-security-token)=)"
    r"(?P<value>[^\s&#\"']+)",
    re.IGNORECASE,
)
_URL = re.compile(r"(?P<head>(?<=[a-z0-9+.-])://[^\s/:@]*:|\bhttps?://)(?P<value>[^\s/@:]+|(?<=:)[^\s/@]+)(?=@)", re.IGNORECASE)
"""A password in an address, and a user without one where that is a token (``https://TOKEN@github.com``)."""

_HINTS = (
    *("key", "passw", "passphrase", "secret", "credential", "authorization", "bearer", "pwd"),
    *("-token", "_token", "?token", "&token", "--ap", "--ad", "--ssl-keyfile-", "-pass", "sig=", "signature=", "cookie"),
    *(f"{word}token" for word in ("auth", "hf", "access", "refresh", "session", "admin", "api")),
)
"""In lower case: one of them is in every text that holds a secret's name, but for an address and a name all in capitals. Most
log lines have none ("#token: 311" is a count) and are passed on unread; substrings are sought much faster than a pattern."""


def _may_hold_secret(text: str) -> bool:
    lower = text.lower()
    if any(hint in lower for hint in (*_HINTS, *HINTS)):
        return True
    return any(hint in text for hint in ("TOKEN", "_PASS", "_PAT")) or ("://" in text and "@" in text)


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
    """``text`` with every value masked that follows a secret's name; other bytes are untouched.

    Where colours stand between a name and its value, the text comes back without escape sequences.
    """
    if "\x1b" in text and (bare := strip_escapes(text)) != (masked := _mask(bare)):
        return masked
    return _mask(text)


def _mask(text: str) -> str:
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
        flag = name.startswith("--") or _SHORT_FLAG.match(name) is not None
        assigned = flag or gap.strip("\\\"' \t") in ("=", ":")
        # In a list of words a comma ends the value.
        start, end = _value(text, match.end(), flag=flag and "," not in gap) if assigned and is_secret_name(name) else (0, 0)
        after = match.end("name")
        if start < end and text[start:end] not in ("None", "null", "False", "True", MASK):
            if name.startswith("--") and not gap.strip("\"', \t\r\n\\") and text.startswith("--", start):
                # Another flag: the one before has no value.
                after = match.end()
            else:
                parts += [text[position:start], MASK]
                position = end
                continue
        parts.append(text[position:after])
        position = after
    parts.append(text[position:])
    return "".join(parts)


def _value(text: str, at: int, *, flag: bool) -> tuple[int, int]:
    """Where the value that begins at ``at`` stands, without the quotes around it; the same place twice when there is none."""
    for pattern in (_ESCAPED_QUOTE, _LIST):
        if found := pattern.match(text, at):
            return found.span("value")
    word = _VALUE[flag].match(text, at)
    if word is None:
        return at, at
    start, end = word.span()
    if text[start] in "\"'" and text[end - 1] == text[start] and _ONE_QUOTED.fullmatch(text, start, end):
        return start + 1, max(start + 1, end - 1)
    return start, end


def mask_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """A copy with the values of secret variables masked."""
    return {name: MASK if is_secret_name(name) else mask_text(value) for name, value in environment.items()}
