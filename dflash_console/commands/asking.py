"""A question at the terminal, answered by somebody who has seen it."""

from __future__ import annotations

import contextlib
import sys


def forget_typed() -> None:
    """Drop what was typed or pasted before a question, as ssh does: it answers another one, if any. Call it before asking."""
    import termios

    with contextlib.suppress(termios.error):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
