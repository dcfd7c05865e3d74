"""Which value of a setting counts: the one in effect, by the engine's own words, and the one that the configuration asks for."""

from __future__ import annotations

from .drift import witnesses_of
from .evidence import truth
from .evidence.command import command_reading
from .evidence.reading import Reading
from .knobs import CONFIG, OFF, PLAIN, Value, find_knob
from .state import HostState

UNGIVEN: dict[str, Value] = {"draft_window": OFF, "layers_window": CONFIG, "algorithm": PLAIN}
"""What an engine does when the flag is not given, for the settings where that is the same everywhere."""


def in_effect(state: HostState, name: str) -> Reading:
    """What the running engine says of one setting, from the strongest evidence there is.

    Of an engine that does not run nothing is in effect: the reading is then unknown.

    Raises:
        KnobError: there is no setting of that name.
    """
    return truth.in_effect(witnesses_of(state), find_knob(name))


def configured(state: HostState, name: str) -> Reading:
    """What the configuration asks for; *absent* when it leaves the setting to the engine.

    Raises:
        KnobError: there is no setting of that name.
    """
    witnesses = witnesses_of(state)
    return command_reading(witnesses.command, find_knob(name), witnesses.command_file)
