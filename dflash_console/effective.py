"""Which value of a setting counts: the one in effect, by the engine's own words, and the one that the configuration asks for."""

from __future__ import annotations

from .drift import witnesses_of
from .evidence import truth
from .evidence.reading import Known, Reading
from .knobs import CONFIG, OFF, PLAIN, Source, Value, find_knob, same_value
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


def running_with(state: HostState, name: str) -> Reading:
    """:func:`in_effect`, and for a setting that engines neither print nor compute, what the running engine was started with.

    That is its own command line, as in a confirmation, unless the server reports another value: it is the server that chooses
    where the flag is not given, or overrides it. A drafter's path may be written in several ways: there the command line stands.

    Raises:
        KnobError: there is no setting of that name.
    """
    knob, now = find_knob(name), in_effect(state, name)
    if now.known is Known.VALUE or knob.log_keys or knob.internal_fields or Source.PROCESS not in knob.evidence:
        return now
    witnesses = witnesses_of(state)
    given, reported = truth.process_reading(witnesses, knob), truth.report_reading(witnesses, knob)
    if reported.known is not Known.VALUE:
        return given
    same = given.known is Known.VALUE and (name == "drafter" or same_value(given.value, reported.value))
    return given if same else reported


def configured(state: HostState, name: str) -> Reading:
    """What the configuration asks for; *absent* when it leaves the setting to the engine, *unknown* when it cannot be read.

    Raises:
        KnobError: there is no setting of that name.
    """
    return truth.unit_reading(witnesses_of(state), find_knob(name))
