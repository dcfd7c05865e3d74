"""The catalogue of engine settings.

Everything that names a flag, a server field or a log key reads it from here: the command editor, the drift table, the
plan, confirmation, the screens and the help text.
"""

from .catalogue import FLAG_PREFIX, KNOBS, TRUTH_KNOBS, find_knob, parse_settings
from .knob import Knob, Source
from .values import AUTO, CONFIG, OFF, PLAIN, KnobError, KnobKind, Value, same_value, show_value

__all__ = [
    "AUTO",
    "CONFIG",
    "FLAG_PREFIX",
    "KNOBS",
    "OFF",
    "PLAIN",
    "TRUTH_KNOBS",
    "Knob",
    "KnobError",
    "KnobKind",
    "Source",
    "Value",
    "find_knob",
    "parse_settings",
    "same_value",
    "show_value",
]
