"""Secrets out of what a plan shows: keys stand in unit files and command lines, and plans are shown, printed and stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ..evidence.secrets import MASK, is_secret_name, mask_argv


def secret_values(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets on a command line and in an environment, the longest first."""
    found = {value for name, value in environment.items() if is_secret_name(name) and value}
    for word, shown in zip(command, mask_argv(command), strict=True):
        if word != shown:
            head, _, tail = shown.partition(MASK)
            found.add(word[len(head) : len(word) - len(tail)] if tail else word[len(head) :])
    return tuple(sorted(found - {""}, key=len, reverse=True))


def mask_values(text: str, secrets: Sequence[str]) -> str:
    """``text`` with each secret masked, as it stands and as it is written in quotes."""
    for secret in secrets:
        quoted = json.dumps(secret, ensure_ascii=False)
        text = text.replace(quoted, f'"{MASK}"')
        # A very short key may be part of an innocent word; in quotes it was masked above.
        if len(secret) >= 4:
            text = text.replace(secret, MASK)
    return text
