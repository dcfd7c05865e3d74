"""A command line in words: how the engine is started, what each flag sets, and what to be wary of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..knobs import KNOBS, Knob
from .command import CommandForm, EngineCommand, find_engine, flag_value, names_flag, no_engine
from .secrets import MASK, is_secret_name, mask_argv


@dataclass(frozen=True)
class ExplainedFlag:
    """One flag of the engine in the order of the command line; secrets are masked."""

    spelling: str
    """As written."""
    text: str
    """The value as written; empty for a switch."""
    knob: str = ""
    """Name of the setting in the catalogue; empty for other flags."""
    title: str = ""
    overridden: bool = False
    """A later occurrence of the same setting counts instead."""


@dataclass(frozen=True)
class Explanation:
    form: CommandForm | None
    """``None``: no engine is named."""
    outer: tuple[str, ...] = ()
    """The words before the engine's own, secrets masked."""
    flags: tuple[ExplainedFlag, ...] = ()
    remarks: tuple[str, ...] = ()
    """One sentence each."""


def explain(argv: Sequence[str]) -> Explanation:
    """What a command line starts and sets."""
    found = find_engine(argv)
    if found is None:
        return Explanation(None, mask_argv(argv), remarks=(f"{no_engine(argv)}.",))
    flags = tuple(_flags(found))
    return Explanation(found.form, mask_argv(found.outer), flags, tuple(_remarks(found, argv)))


def _flags(found: EngineCommand) -> list[ExplainedFlag]:
    flags: list[ExplainedFlag] = []
    for word in found.arguments:
        if word.startswith("--"):
            spelling, equals, value = word.partition("=")
            knob = _knob(spelling)
            text = MASK if equals and is_secret_name(spelling) else value
            flags.append(ExplainedFlag(spelling, text, knob.name if knob else "", knob.title if knob else ""))
        elif flags:
            last = flags[-1]
            value = MASK if is_secret_name(last.spelling) else f"{last.text} {word}".strip()
            flags[-1] = ExplainedFlag(last.spelling, value, last.knob, last.title)
    newest = {flag.knob or flag.spelling: position for position, flag in enumerate(flags)}
    return [
        ExplainedFlag(flag.spelling, flag.text, flag.knob, flag.title, overridden=newest[flag.knob or flag.spelling] != position)
        for position, flag in enumerate(flags)
    ]


def _knob(spelling: str) -> Knob | None:
    return next((knob for knob in KNOBS.values() if names_flag(spelling, knob.flags)), None)


def _remarks(found: EngineCommand, argv: Sequence[str]) -> list[str]:
    remarks: list[str] = []
    if found.nested:
        remarks.append("The engine's flags stand inside a shell string: only the value that changes is edited there.")
    if found.container:
        remarks.append("The engine runs in a container: the service's main process is the container's client.")
    for knob in KNOBS.values():
        reading = flag_value(argv, knob)
        if reading.problem:
            remarks.append(f"{reading.problem[:1].upper()}{reading.problem[1:]}.")
        if reading.duplicate:
            remarks.append(
                f"{reading.spelling} is given {len(reading.overridden) + 1} times: the last one, {reading.text}, counts."
            )
        if reading.given and reading.spelling not in knob.flags:
            remarks.append(f"{reading.spelling} is a prefix of {_full_name(reading.spelling, knob)}.")
        elif knob.name == "draft_window" and reading.spelling in knob.flags[1:]:
            remarks.append(f"{reading.spelling} is the old spelling of {knob.flags[0]}; both are accepted.")
    return remarks


def _full_name(spelling: str, knob: Knob) -> str:
    return next((flag for flag in knob.flags if flag.startswith(spelling)), knob.flags[0])
