"""How the launcher speaks on stderr: one line per matter, never a traceback."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator

WRONG_USE = 2
"""Exit code for what the user can mend: flags, files, ports."""


def complain(message: str, code: int = WRONG_USE) -> int:
    """Print one error line; returns the exit code."""
    print(f"ddtree-launch: error: {one_line(message)}", file=sys.stderr)
    return code


@contextlib.contextmanager
def waiting(message: str) -> Iterator[None]:
    """Say on a terminal what is waited for, and take it back afterwards; nothing where stderr is a file or a pipe."""
    shown = sys.stderr.isatty()
    if shown:
        # One row of the terminal, for no more can be taken back.
        print(one_line(message)[: shutil.get_terminal_size().columns - 1], end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def warn(message: str) -> None:
    print(f"ddtree-launch: warning: {one_line(message)}", file=sys.stderr)


def one_line(message: str) -> str:
    """On one line, and no character of what a user or a file wrote acts on the terminal: it is shown as Python writes it."""
    line = " ".join(message.split())
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in line)
