"""One edit of a unit's files towards a wanted command: one word replaced, removed or added where it is written.

The word may stand in ``ExecStart=``, in a variable of ``Environment=`` or in one of an environment file, with quotes, escapes and
specifiers around it; only the characters that must change do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .env_file import Variable, parse_env_file, quote_value
from .unit import UnitCommand
from .unit_command import CommandView, UnitFiles, specifier_values
from .unit_drop_in import copy_of_base
from .unit_specifiers import replace_specifiers
from .unit_splice import Span, Splice, compose, splice_value
from .unit_text import Assignment, parse_unit
from .unit_words import UnitWord, literal_word, quote_word, replace_braces, split_words, variables_in
from .word_diff import differences


@dataclass(frozen=True)
class Places:
    """Where may be written."""

    drop_in: str
    """The console's own drop-in of this unit."""
    own: frozenset[str] = frozenset()
    """The user's files whose words are edited where they stand: drop-ins of this unit alone, environment files."""
    shared: frozenset[str] = frozenset()
    """Of these, files that other units read too: nothing new is added there."""
    author: str = ""
    """Who writes, for the drop-in's comment."""


class Step:
    """One edit, made where :class:`Places` allow it; methods answer ``None`` when there is no way."""

    def __init__(self, files: UnitFiles, places: Places, view: CommandView) -> None:
        self._files = files
        self._places = places
        self._view = view
        self._specifiers = specifier_values(files)

    def towards(self, wanted: tuple[str, ...]) -> UnitFiles | None:
        """The last difference, one word of it at a time; ``None`` when there is no way."""
        start, end, other_start, other_end = differences(self._view.argv, wanted)[-1]
        if start < end and other_start < other_end:
            return self._replace(end - 1, wanted[other_end - 1])
        if start < end:
            return self._remove(end - 1)
        return self._insert(start, wanted[other_start:other_end]) if start else None

    def _replace(self, at: int, new: str) -> UnitFiles | None:
        word = self._view.words[at]
        if word.variable:
            value = self._view.values.get(word.variable, "")
            return self._set_variable(word.variable, _replace_part(value, word.part, new)) or self._inline(word.index)
        written = self._view.specified[word.index].value
        for name in variables_in(written) if self._view.expands else ():
            head, _, tail = written.partition(f"${{{name}}}")
            if "$" not in head + tail and new.startswith(head) and new.endswith(tail) and len(new) >= len(head) + len(tail):
                changed = self._set_variable(name, new[len(head) : len(new) - len(tail)])
                if changed is not None:
                    return changed
        command = self._command()
        if command is None:
            return self._own_copy()
        return self._replace_word(command, word.index, word.value, new)

    def _replace_word(self, command: UnitCommand, index: int, old: str, new: str) -> UnitFiles:
        word, specified = command.words[index], self._view.specified[index]
        filled, filled_places = replace_braces(specified.value, self._view.values)
        if not self._view.expands:
            filled, filled_places = specified.value, tuple((place, place + 1) for place in range(len(specified.value)))
        places = compose(compose(word.spans, specified.places), filled_places)
        splice = splice_value(old, new, places, self._escaped) if filled == old else None
        if splice is None:
            splice = Splice(word.start, word.end, literal_word(new, variables=self._view.expands))
        return self.splice_command(command, splice.start, splice.end, splice.text)

    def _escaped(self, text: str) -> str:
        """Characters for the inside of a word, whatever quotes stand around them."""
        return "".join(_escape(character, variables=self._view.expands) for character in text)

    def _remove(self, at: int) -> UnitFiles | None:
        word = self._view.words[at]
        if word.variable:
            value = self._view.values.get(word.variable, "")
            return self._set_variable(word.variable, _remove_part(value, word.part)) or self._inline(word.index)
        command = self._command()
        if command is None:
            return self._own_copy()
        written = command.words[word.index]
        source = self._text(command.path)
        first, last = _range(command.assignment, source, written.start, written.end)
        return self._files.with_text(command.path, _remove_range(source, first, last))

    def _insert(self, at: int, new: tuple[str, ...]) -> UnitFiles | None:
        before = self._view.words[at - 1]
        after = self._view.words[at] if at < len(self._view.words) else None
        if before.variable:
            value = self._view.values.get(before.variable, "")
            inside = after is not None and after.index == before.index
            if inside or self._place_of(before.variable) in self._places.own - self._places.shared:
                changed = self._set_variable(before.variable, _insert_part(value, before.part, new))
                if changed is not None:
                    return changed
            if inside:
                return self._inline(before.index)
        command = self._command()
        if command is None:
            return self._own_copy()
        words = " ".join(literal_word(word, variables=self._view.expands) for word in new)
        end = command.words[before.index].end
        return self.splice_command(command, end, end, f" {words}")

    def _inline(self, index: int) -> UnitFiles | None:
        """The words of a variable written in its place: the variable itself is not the console's to change."""
        command = self._command()
        if command is None:
            return self._own_copy()
        values = [word.value for word in self._view.words if word.index == index]
        text = " ".join(literal_word(value) for value in values)
        word = command.words[index]
        return self.splice_command(command, word.start, word.end, text)

    def _command(self) -> UnitCommand | None:
        """The command, when its words may be edited where they stand."""
        command = self._view.command
        return command if command is not None and command.path in (*self._places.own, self._places.drop_in) else None

    def _own_copy(self) -> UnitFiles | None:
        return (
            None
            if self._files.text(self._places.drop_in)
            else copy_of_base(self._files, self._places.drop_in, self._places.author)
        )

    def splice_command(self, command: UnitCommand, start: int, end: int, text: str) -> UnitFiles:
        source = self._text(command.path)
        first, last = _range(command.assignment, source, start, end)
        return self._files.with_text(command.path, source[:first] + text + source[last:])

    def _text(self, path: str) -> str:
        text = self._files.text(path)
        assert text is not None, "a word was read from this file"
        return text

    def _place_of(self, variable: str) -> str:
        entry = self._view.environment.get(variable)
        return entry.path if entry is not None else ""

    def _set_variable(self, name: str, value: str) -> UnitFiles | None:
        """The files with another value of a variable, where that is the user's to edit."""
        path = self._place_of(name)
        if path not in self._places.own:
            return None
        text = self._text(path)
        old = self._view.values[name]
        if name in self._view.from_files:
            found = next(item for item in reversed(parse_env_file(text)) if item.name == name)
            return self._files.with_text(path, _set_in_file(text, found, value))
        place = self._assignment_of(text, name)
        if place is None:
            return None
        item, word = place
        specified = replace_specifiers(word.value, self._specifiers)
        skipped = len(specified.value) - len(old)
        places = compose(word.spans, specified.places)[skipped:]
        splice = splice_value(old, value, places, lambda part: "".join(_escape(c, variables=False) for c in part))
        if splice is None:
            splice = Splice(word.start, word.end, quote_word(f"{name}={value}".replace("%", "%%")))
        first, last = _range(item, text, splice.start, splice.end)
        return self._files.with_text(path, text[:first] + splice.text + text[last:])

    def _assignment_of(self, text: str, name: str) -> tuple[Assignment, UnitWord] | None:
        for item in reversed(parse_unit(text).values("Service", "Environment")):
            for word in reversed(split_words(item.value)):
                if word.value.startswith(f"{name}="):
                    return item, word
        return None


def _set_in_file(text: str, variable: Variable, value: str) -> str:
    """An environment file with another value of one variable: the smallest edit that reads back, else the value written anew."""
    splice = splice_value(variable.value, value, variable.spans, lambda part: part if "\n" not in part else None)
    if splice is not None:
        changed = splice.apply(text)
        again = [item for item in parse_env_file(changed) if item.name == variable.name]
        others = [(item.name, item.value) for item in parse_env_file(text) if item.name != variable.name]
        kept = [(item.name, item.value) for item in parse_env_file(changed) if item.name != variable.name]
        # One step may change one place of several; what it must not do is to change anything else.
        if again and kept == others and again[-1].value != variable.value and _nearer(variable.value, again[-1].value, value):
            return changed
    return text[: variable.start] + quote_value(value) + text[variable.end :]


def _nearer(old: str, now: str, wanted: str) -> bool:
    return now == wanted or len(now.split()) == len(old.split()) == len(wanted.split())


def _escape(character: str, *, variables: bool) -> str:
    if character == "%" or (character == "$" and variables):
        return character * 2
    if character == " ":
        return "\\s"
    if character.isascii() and not (character.isalnum() or character in "_@+=:,./~^-$!*?()[]{}<>|&"):
        return f"\\x{ord(character):02x}"
    return character


def _parts(value: str) -> tuple[UnitWord, ...]:
    return split_words(value, c_escapes=False)


def _quote_part(word: str) -> str:
    if word and all(character not in " \t\n\r'\"\\" for character in word):
        return word
    return '"' + "".join(f"\\{character}" if character in '"\\' else character for character in word) + '"'


def _replace_part(value: str, part: int, new: str) -> str:
    word = _parts(value)[part]
    return value[: word.start] + _quote_part(new) + value[word.end :]


def _remove_part(value: str, part: int) -> str:
    words = _parts(value)
    if part:
        return value[: words[part - 1].end] + value[words[part].end :]
    return value[: words[0].start] + value[words[1].start :] if len(words) > 1 else ""


def _insert_part(value: str, part: int, new: Sequence[str]) -> str:
    end = _parts(value)[part].end
    return value[:end] + "".join(f" {_quote_part(word)}" for word in new) + value[end:]


def _range(item: Assignment, text: str, start: int, end: int) -> Span:
    """Where ``item.value[start:end]`` stands in the file."""
    size = len(item.value)
    first = item.offsets[start] if start < size else (item.offsets[-1] + 1 if size else 0)
    if start == end:
        first = item.offsets[start - 1] + 1 if start else first
        return first, first
    return first, item.offsets[end - 1] + 1


def _remove_range(text: str, first: int, last: int) -> str:
    """``text`` without a word; a continued line that held nothing else goes with it."""
    begin = text.rfind("\n", 0, first) + 1
    newline = text.find("\n", last)
    end = len(text) if newline < 0 else newline
    before, after = text[begin:first], text[last:end]
    if not before.strip() and after.strip() == "\\":
        return text[:begin] + text[end + 1 :]
    if not before.strip() and not after.strip():
        # The last line of a continued command: the line before it ends the command now.
        previous = text[:begin].rstrip("\r\n")
        if previous.endswith("\\"):
            return previous[:-1].rstrip() + text[last:]
    return text[: begin + len(before.rstrip(" \t"))] + text[last:]
