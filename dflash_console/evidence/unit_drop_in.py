"""The console's own drop-in: the unit's ``ExecStart`` with settings changed, who wrote it, and what it was made from.

A drop-in that repeats ``ExecStart`` hides later changes of the unit itself (it *shadows* them). So it carries the base command
and its digest: :func:`find_shadow` tells when the base has changed, :func:`rebase` carries the changes over to the new base.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .secrets import mask_argv
from .unit import UnitCommand, UnitSource, read_unit
from .unit_command import UnitFiles
from .unit_text import parse_unit
from .unit_words import PREFIXES, quote_word, split_words
from .word_diff import differences

NAME = "zz-ddtree-console.conf"
"""It sorts after ``override.conf``, which ``systemctl edit`` writes."""
_DIGEST = "# base-sha256: "
_BASE = "# base: "


class RebaseError(ValueError):
    """The drop-in cannot be carried over to the changed unit; the message says why and what to do."""


@dataclass(frozen=True)
class BaseCommand:
    """A command of the unit itself, as written: specifiers and variables not replaced."""

    prefix: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        return self.prefix + " ".join(quote_word(word) for word in self.words)


@dataclass(frozen=True)
class Marker:
    """What the drop-in's comment says of its base."""

    digest: str
    base: tuple[BaseCommand, ...]


@dataclass(frozen=True)
class Shadow:
    """The drop-in hides a change of the unit."""

    path: str
    """The drop-in."""
    was: tuple[BaseCommand, ...]
    now: tuple[BaseCommand, ...]

    @property
    def words(self) -> str:
        """The words of the base that changed, secrets masked: ``-8 +16``."""
        before = [word for command in self.was for word in mask_argv((command.prefix, *command.words)) if word]
        after = [word for command in self.now for word in mask_argv((command.prefix, *command.words)) if word]
        parts = []
        for start, end, other_start, other_end in differences(before, after):
            parts += [f"-{word}" for word in before[start:end]] + [f"+{word}" for word in after[other_start:other_end]]
        return " ".join(parts)


def base_commands(files: UnitFiles, drop_in: str) -> tuple[BaseCommand, ...]:
    """``ExecStart`` as the files make it without the console's drop-in."""
    commands = _commands(files.with_text(drop_in, None))
    return tuple(BaseCommand(command.prefix, command.argv) for command in commands)


def base_digest(commands: Sequence[BaseCommand]) -> str:
    """SHA-256 of what a drop-in was made from: the words, not their layout, so that a comment or a line break is no change."""
    return hashlib.sha256(json.dumps([[command.prefix, command.words] for command in commands]).encode()).hexdigest()


def read_marker(text: str) -> Marker | None:
    """What a drop-in's comment says; ``None`` when the console did not write it, or the comment is damaged."""
    digest, base = "", []
    for line in text.split("\n"):
        if line.startswith(_DIGEST):
            digest = line.removeprefix(_DIGEST).strip()
        elif line.startswith(_BASE):
            words = [word.value for word in split_words(line.removeprefix(_BASE))]
            if words:
                first = words[0].lstrip(PREFIXES)
                base.append(BaseCommand(words[0][: len(words[0]) - len(first)], (first, *words[1:])))
    return Marker(digest, tuple(base)) if digest and base_digest(base) == digest else None


def is_bare(text: str) -> bool:
    """Whether a drop-in sets nothing but ``ExecStart``."""
    return all((item.section, item.key) == ("Service", "ExecStart") for item in parse_unit(text).assignments)


def copy_of_base(files: UnitFiles, path: str, author: str) -> UnitFiles:
    """The files with a fresh drop-in at ``path`` that says what the unit says without it, line breaks and comments included."""
    without = files.with_text(path, None)
    commands = _commands(without)
    base = tuple(BaseCommand(command.prefix, command.argv) for command in commands)
    for written in ([_as_written(without, command) for command in commands], [command.text for command in base]):
        copied = files.with_text(path, drop_in_text(files.unit, author, base, written))
        again = read_unit([source for source in copied.sources if source.path == path]).commands.get("ExecStart", ())
        if tuple(BaseCommand(command.prefix, command.argv) for command in again) == base:
            break
    return copied


def drop_in_text(unit: str, author: str, base: Sequence[BaseCommand], commands: Sequence[str]) -> str:
    """The text of the console's drop-in.

    Args:
        author: who writes it (a name and a machine).
        base: what it is made from.
        commands: each command as it is to stand behind ``ExecStart=``.
    """
    by = f" ({_one_line(author)})" if author else ""
    lines = [
        f"# Written by ddtree-console{by}: the command of {unit} with settings changed.",
        "# Without this file, after a daemon-reload, the unit's own command is in effect again.",
        f"{_DIGEST}{base_digest(base)}",
        *(f"{_BASE}{command.text}" for command in base),
        "[Service]",
        "ExecStart=",
        *(f"ExecStart={command}" for command in commands),
    ]
    return "\n".join(lines) + "\n"


def find_shadow(files: UnitFiles, drop_in: str) -> Shadow | None:
    """Whether the unit's own command has changed since the drop-in was made from it; ``None`` = no, or there is no drop-in."""
    text = files.text(drop_in)
    marker = read_marker(text) if text is not None else None
    if marker is None:
        return None
    now = base_commands(files, drop_in)
    return Shadow(drop_in, marker.base, now) if base_digest(now) != marker.digest else None


def rebase(files: UnitFiles, drop_in: str, author: str) -> UnitFiles:
    """The files with the drop-in made anew from the unit as it is now, its own changes carried over.

    Raises:
        RebaseError: there is no drop-in of the console's, or both changed the same words.
    """
    text = files.text(drop_in)
    marker = read_marker(text) if text is not None else None
    if text is None or marker is None:
        raise RebaseError(f"{drop_in} is not there, or its comment was edited, so what it was made from is not known; release it")
    ours = _commands(replace(files, sources=(UnitSource(drop_in, text),)))
    now = base_commands(files, drop_in)
    if not ours or not now or not marker.base:
        raise RebaseError("the unit has no ExecStart= of its own any more: look at it by hand")
    merged = BaseCommand(now[-1].prefix, carry_over(marker.base[-1].words, ours[-1].argv, now[-1].words))
    written = [command.text for command in (*now[:-1], merged)]
    return files.with_text(drop_in, drop_in_text(files.unit, author, now, written))


def carry_over(base: Sequence[str], changed: Sequence[str], now: Sequence[str]) -> tuple[str, ...]:
    """``now`` with the changes that made ``changed`` out of ``base``.

    Raises:
        RebaseError: words that were changed have been changed in ``now`` as well.
    """
    kept: dict[int, int] = {}
    at = other = 0
    for start, end, other_start, other_end in [*differences(base, now), (len(base), len(base), len(now), len(now))]:
        kept.update(zip(range(at, start), range(other, other_start), strict=True))
        at, other = end, other_end
    result = list(now)
    for start, end, other_start, other_end in reversed(differences(base, changed)):
        places = [kept.get(index, -1) for index in range(start, end)]
        if -1 in places or places != list(range(min(places, default=0), max(places, default=-1) + 1)):
            gone = " ".join(base[start:end])
            raise RebaseError(f"the unit and the drop-in both changed '{gone}': release the drop-in and apply the settings again")
        # New words follow the word that they followed; when that one is gone, the nearest before it that is still there.
        before = next((kept[index] for index in range(start - 1, -1, -1) if index in kept), -1)
        first = places[0] if places else before + 1
        result[first : first + len(places)] = changed[other_start:other_end]
    return tuple(result)


def _commands(files: UnitFiles) -> tuple[UnitCommand, ...]:
    return read_unit(files.sources).commands.get("ExecStart", ())


def _as_written(files: UnitFiles, command: UnitCommand) -> str:
    """The command's own bytes, continued lines and the comments between them included."""
    text = files.text(command.path) or ""
    offsets = command.assignment.offsets
    first = offsets[command.words[0].start - len(command.prefix)]
    return text[first : offsets[command.words[-1].end - 1] + 1]


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() and c != "\\" else " " for c in text).split())
