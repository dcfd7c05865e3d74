"""The engine's own words inside any command line: find them, read a setting, change one and nothing else.

The engine may be the command itself, a word list behind ``env``, ``numactl`` or ``docker run … IMAGE``, or a part of a
shell string (``bash -c '…'``), even of a string in a string. Reading follows argparse: ``--flag=value`` and ``--flag
value`` mean the same, a prefix that fits one flag only is that flag, the last occurrence wins. Editing replaces the value
of the last occurrence where it stands, in the user's spelling; every other word and byte stays. Nothing is ever expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from engine_launch.spec.flags import BY_SPELLING, Kind

from ..knobs import KNOBS, Knob, KnobError, KnobKind, Value, same_value, show_value
from .nested import Edit, EditError, Layers, edited, top_layer
from .reading import Known, Reading, absent, unknown, valued
from .secrets import MASK, is_secret_name
from .secrets import mask_argv as mask_argv
from .secrets import mask_text as mask_text


class CommandError(ValueError):
    """A command line that cannot be edited as asked; the message says why and what to do."""


class CommandForm(Enum):
    """How the engine is started."""

    LAUNCHER = "ddtree-launch serve"
    LAUNCHER_MODULE = "python -m engine_launch serve"
    SGLANG_MODULE = "python -m sglang.launch_server"
    SGLANG_SERVE = "sglang serve"


@dataclass(frozen=True)
class EngineCommand:
    """Where the engine's own words are."""

    argv: tuple[str, ...]
    """The words of the command that starts the engine: the whole command line, or the words of a nested shell string."""
    start: int
    end: int
    """``argv[start:end]`` are the engine's arguments."""
    form: CommandForm
    path: tuple[int, ...] = ()
    """Indices of the words that the shell strings are in, outermost first; empty when the engine is not in a string."""
    opaque: frozenset[int] = frozenset()
    """Indices of words that hold an expansion (``$NAME``, ``$(…)``): what the engine gets is not known here."""
    outer: tuple[str, ...] = ()
    """The words before the engine, of all layers, outermost first."""

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.argv[self.start : self.end]

    @property
    def nested(self) -> bool:
        return bool(self.path)

    @property
    def container(self) -> bool:
        """The engine runs in a container: the service's main process is the container's client, not the engine."""
        return any(_basename(word) in ("docker", "podman", "nerdctl") for word in self.outer)


@dataclass(frozen=True)
class FlagReading:
    """One setting as the command line gives it."""

    value: Value | None = None
    """Canonical; ``None`` when the flag is not given or its value cannot be read."""
    text: str = ""
    """The value as written."""
    spelling: str = ""
    """The flag as written, a prefix or an old name included; empty when it is not given."""
    index: int | None = None
    """Index in ``EngineCommand.argv`` of the word that holds the flag."""
    overridden: tuple[str, ...] = ()
    """Values of earlier occurrences, which the last one overrides."""
    problem: str = ""
    """Why the value cannot be read."""

    @property
    def given(self) -> bool:
        return self.index is not None

    @property
    def duplicate(self) -> bool:
        return bool(self.overridden)


@dataclass(frozen=True)
class _Occurrence:
    index: int
    spelling: str
    text: str
    value_index: int
    """The word that holds the value; ``-1`` for a flag without one."""
    value_start: int
    opaque: bool


_NOT_GIVEN = FlagReading()


def find_engine(argv: Sequence[str]) -> EngineCommand | None:
    """The engine's words in ``argv``; ``None`` when no engine is named (a wrapper script hides its flags)."""
    layers = locate(argv)
    return layers[1] if layers is not None else None


def count_engines(argv: Sequence[str]) -> int:
    """How many commands of ``argv`` start an engine: a shell string may hold several (``A || B``), of which the first is read and
    edited."""
    return _count(top_layer(argv), _DEPTH)


def engine_arguments(argv: Sequence[str]) -> tuple[str, ...]:
    """The engine's own arguments; empty when no engine is named."""
    found = find_engine(argv)
    return found.arguments if found is not None else ()


def flag_value(argv: Sequence[str], knob: Knob) -> FlagReading:
    """What the command line says of ``knob``."""
    found = find_engine(argv)
    if found is None:
        return FlagReading(problem=no_engine(argv))
    occurrences = _occurrences(found, knob)
    if not occurrences:
        return _NOT_GIVEN
    last = occurrences[-1]
    value: Value | None = None
    problem = ""
    if last.opaque:
        problem = f"the value of {last.spelling} is only known when the command runs"
    elif not last.text.strip() and last.value_index >= 0 and knob.kind is not KnobKind.TEXT:
        problem = f"{last.spelling} has an empty value"
    elif last.value_index < 0:
        # A flag that nobody knows and that stands alone can only be a switch.
        bare = knob.kind is KnobKind.SWITCH or (knob.kind is KnobKind.TEXT and knob.name not in KNOBS)
        value, problem = (True, "") if bare else (None, f"{last.spelling} has no value")
    else:
        try:
            value = knob.parse(last.text)
        except KnobError as error:
            problem = str(error)
    return FlagReading(value, last.text, last.spelling, last.index, tuple(item.text for item in occurrences[:-1]), problem)


def command_reading(argv: Sequence[str] | None, knob: Knob, where: str = "command line") -> Reading:
    """:func:`flag_value` as a reading; without the flag, what the engine does then."""
    if argv is None:
        return unknown("the command line is not known", where)
    if not knob.flags:
        return absent("has no command-line flag", where)
    found = flag_value(argv, knob)
    if found.problem:
        return Reading(Known.UNKNOWN, text=found.text, where=where, why=found.problem)
    if not found.given or found.value is None:
        hidden = hidden_flags(argv)
        return unknown(f"not given in words, and {hidden} may give it", where) if hidden else absent(knob.default_text, where)
    remark = f"given {len(found.overridden) + 1} times, the last wins" if found.duplicate else ""
    if is_secret_name(found.spelling):
        return valued(MASK, MASK, f"{where}, {found.spelling}", remark)
    return valued(found.value, found.text or show_value(found.value), f"{where}, {found.spelling}", remark)


def hidden_flags(argv: Sequence[str]) -> str:
    """What may give the engine flags that are in none of its words: an expansion where a flag may stand (``$FLAGS``,
    ``"${ARGS[@]}"``), or a file that ``--config`` names. Empty where all flags are words."""
    found = find_engine(argv)
    if found is None:
        return ""
    before = ""
    for index, word in enumerate(found.arguments, found.start):
        value_of = before.startswith("--") and "=" not in before and not _takes_no_value(before)
        if word.startswith("--config=") or (before == "--config" and word):
            return f"the file {word.removeprefix('--config=')} (--config)"
        if not word.startswith("--") and not value_of and (index in found.opaque or _VARIABLE.fullmatch(word)):
            shown = mask_text(word)
            return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"
        before = "" if value_of else word
    return ""


_VARIABLE = re.compile(r"\$[A-Za-z_]\w*|\$\{[A-Za-z_]\w*\}")
"""A word that only the service manager fills in; in a process there is none."""
_SHOWN = 40
"""Characters of an expansion that are named."""


def _takes_no_value(flag: str) -> bool:
    known = BY_SPELLING.get(flag)
    return known is not None and known.kind is Kind.SWITCH


def set_flag(argv: Sequence[str], knob: Knob, value: Value | None) -> tuple[str, ...]:
    """``argv`` with ``knob`` set to ``value``; ``None``, or a value that means "without the flag", removes every occurrence.

    The last occurrence keeps its place and spelling; a flag that is not there yet is added after the engine's last word.

    Raises:
        CommandError: no engine is named, the flag has no spelling, or the place cannot be edited safely.
    """
    located = locate(argv)
    if located is None:
        raise CommandError(no_engine(argv))
    layers, found = located
    if not knob.flags:
        raise CommandError(f"{knob.name} has no command-line flag: it can only be changed in the running engine")
    occurrences = _occurrences(found, knob)
    wanted = _words(knob, value)
    edits: list[Edit] = []
    if not wanted:
        for item in occurrences:
            edits += [Edit.remove(index) for index in sorted({item.index, item.value_index} - {-1})]
    elif not occurrences:
        edits.append(Edit.insert(found.end, wanted))
    else:
        last = occurrences[-1]
        if last.value_index >= 0 and len(wanted) == 2:
            if _means(knob, last, value):
                return tuple(argv)
            edits.append(Edit.replace(last.value_index, last.value_start, wanted[1]))
        elif last.value_index < 0 and len(wanted) == 2:
            edits.append(Edit.insert(last.index + 1, wanted[1:]))
        elif last.value_index >= 0:
            raise CommandError(f"{last.spelling} stands there with the value {last.text}: it cannot become a bare flag")
    try:
        changed = layers.apply(edits)
    except EditError as error:
        raise CommandError(f"{knob.flags[0]} cannot be set here: {error}") from None
    again = locate(changed)
    if again is None or again[0].words != edited(layers.words, edits):
        raise CommandError(
            f"{knob.flags[0]} cannot be set here without changing how the words around it are read; edit it by hand"
        )
    return changed


def _words(knob: Knob, value: Value | None) -> tuple[str, ...]:
    """The words that set ``value``; none for "without the flag"."""
    if isinstance(value, bool) and knob.name not in KNOBS:
        return knob.flags[:1] if value else ()
    return knob.flag_arguments(value) if value is not None else ()


def no_engine(argv: Sequence[str]) -> str:
    """Why a command line without an engine cannot be read: one sentence."""
    script = next((word for word in argv if word.endswith((".sh", ".bash", ".py"))), None) or next(iter(argv), None)
    if script is None:
        return "the command line is empty"
    return f"no engine is named in the command line: the flags live in {script}, or another program is started"


def _means(knob: Knob, occurrence: _Occurrence, value: Value | None) -> bool:
    try:
        return not occurrence.opaque and same_value(knob.parse(occurrence.text), value)
    except KnobError:
        return False


def locate(argv: Sequence[str]) -> tuple[Layers, EngineCommand] | None:
    """The engine, and the shell strings that it is in."""
    return _search(top_layer(argv), (), (), _DEPTH)


_DEPTH = 3
"""So many shell strings within one another are looked into."""


def _search(layers: Layers, path: tuple[int, ...], outer: tuple[str, ...], depth: int) -> tuple[Layers, EngineCommand] | None:
    """The engine among the words of the innermost layer, else in a shell string that one of them is."""
    for begin, end in layers.commands():
        hit = _engine_start(layers.words[begin:end])
        if hit is not None:
            offset, form = hit
            opaque = frozenset(i for i in range(begin, end) if layers.opaque(i))
            words = layers.words
            found = EngineCommand(words, begin + offset, end, form, path, opaque, (*outer, *words[begin : begin + offset]))
            return layers, found
    if depth == 0:
        return None
    for index in _strings(layers.words):
        inner = _search(layers.enter(index), (*path, index), (*outer, *layers.words[:index]), depth - 1)
        if inner is not None:
            return inner
    return None


def _count(layers: Layers, depth: int) -> int:
    here = sum(_engine_start(layers.words[begin:end]) is not None for begin, end in layers.commands())
    return here + (sum(_count(layers.enter(index), depth - 1) for index in _strings(layers.words)) if depth else 0)


def _strings(words: Sequence[str]) -> Iterator[int]:
    """Indices of words that may be shell strings with an engine in them."""
    for index, word in enumerate(words):
        if ("sglang" in word or "launch" in word) and any(blank in word for blank in " \t\n"):
            yield index


def _engine_start(words: Sequence[str]) -> tuple[int, CommandForm] | None:
    """Where the engine's arguments begin in one simple command; ``None`` also where a command only speaks of an engine."""
    if words and _basename(words[0]) in _SPEAKS:
        return None
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        third = words[index + 2] if index + 2 < len(words) else ""
        name = _basename(word)
        module = _MODULE.fullmatch(word)
        if module is not None and module[1] == "sglang.launch_server":
            return index + 1, CommandForm.SGLANG_MODULE
        asked = module is not None and not module[1]
        if asked and following == "sglang.launch_server":
            return index + 2, CommandForm.SGLANG_MODULE
        if asked and following in ("engine_launch", "engine_launch.__main__") and third == "serve":
            return index + 3, CommandForm.LAUNCHER_MODULE
        if asked and following in ("sglang", "sglang.cli.main") and third == "serve":
            return index + 3, CommandForm.SGLANG_SERVE
        if word.endswith(("sglang/launch_server.py", "sglang/launch_server")):
            return index + 1, CommandForm.SGLANG_MODULE
        if name == "ddtree-launch" and following == "serve":
            return index + 2, CommandForm.LAUNCHER
        if name == "sglang" and following == "serve":
            return index + 2, CommandForm.SGLANG_SERVE
        entry = following if word == "--entrypoint" else word.removeprefix("--entrypoint=")
        if entry != word and _basename(entry) == "sglang" and "serve" in words[index:]:
            # A container's: its image stands between the program and what that is given.
            return words.index("serve", index) + 1, CommandForm.SGLANG_SERVE
    return None


_MODULE = re.compile(r"-[bBdEiIOPqRsSuvx]*m(.*)")
"""Python's ``-m``, also behind options that take no value (``-um``)."""
_SPEAKS = frozenset({"echo", "printf", "logger", "pkill", "pgrep", "killall", "which", "type", ":"})
"""Commands in whose words an engine may be named and is not started."""


def _basename(word: str) -> str:
    return word.rsplit("/", 1)[-1]


def _occurrences(command: EngineCommand, knob: Knob) -> list[_Occurrence]:
    found: list[_Occurrence] = []
    words, index = command.argv, command.start
    while index < command.end:
        word = words[index]
        spelling, equals, attached = word.partition("=")
        if not spelling.startswith("--") or not names_flag(spelling, knob.flags):
            index += 1
            continue
        if equals:
            found.append(_Occurrence(index, spelling, attached, index, len(spelling) + 1, index in command.opaque))
        elif knob.kind is not KnobKind.SWITCH and index + 1 < command.end and not words[index + 1].startswith("--"):
            found.append(_Occurrence(index, spelling, words[index + 1], index + 1, 0, index + 1 in command.opaque))
            index += 1
        else:
            found.append(_Occurrence(index, spelling, "", -1, 0, False))
        index += 1
    return found


@lru_cache(maxsize=4096)
def names_flag(spelling: str, flags: tuple[str, ...]) -> bool:
    """Whether ``spelling`` is one of ``flags`` or, as argparse allows, a prefix that fits no other flag of the engine."""
    if spelling in flags:
        return True
    if spelling in BY_SPELLING or len(spelling) < 4 or not any(flag.startswith(spelling) for flag in flags):
        return False
    own = {BY_SPELLING[flag].name if flag in BY_SPELLING else flags[0] for flag in flags}
    return all(flag.name in own for full, flag in BY_SPELLING.items() if full.startswith(spelling))
