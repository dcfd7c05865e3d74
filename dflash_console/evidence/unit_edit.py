"""From a wanted command to new texts of a service's files: each word is changed where it is written, all else stays.

A word that stands in a file of the user's (a drop-in of this very unit, an environment file) is edited there. A word of the
unit itself, of a package's drop-in or of one that several units share is never edited: the command is copied into the console's
own drop-in, as written, and changed there. Every step (``unit_step.py``) is read back, and the result has to be exactly the
wanted command.
"""

from __future__ import annotations

from collections.abc import Sequence

from .unit_command import CommandView, UnitFiles, view_command
from .unit_drop_in import copy_of_base, is_bare, read_marker
from .unit_step import Places, Step
from .unit_text import parse_unit
from .unit_words import literal_word, quote_word


class UnitEditError(ValueError):
    """The command cannot be written; the message says why and what to do."""


def write_command(files: UnitFiles, places: Places, command: Sequence[str]) -> UnitFiles:
    """The files after the smallest edits that make ``command`` the effective one.

    Raises:
        UnitEditError: a file that may not be edited would win, the manager would refuse the result, or nothing is written.
    """
    wanted = tuple(command)
    if not wanted or any("\0" in word for word in wanted):
        raise UnitEditError("a command without words, or with a NUL in one, cannot be written into a unit")
    changed = _by_steps(files, places, wanted) or _whole(files, places, wanted)
    changed = _without_needless(changed, places)
    view = view_command(changed)
    if view.argv != wanted or view.unit.refused or _others(changed) != _others(files):
        raise UnitEditError(_why_not(files, places, view))
    return changed


def _why_not(files: UnitFiles, places: Places, view: CommandView) -> str:
    if view.unit.refused:
        return f"systemd would refuse the changed unit: {view.unit.refused}"
    if view.command is not None and view.command.path not in (places.drop_in, *(source.path for source in files.sources[:1])):
        return (
            f"{view.command.path} sorts after {places.drop_in} and sets ExecStart, so it would win, and it is not to be "
            "edited here; rename it so that it sorts earlier, or edit it by hand"
        )
    return "the command is written in a form that cannot be edited; edit it by hand"


def _by_steps(files: UnitFiles, places: Places, wanted: tuple[str, ...]) -> UnitFiles | None:
    seen: set[tuple[str | None, ...]] = set()
    while True:
        view = view_command(files)
        if view.argv == wanted:
            return files
        texts = tuple(source.text for source in files.sources) + tuple(file.text for file in files.env_files)
        if view.command is None or texts in seen or view.unit.refused:
            return None
        seen.add(texts)
        changed = Step(files, places, view).towards(wanted)
        if changed is None or _others(changed) != _others(files):
            return None
        files = changed


def _others(files: UnitFiles) -> list[tuple[str, str, str]]:
    """Every assignment that no edit may touch."""
    items = (item for source in files.sources for item in parse_unit(source.text).assignments)
    return [(item.section, item.key, item.value) for item in items if item.key not in ("ExecStart", "Environment")]


def _whole(files: UnitFiles, places: Places, wanted: tuple[str, ...]) -> UnitFiles:
    """Every word written anew: specifiers and variables in them are lost."""
    view = view_command(files)
    if view.command is None:
        raise UnitEditError("the unit has no ExecStart= to change")
    command = view.command
    if command.path not in places.own and command.path != places.drop_in:
        files = copy_of_base(files, places.drop_in, places.author)
        view = view_command(files)
        if view.command is None or view.command.path != places.drop_in:
            raise UnitEditError(_why_not(files, places, view))
        command = view.command
    step = Step(files, places, view)
    head = (command.words[0].value,) if "@" in command.prefix else ()
    words = " ".join(literal_word(word, variables=view.expands) for word in wanted)
    first = f"{command.prefix}{quote_word(head[0])} " if head else command.prefix
    return step.splice_command(command, command.words[0].start - len(command.prefix), command.words[-1].end, first + words)


def _without_needless(files: UnitFiles, places: Places) -> UnitFiles:
    """Without the console's drop-in when it says what the unit says by itself."""
    text = files.text(places.drop_in)
    if text is None or not is_bare(text) or read_marker(text) is None:
        return files
    without = files.with_text(places.drop_in, None)
    ours, theirs = view_command(files), view_command(without)
    if theirs.command is None or ours.command is None or theirs.argv != ours.argv:
        return files
    said, own = (ours.command.prefix, ours.command.argv), (theirs.command.prefix, theirs.command.argv)
    return without if said == own else files
