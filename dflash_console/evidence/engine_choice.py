"""Which engine a command line starts: SGLang, the embedded one, or the one that the launcher finds on its machine."""

from __future__ import annotations

from collections.abc import Sequence

from engine_launch.spec.checks import EngineKind

from ..knobs import find_knob
from .command import CommandForm, find_engine, flag_value


def asked_engine(argv: Sequence[str]) -> EngineKind | None:
    """The engine that ``argv`` asks for.

    :attr:`EngineKind.AUTO` leaves the choice to the launcher, which takes SGLang where it is installed beside it and the machine
    has a GPU, and the embedded engine otherwise. ``None`` = no engine is named, or its name is only known when the command runs.
    """
    engine = find_engine(argv)
    if engine is None:
        return None
    if engine.form not in (CommandForm.LAUNCHER, CommandForm.LAUNCHER_MODULE):
        return EngineKind.SGLANG
    given = flag_value(argv, find_knob("flag:--engine"))
    if not given.given:
        return EngineKind.AUTO
    try:
        return EngineKind(str(given.value))
    except ValueError:
        return None
