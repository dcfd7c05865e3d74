"""The records of the truth table: a row's readings, its verdict, the cause and the key that mends it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..evidence.reading import Known, Reading
from ..knobs import Source

COMPACT_CACHE = "compact_cache"
DROP_IN = "drop_in"
"""The row of the console's own drop-in; it is no setting."""
RANKS = "ranks"
"""The row of the server's rank processes; it is no setting either, but what ``tp_size`` comes to."""
PORT = "port"
"""The row of the engine's port, where another program has it."""
UNIT_FILE = "unit_file"
"""The row of the unit file, where it cannot be read."""
RESTART_KEY = "r"
APPLY_KEY = "a"
SPECULATION_KEY = "s"


class Verdict(Enum):
    """What a row comes to. The symbol stands beside the word, so that colour is never needed."""

    OK = "ok"
    NOTE = "note"
    """In order, with something to know."""
    DRIFT = "drift"
    """Two sources that were read contradict each other."""
    UNCONFIRMED = "not confirmable"
    """Nothing proves the value in effect, and nothing contradicts it."""
    UNKNOWN = "unknown"
    """A source that is needed could not be read."""

    @property
    def symbol(self) -> str:
        return {"ok": "✓", "note": "!", "drift": "✗", "not confirmable": "?", "unknown": "?"}[self.value]


class Severity(Enum):
    """How much a row wants attention."""

    NONE = 0
    INFO = 1
    WARNING = 2
    ERROR = 3


class DriftKind(Enum):
    """The cause that a verdict names."""

    NONE = "none"
    PROCESS_OLDER = "process older than the unit file"
    NOT_LOADED = "unit file not loaded"
    HOT_NOT_WRITTEN = "hot change not written down"
    IGNORED = "engine ignores the flag"
    OTHER_VALUE = "another value in effect"
    RANKS_DISAGREE = "ranks disagree"
    RANKS_MISSING = "ranks missing"
    CONTRADICTION = "the engine contradicts itself"
    NOT_CONFIRMABLE = "not confirmable"
    NOT_READ = "not read"
    NOT_AS_IT_SEEMS = "unit file does not mean what it seems to"
    NOT_USED = "not used"
    OLD_SPELLING = "old spelling"
    DUPLICATE = "given twice"
    UNLIKE_TRAINING = "unlike training"
    WINDOW_NOT_READ = "build does not say whether it reads the layers' window"
    ACCEPTANCE = "acceptance out of the ordinary"
    SPECULATION_OFF = "speculation switched off"
    SHADOWED = "the drop-in hides a change of the unit"
    OVERRIDDEN = "another drop-in wins"
    STRANGER = "another program has the engine's port"
    FOLLOWS = "follows from the row above"


_WARNINGS = frozenset(
    {
        DriftKind.SHADOWED,
        DriftKind.HOT_NOT_WRITTEN,
        DriftKind.UNLIKE_TRAINING,
        DriftKind.DUPLICATE,
        DriftKind.NOT_AS_IT_SEEMS,
        DriftKind.SPECULATION_OFF,
        DriftKind.ACCEPTANCE,
    }
)


@dataclass(frozen=True)
class TruthRow:
    """One setting in every column, with its verdict."""

    knob: str
    """Name of the setting; ``compact_cache`` follows from ``draft_window`` and cannot be set."""
    title: str
    readings: Mapping[Source, Reading]
    verdict: Verdict = Verdict.OK
    message: str = ""
    """The verdict in words; empty when all is well and there is nothing to say."""
    key: str = ""
    """The key that mends it: ``r`` restart and confirm, ``a`` apply, ``s`` speculation, ``e`` carry the drop-in over; empty when
    no key does."""
    kind: DriftKind = DriftKind.NONE
    now: Reading = field(default_factory=lambda: Reading(Known.UNKNOWN))
    """The value in effect now, from the strongest evidence."""

    @property
    def severity(self) -> Severity:
        if self.verdict is Verdict.DRIFT:
            return Severity.WARNING if self.kind in _WARNINGS else Severity.ERROR
        if self.verdict in (Verdict.UNCONFIRMED, Verdict.NOTE):
            return Severity.WARNING if self.kind in _WARNINGS else Severity.INFO
        return Severity.NONE


@dataclass(frozen=True)
class TruthTable:
    """All rows, those that are always there first."""

    rows: tuple[TruthRow, ...]
    unreadable: tuple[str, ...] = ()
    """What could not be read and keeps rows from being judged, each in a few words."""

    def row(self, knob: str) -> TruthRow | None:
        return next((row for row in self.rows if row.knob == knob), None)

    @property
    def drifted(self) -> tuple[TruthRow, ...]:
        return drift_items(self)


def drift_items(table: TruthTable) -> tuple[TruthRow, ...]:
    """The rows whose sources contradict each other, worst first: what is counted wherever drift is counted.

    A row that only follows from another is the same drift and not listed again.
    """
    rows = [row for row in table.rows if row.verdict is Verdict.DRIFT and row.kind is not DriftKind.FOLLOWS]
    return tuple(sorted(rows, key=lambda row: -row.severity.value))
