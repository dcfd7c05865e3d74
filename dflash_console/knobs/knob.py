"""One engine setting and every name it goes by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from ..evidence.secrets import MASK, is_secret_name
from .values import AUTO, LARGEST, OFF, PLAIN, KnobError, KnobKind, Value, is_too_long, quoted, read_value, show_value


class Source(Enum):
    """Where a value was read. The order is that of the truth table's columns."""

    TRAINED = "trained"
    UNIT = "unit"
    LOADED = "loaded"
    PROCESS = "process"
    SERVER = "server"
    LOG = "log"


@dataclass(frozen=True)
class Knob:
    """One engine setting and every name it goes by."""

    name: str
    title: str
    kind: KnobKind
    unit: str
    help: str
    flags: tuple[str, ...]
    """Command-line spellings, the one to write first, older ones after it."""
    server_fields: tuple[str, ...] = ()
    """Top-level fields of ``/server_info``: what was *asked* at start (a foreign server echoes its flags)."""
    internal_fields: tuple[str, ...] = ()
    """Fields of ``/server_info`` → ``internal_states[i]``: what the engine says is in effect now."""
    log_keys: tuple[str, ...] = ()
    """Keys of the confirmation lines of a start."""
    hot_name: str | None = None
    """Name in ``POST /set_internal_state`` when the engine takes it while running."""
    most_flag: str = ""
    """Start flag of the most that it can be raised to while the engine runs; ``/server_info`` has a field named like it."""
    variables: str = ""
    """Pattern for names of environment variables from which scripts that start an engine take it (``DRAFT_WINDOW``)."""
    request_param: str | None = None
    """Name in ``sampling_params.custom_params``."""
    minimum: float | None = None
    maximum: float | None = None
    steps: tuple[Value, ...] = ()
    """Values that the step keys walk through."""
    evidence: tuple[Source, ...] = (Source.LOG, Source.SERVER)
    """Which sources prove the value *in effect*: a key of this start's log, a field that the engine computed, or, for
    flags with neither, this process's own command line."""
    default_text: str = ""
    """What the engine does when the flag is not given, in words."""
    default: Value | None = None
    """The same as a canonical value; ``None`` when the engine chooses (by model, memory or drafter)."""

    @property
    def secret(self) -> bool:
        """The value is a key, a token or a password: it is set, and never shown, stored or compared in the open."""
        return any(is_secret_name(flag) for flag in self.flags)

    def may_be_in(self, variable: str) -> bool:
        """Whether an environment variable of this name may give the setting to a script that starts the engine."""
        return bool(self.variables) and re.search(self.variables, variable) is not None

    def shown(self, value: Value | None) -> Value | None:
        """``value`` as records and screens may hold it."""
        return MASK if self.secret and value is not None else value

    def parse(self, text: str) -> Value:
        """The canonical value of ``text`` as a user or a source wrote it.

        Raises:
            KnobError: the setting cannot take it.
        """
        raw = text.strip().strip("'\"")
        if self.secret and raw == MASK:
            raise KnobError(f"{self.name}: {MASK} stands for the value that is not shown; give the new one itself")
        if self.minimum is not None and self.kind is not KnobKind.FRACTION and is_too_long(raw):
            most = LARGEST if self.maximum is None else int(self.maximum)
            raise KnobError(f"{self.name} takes a number from {self.minimum:g} to {most}, not {quoted(raw)}")
        value = read_value(self.kind, self.name, raw)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if self.minimum is not None and value < self.minimum:
                raise KnobError(f"{self.name} must be at least {self.minimum:g}, not {raw}")
            if self.maximum is not None and value > self.maximum:
                raise KnobError(f"{self.name} must be at most {self.maximum:g}, not {raw}")
        return value

    def flag_arguments(self, value: Value) -> tuple[str, ...]:
        """The words to put on a command line; empty when the value is what the engine does without the flag."""
        if self.kind is KnobKind.SWITCH:
            return self.flags[:1] if value is True else ()
        if not self.flags or (value in (OFF, PLAIN) and self.kind in (KnobKind.WINDOW, KnobKind.ALGORITHM)):
            return ()
        return (self.flags[0], show_value(value))

    def hot_value(self, value: Value) -> float:
        """The number that ``/set_internal_state`` takes for ``value``.

        Raises:
            KnobError: the engine takes this value at start only.
        """
        if value == OFF or value is False or (value == AUTO and self.kind is KnobKind.BUDGET):
            return 0
        if value is True:
            return 1
        if isinstance(value, (int, float)):
            return value
        raise KnobError(f"{self.name}={value} can only be set at start")

    def of_hot_value(self, number: float) -> Value:
        """The value that :meth:`hot_value` has made a number of.

        Raises:
            KnobError: it makes this number of none.
        """
        return AUTO if number == 0 and self.kind is KnobKind.BUDGET else self.parse(f"{number:g}")
