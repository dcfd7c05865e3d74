"""What in a unit's files does not mean what it seems to, though systemd takes it without a word on any screen.

Lines that a blank behind a backslash cuts off, a comment that is none, shell syntax where there is no shell, several flags in a
variable that is one argument, a variable behind a byte order mark. Source: systemd.service(5), "Command lines"; each seen with
systemd 252.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .unit_command import CommandView

_SHELL = re.compile(r"\d*(?:>>?|<)(?:&\d+)?|&>>?|\|\|?|&&?|\d*(?:>>?|&>)[^>&|=]\S*")
"""A redirection, a pipe, a chain: words of a shell."""
_BRACED = re.compile(r"\$\{([A-Za-z_]\w*)\}")


def unit_remarks(view: CommandView) -> tuple[str, ...]:
    """One sentence each, with file and line: where arguments are lost, added or taken together. None where all is well."""
    warned = (f"{path}:{warning.line}: {_sentence(warning.text)}" for path, warning in view.unit.warnings if warning.serious)
    marked = (
        f"{path}:1: the file begins with a byte order mark, for which systemd ignores {name}: save it without one"
        for path, name in view.marked.items()
    )
    return tuple(dict.fromkeys((*warned, *marked, *_command(view))))


def _sentence(text: str) -> str:
    return text.rstrip(".")


def _command(view: CommandView) -> Iterator[str]:
    command = view.command
    if command is None:
        return
    where = f"{command.path}:{command.line}"
    for word, specified in zip(command.words, view.specified, strict=True):
        raw = command.assignment.value[word.start : word.end]
        if _SHELL.fullmatch(raw):
            yield f"{where}: '{raw}' is an argument of the program, for systemd starts no shell"
        elif raw.startswith(("$(", "`")) or re.search(r"=(?:\$\(|`)", raw):
            yield f"{where}: '{raw}…' is no command that is run, for systemd starts no shell"
        elif view.expands and (braced := _BRACED.fullmatch(specified.value)):
            name = braced[1]
            words = view.values.get(name, "").split()
            if len(words) > 1 and words[0].startswith("-"):
                yield f"{where}: ${{{name}}} is one argument, blanks and all; ${name} would be its {len(words)} words"
