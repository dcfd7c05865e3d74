"""Where a shell string of the command sends what the engine prints: what goes to a file there is in no log of the service."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .command import locate
from .secrets import mask_text
from .shell import ShellWord

_TO_FILE = re.compile(r"[12]?>[>|]?|&>>?|[12]?<>")
"""Operators that send the output or the error output somewhere (engines log to either); ``2>&1`` sends it to the other."""


def output_file(argv: Sequence[str]) -> str:
    """The file that the engine's output, or its error output, is redirected to; empty when it goes where the service's does."""
    found = locate(argv)
    if found is None:
        return ""
    layers, engine = found
    for text, index in zip(layers.texts, (*layers.entered[1:], engine.start), strict=False):
        if target := _target(text.tokens, index):
            return mask_text(target)
    return ""


def redirected_words(argv: Sequence[str]) -> str:
    """Why what the engine prints is in no log of the service; empty where it is."""
    file = output_file(argv)
    return f"the command sends what the engine prints to {file}, which is not the service's log" if file else ""


def _target(tokens: Sequence[ShellWord], index: int) -> str:
    """The file for the output of the simple command that the word at ``index`` is in: by its own redirections, by those of an
    ``exec`` without a command before it, and by those behind the group that it is in."""
    words: list[str] = []
    targets: list[str] = []
    target, own = "", False
    for at, token in enumerate((*tokens, None)):
        if token is not None and token.redirection:
            following = tokens[at + 1] if at + 1 < len(tokens) else None
            if _TO_FILE.fullmatch(token.value) and following is not None and not following.operator:
                targets.append(following.value)
            continue
        if token is not None and not token.operator:
            own = own or at == index - 1
            if not (at and tokens[at - 1].redirection):
                words.append(token.value)
            continue
        past = at >= index and not own
        if targets and (own or words == ["exec"] or (past and words in ([], ["}"], ["done"], ["fi"], ["esac"]))):
            target = targets[-1]
        if own and target:
            return target
        words, targets, own = [], [], False
        if past and target:
            return target
    return ""
