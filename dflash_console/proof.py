"""Whether a setting is in effect: what proves it, and what the evidence of one start says. Pure.

The rule: a key of this start's log, a field that the engine computed, or, for settings that engines neither print nor compute,
this process's own command line. What a server merely echoes proves what was asked, not what is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from engine_launch.spec.drafter_config import DrafterConfig

from .effective import UNGIVEN
from .evidence.command import command_reading, find_engine, flag_value
from .evidence.engine_log import StartLog, ignored_flag, log_reading
from .evidence.reading import Known, Reading, unknown
from .evidence.server import DISAGREE, Dialect, ServerInfo, in_effect_reading, server_reading
from .knobs import AUTO, CONFIG, KNOBS, OFF, PLAIN, Knob, Source, Value, find_knob, same_value, show_value


class Proof(Enum):
    """What the evidence says of one wanted value."""

    PROVEN = "proven"
    OTHER = "another value is in effect"
    MISSING = "the evidence has not been seen"
    UNPROVABLE = "this engine gives no evidence of it"


@dataclass(frozen=True)
class KnobProof:
    """The verdict on one setting."""

    knob: Knob
    wanted: Value | None
    proof: Proof
    reading: Reading | None = None
    """The reading that decided."""
    source: Source | None = None
    unseen_because: str = ""
    """Why evidence that this engine gives cannot be seen from here."""

    def unseen(self, why: str) -> KnobProof:
        """This proof, where evidence could not be looked for: what is missing is then not known to be missing."""
        return replace(self, proof=Proof.UNPROVABLE, unseen_because=why) if self.proof is Proof.MISSING else self

    @property
    def words(self) -> str:
        """``compact draft cache 512 (log line 12)``, or why not."""
        title = self.knob.title.lower() if not self.knob.title.startswith("--") else self.knob.title
        wanted = "left to the engine" if self.wanted is None else show_value(self.wanted)
        if self.proof is Proof.PROVEN and self.reading is not None:
            return f"{title} {wanted} ({self.reading.where})"
        if self.proof is Proof.OTHER and self.reading is not None:
            remark = f": {self.reading.why}" if self.reading.why.startswith(DISAGREE) or self.reading.text == "ignored" else ""
            return f"{title} is {self.reading.words or 'something else'}, not {wanted} ({self.reading.where}{remark})"
        if self.proof is Proof.MISSING:
            return f"{title} {wanted}: no evidence seen" + (f" ({self.reading.why})" if self.reading and self.reading.why else "")
        if self.unseen_because:
            return f"{title} {wanted}: applied, not confirmable: {self.unseen_because}"
        return f"{title} {wanted}: applied, not confirmable on this engine"


@dataclass(frozen=True)
class StartEvidence:
    """Everything that one start has said about itself."""

    log: StartLog | None
    server: ServerInfo | None
    argv: Sequence[str] | None
    """Of the running process."""
    drafter: DrafterConfig | None = None

    @property
    def dialect(self) -> Dialect:
        return self.server.dialect if self.server is not None else Dialect.UNKNOWN

    @property
    def quiet(self) -> bool:
        return self.argv is not None and quiet_log(self.argv)


QUIET_LEVELS = frozenset({"warning", "error", "critical"})


def quiet_log(command: Sequence[str]) -> bool:
    """Whether an engine with this command line keeps its confirmation lines to itself."""
    return flag_value(command, find_knob("flag:--log-level")).text.lower() in QUIET_LEVELS


def proof_sources(knob: Knob, dialect: Dialect, *, quiet: bool = False) -> tuple[Source, ...]:
    """The sources that can prove ``knob`` on this engine, the strongest first; empty = none can.

    Args:
        quiet: the engine's log level hides its confirmation lines.
    """
    found = []
    if Source.LOG in knob.evidence and knob.log_keys and not quiet:
        found.append(Source.LOG)
    if Source.SERVER in knob.evidence and knob.internal_fields and dialect.hot:
        found.append(Source.SERVER)
    if not knob.log_keys and not knob.internal_fields and Source.PROCESS in knob.evidence:
        found.append(Source.PROCESS)
    return tuple(found)


def proof_words(knob: Knob, sources: Sequence[Source]) -> str:
    """How a value will be confirmed, in one phrase."""
    names = {
        Source.LOG: f"{knob.log_keys[0] if knob.log_keys else ''} in the log of the new start",
        Source.SERVER: f"{knob.internal_fields[0] if knob.internal_fields else ''} as the engine reports it",
        Source.PROCESS: "the new process's own command line",
    }
    return " and ".join(names[source] for source in sources) if sources else "applied, not confirmable on this engine"


def expected_value(knob: Knob, wanted: Value | None, drafter: DrafterConfig | None) -> Value | None:
    """The value that evidence shows when ``wanted`` is in effect: ``config`` shows as the trained window, a flag that is not
    given as what the engine does then. ``None`` = the engine's own choice."""
    if wanted is None:
        wanted = UNGIVEN.get(knob.name)
    if wanted == CONFIG and knob.name == "layers_window" and drafter is not None:
        return drafter.sliding_window if drafter.sliding_layers and drafter.sliding_window else OFF
    return wanted


def prove(knob: Knob, wanted: Value | None, evidence: StartEvidence) -> KnobProof:
    """Judge one setting. One source that shows another value outweighs all that show the wanted one."""
    sources = proof_sources(knob, evidence.dialect, quiet=evidence.quiet)
    expected = expected_value(knob, wanted, evidence.drafter)
    if expected is None:
        return _left_to_engine(knob, evidence)
    missing: Reading | None = None
    proven: KnobProof | None = None
    for source in sources:
        reading = _read(source, knob, evidence)
        if reading.known is Known.VALUE:
            if not _fits(reading.value, expected, wanted):
                return KnobProof(knob, wanted, Proof.OTHER, reading, source)
            proven = proven or KnobProof(knob, wanted, Proof.PROVEN, reading, source)
        elif reading.why.startswith(DISAGREE):
            return KnobProof(knob, wanted, Proof.OTHER, reading, source)
        else:
            missing = missing or reading
    if proven is not None and proven.source is Source.PROCESS:
        other = _contradiction(knob, expected, evidence)
        return proven if other is None else KnobProof(knob, wanted, Proof.OTHER, *other)
    if proven is not None and proven.source is Source.LOG and (other_one := _other_server(knob, expected, evidence)) is not None:
        return KnobProof(knob, wanted, Proof.OTHER, other_one, Source.SERVER)
    if proven is not None:
        return proven
    return KnobProof(knob, wanted, Proof.MISSING if sources else Proof.UNPROVABLE, missing)


def _fits(found: Value | None, expected: Value, wanted: Value | None) -> bool:
    # An automatic budget shows as the width it chose, and "config" may be printed as the word or as the number.
    return same_value(found, expected) or same_value(found, wanted) or (wanted == AUTO and isinstance(found, int))


def _contradiction(knob: Knob, expected: Value, evidence: StartEvidence) -> tuple[Reading, Source] | None:
    """What the engine itself says against its command line: that the flag is ignored, or that another value took its place.

    A command line proves what was asked; it stands as proof only while the engine, which could know better, does not disagree.
    """
    remark = ignored_flag(evidence.log, knob) if evidence.log is not None else None
    if remark is not None:
        return Reading(Known.UNKNOWN, text="ignored", where=f"log line {remark.number}", why=remark.text), Source.LOG
    # A path may be written in several ways, and "auto" is there to be replaced.
    if knob.name == "drafter" or expected == AUTO:
        return None
    reported = server_reading(evidence.server, knob)
    if reported.known is not Known.VALUE or _same_written(reported.value, expected):
        return None
    return reported, Source.SERVER


def _other_server(knob: Knob, expected: Value, evidence: StartEvidence) -> Reading | None:
    """What the server that answers says it was started with, where the line that proves the value cannot be its own.

    The line was then printed by another engine: one of the same start that its wrapper has replaced by one without a drafter, or
    the server is an older container that still has the port. What a server echoes confirms nothing, and still tells it from one
    that was started otherwise.
    """
    algorithm = server_reading(evidence.server, KNOBS["algorithm"])
    if knob.name not in _OF_A_DRAFTER or expected in (PLAIN, OFF):
        return None
    if algorithm.value == PLAIN:
        return algorithm if knob.name == "algorithm" else Reading(Known.UNKNOWN, text="not used by PLAIN", where=algorithm.where)
    if Source.SERVER in proof_sources(knob, evidence.dialect):
        # It says what it uses now, and has been judged by that: after a hot change this is not what it was started with.
        return None
    reported = server_reading(evidence.server, knob)
    # Others may be reported otherwise than they are asked for: a fork's block is as wide as its tree.
    told = knob.name in _ECHOED and isinstance(expected, int) and reported.known is Known.VALUE
    return reported if told and not same_value(reported.value, expected) and reported.value != AUTO else None


_OF_A_DRAFTER = ("algorithm", "draft_window", "layers_window", "tree_budget", "tree_topk", "block_size")
_ECHOED = ("draft_window", "tree_budget", "tree_topk")
"""Settings that an engine which was started with one value of reports with that value."""


def _same_written(found: Value | None, expected: Value) -> bool:
    """The same value, also where a number is text in one of them (``0.80`` and 0.8)."""
    if same_value(found, expected) or show_value(found).casefold() == show_value(expected).casefold():
        return True
    try:
        return float(str(found)) == float(str(expected))
    except ValueError:
        return False


def _read(source: Source, knob: Knob, evidence: StartEvidence) -> Reading:
    if source is Source.LOG:
        return log_reading(evidence.log, knob)
    if source is Source.SERVER:
        return in_effect_reading(evidence.server, knob)
    return _process_reading(knob, evidence)


def _process_reading(knob: Knob, evidence: StartEvidence) -> Reading:
    engine = find_engine(evidence.argv) if evidence.argv is not None else None
    if engine is not None and engine.container:
        return unknown("the main process is a container's client: its words are not the engine's process")
    return command_reading(evidence.argv, knob, "this process's command line")


def _left_to_engine(knob: Knob, evidence: StartEvidence) -> KnobProof:
    """The flag was taken away: proven when the new process was started without it."""
    reading = _process_reading(knob, evidence)
    if reading.known is Known.ABSENT:
        return KnobProof(knob, None, Proof.PROVEN, reading, Source.PROCESS)
    proof = Proof.OTHER if reading.known is Known.VALUE else Proof.MISSING
    return KnobProof(knob, None, proof, reading, Source.PROCESS)
