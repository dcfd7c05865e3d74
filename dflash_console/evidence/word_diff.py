"""Which words of a command line changed into which."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def differences(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """The places ``old[a:b]`` that became ``new[c:d]``, as ``(a, b, c, d)``, in order.

    What is equal at both ends is set aside first: difflib looks for the longest run of equal words, and among repeated words
    that can be one which makes a single new word look like several moved ones.
    """
    shorter = min(len(old), len(new))
    head = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    tail = next((index for index in range(shorter - head) if old[-1 - index] != new[-1 - index]), shorter - head)
    middle = difflib.SequenceMatcher(None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False)
    return [(head + a, head + b, head + c, head + d) for tag, a, b, c, d in middle.get_opcodes() if tag != "equal"]
