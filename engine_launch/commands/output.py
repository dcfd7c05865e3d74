"""How the launcher speaks on stderr: one line per matter, never a traceback."""

from __future__ import annotations

import sys

WRONG_USE = 2
"""Exit code for what the user can mend: flags, files, ports."""


def complain(message: str, code: int = WRONG_USE) -> int:
    """Print one error line; returns the exit code."""
    print(f"ddtree-launch: error: {one_line(message)}", file=sys.stderr)
    return code


def warn(message: str) -> None:
    print(f"ddtree-launch: warning: {one_line(message)}", file=sys.stderr)


def one_line(message: str) -> str:
    """On one line, and no character of what a user or a file wrote acts on the terminal: it is shown as Python writes it."""
    line = " ".join(message.split())
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in line)
