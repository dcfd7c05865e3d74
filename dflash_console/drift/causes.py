"""The verdict on one setting: the first cause that applies.

The order of the questions is that of causes: do the engine's own words agree with each other, was it changed while it ran, is
the process older than the file, did it ignore what it was asked, can what it was asked be confirmed at all.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..evidence.acceptance import AcceptanceFinding, acceptance_finding
from ..evidence.command import flag_value
from ..evidence.engine_log import ignored_flag
from ..evidence.reading import Known
from ..evidence.server import DISAGREE, Dialect, in_effect_reading, server_reading
from ..evidence.truth import Witnesses, changed_while_running, contradiction, in_effect, readings
from ..evidence.values import whole
from ..knobs import AUTO, KNOBS, OFF, PLAIN, Knob, KnobError, Source, Value, same_value, show_value
from .comparing import differ, expected_in_effect, said, shown, wanted
from .verdicts import APPLY_KEY, RESTART_KEY, DriftKind, TruthRow, Verdict


@dataclass(frozen=True)
class Older:
    """The process was started before the configuration was written, both by the host's clock."""

    seconds: float
    path: str = ""
    """The file that was written last, when it is another than the unit file."""

    @property
    def words(self) -> str:
        return (
            f"the process is older than {self.path or 'the unit file'}, by {_duration(self.seconds)}: "
            "no restart happened since it was written"
        )


def judge(witnesses: Witnesses, knob: Knob, algorithm: str | None, older: Older | None) -> TruthRow:
    """The verdict on one setting: the first cause that applies."""
    row = TruthRow(knob.name, knob.title, readings(witnesses, knob), now=in_effect(witnesses, knob))
    unused = _unused(row, knob, algorithm)
    if unused is not None and _stays(witnesses, algorithm):
        return unused
    return (
        disagreement(row, witnesses, knob)
        or _hot(row, witnesses, knob)
        or _older(row, knob, older)
        or unused
        or _ignored(row, witnesses, knob)
        or _other_value(row, witnesses, knob)
        or _unconfirmed(row, witnesses, knob)
        or _remarks(row, witnesses, knob)
    )


def with_verdict(row: TruthRow, verdict: Verdict, kind: DriftKind, message: str, key: str = "") -> TruthRow:
    return TruthRow(row.knob, row.title, row.readings, verdict, message, key, kind, row.now)


def disagreement(row: TruthRow, witnesses: Witnesses, knob: Knob) -> TruthRow | None:
    """The engine's own words do not agree: its ranks report different values, or its report and its log do."""
    if not witnesses.running:
        return None
    reported = in_effect_reading(witnesses.server, knob)
    if reported.why.startswith(DISAGREE):
        return with_verdict(row, Verdict.DRIFT, DriftKind.RANKS_DISAGREE, reported.why, RESTART_KEY)
    pair = contradiction(witnesses, knob)
    if pair is None:
        return None
    logged, report = pair
    message = f"the engine contradicts itself: {logged.where} says {shown(logged)}, {report.where} says {shown(report)}"
    return with_verdict(row, Verdict.DRIFT, DriftKind.CONTRADICTION, message, RESTART_KEY)


def _hot(row: TruthRow, witnesses: Witnesses, knob: Knob) -> TruthRow | None:
    """A change of the running engine that the unit file does not have: the next restart would lose it."""
    if row.now.value is None or knob.hot_name is None or not knob.flags or not changed_while_running(witnesses, knob):
        return None
    unit = row.readings[Source.UNIT]
    written = wanted(unit, knob)
    goes_back_to = written
    if written is None and unit.known is Known.ABSENT:
        goes_back_to = _at_start(witnesses, knob)
    if goes_back_to is None or same_value(goes_back_to, row.now.value):
        return None
    place = "in the unit file" if written is not None else "at start, as the unit file leaves it to the engine"
    message = (
        f"hot change not written down: {shown(row.now)} now, {show_value(goes_back_to)} {place}; a restart goes back to that"
    )
    return with_verdict(row, Verdict.DRIFT, DriftKind.HOT_NOT_WRITTEN, message, APPLY_KEY)


def _at_start(witnesses: Witnesses, knob: Knob) -> Value | None:
    """The value that the engine itself chose when it started."""
    reported = server_reading(witnesses.server, knob)
    if reported.value is not None:
        return reported.value
    changes = witnesses.log.hot_changes if witnesses.log is not None else ()
    first = next((point.change.old for point in changes if point.change.accepted and point.change.name == knob.hot_name), None)
    try:
        return knob.parse(first) if first is not None else None
    except KnobError:
        return None


def _older(row: TruthRow, knob: Knob, older: Older | None) -> TruthRow | None:
    unit, loaded, process = (row.readings[source] for source in (Source.UNIT, Source.LOADED, Source.PROCESS))
    if differ(unit, process, knob):
        unloaded = " (the manager has not loaded it yet)" if differ(unit, loaded, knob) else ""
        message = f"{older_words(older)}{unloaded}; {said(unit)} in the unit file, {said(process)} in the process"
        return with_verdict(row, Verdict.DRIFT, DriftKind.PROCESS_OLDER, message, RESTART_KEY)
    if differ(unit, loaded, knob):
        # The process may even run what the file says: the next restart starts what is loaded.
        message = f"the unit file says {said(unit)}, the manager has loaded {said(loaded)}"
        return with_verdict(row, Verdict.DRIFT, DriftKind.NOT_LOADED, message, RESTART_KEY)
    return None


def older_words(older: Older | None) -> str:
    return "the process is not what the unit file asks for" if older is None else older.words


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def _ignored(row: TruthRow, witnesses: Witnesses, knob: Knob) -> TruthRow | None:
    """The engine itself says that a flag that was given has no effect."""
    if witnesses.log is None or not witnesses.running:
        return None
    remark = ignored_flag(witnesses.log, knob)
    given = any(row.readings[source].known is Known.VALUE for source in (Source.PROCESS, Source.UNIT))
    logged = row.readings[Source.LOG]
    if remark is None or not given or (logged.known is Known.VALUE and logged.text != "ignored"):
        return None
    message = f"this build ignores the flag for this algorithm: “{remark.text}” (log line {remark.number})"
    return with_verdict(row, Verdict.DRIFT, DriftKind.IGNORED, message)


def _unused(row: TruthRow, knob: Knob, algorithm: str | None) -> TruthRow | None:
    """Settings of a drafter or a tree where there is none: whatever the sources say of them means nothing."""
    drafting = ("draft_window", "layers_window", "block_size", "drafter")
    tree = ("tree_budget", "tree_topk")
    if algorithm == PLAIN and knob.name in (*drafting, *tree):
        return with_verdict(row, Verdict.OK, DriftKind.NOT_USED, "not used by PLAIN")
    if algorithm == "DFLASH" and knob.name in tree and row.now.value in (None, OFF):
        return with_verdict(row, Verdict.OK, DriftKind.NOT_USED, "not used by DFLASH, which verifies a chain")
    return None


def _stays(witnesses: Witnesses, algorithm: str | None) -> bool:
    """The engine itself names this algorithm, and the next start would run the same, as far as is known; otherwise its settings
    may count, or begin to."""
    knob = KNOBS["algorithm"]
    next_one = wanted(readings(witnesses, knob)[Source.UNIT], knob)
    return in_effect(witnesses, knob).value == algorithm and next_one in (None, algorithm)


def _other_value(row: TruthRow, witnesses: Witnesses, knob: Knob) -> TruthRow | None:
    """What the engine does is not what its command line, or else the unit file, asked for."""
    asked = row.readings[Source.PROCESS]
    if asked.known is Known.UNKNOWN:
        asked = row.readings[Source.UNIT]
    expected = expected_in_effect(asked, row.readings[Source.TRAINED], knob)
    found = row.now
    ranks = witnesses.server.ranks if witnesses.server is not None else ()
    if knob.name == "max_running_requests" and len(ranks) > 1:
        return None  # The engine reports its share per data-parallel rank.
    if found.known is not Known.VALUE and knob.name == "drafter":
        return None  # A path may be written in several ways: the server's echo of it proves nothing more.
    if found.known is not Known.VALUE and Source.SERVER in knob.evidence and Source.LOG not in knob.evidence:
        found = row.readings[Source.SERVER]
    if expected is None or found.value is None or same_value(expected, found.value):
        return None
    if knob.name == "algorithm" and expected == "DFLASH" and found.value == "DDTREE" and _tree_by_another_flag(witnesses):
        return None
    if expected == AUTO and isinstance(found.value, int):
        return None  # An automatic budget may be reported as the width that it has chosen.
    message = f"another value in effect: {said(asked)} was asked for, {found.where or 'the engine'} says {shown(found)}"
    return with_verdict(row, Verdict.DRIFT, DriftKind.OTHER_VALUE, message, RESTART_KEY)


def _tree_by_another_flag(witnesses: Witnesses) -> bool:
    """Forks that verify a tree under the name DFLASH, by a switch of their own."""
    words = witnesses.argv or witnesses.command or ()
    return any(word.startswith(("--speculative-dflash-enable-ddtree", "--speculative-dflash-tree-")) for word in words)


def _unconfirmed(row: TruthRow, witnesses: Witnesses, knob: Knob) -> TruthRow | None:
    if row.now.known is Known.VALUE:
        return None
    if not witnesses.running:
        return with_verdict(row, Verdict.UNKNOWN, DriftKind.NOT_READ, "the engine is not running")
    asked = row.readings[Source.PROCESS]
    proven_by_command = Source.PROCESS in knob.evidence and asked.known is not Known.UNKNOWN
    if proven_by_command:
        return None
    if knob.name == "layers_window":
        return _layers_window(row, witnesses)
    log = witnesses.log
    if log is None or (not log.ready and log.confirmation is None):
        return with_verdict(row, Verdict.UNKNOWN, DriftKind.NOT_READ, row.now.why or "not known yet")
    if asked.known is Known.UNKNOWN and row.readings[Source.UNIT].known is Known.UNKNOWN:
        return with_verdict(row, Verdict.UNKNOWN, DriftKind.NOT_READ, asked.why)
    given = any(row.readings[source].known is Known.VALUE for source in (Source.PROCESS, Source.UNIT))
    if not given:
        return None
    why = f"{row.readings[Source.LOG].why}, and the server only repeats its flags"
    return with_verdict(row, Verdict.UNCONFIRMED, DriftKind.NOT_CONFIRMABLE, f"applied, not confirmable: {why}")


def _layers_window(row: TruthRow, witnesses: Witnesses) -> TruthRow:
    """Builds that do not print the layers' window: say what is known of them and of the lever that is left."""
    trained = row.readings[Source.TRAINED]
    if trained.known is not Known.VALUE or trained.value == OFF:
        return with_verdict(row, Verdict.OK if trained.value == OFF else Verdict.UNKNOWN, DriftKind.NOT_READ, trained.why)
    lever = "the compact draft cache is the only lever that is certain"
    stock = witnesses.server is not None and witnesses.server.dialect is Dialect.STOCK
    if stock and _version(witnesses) >= (0, 5, 17):
        message = "this build reads layer_types of the drafter itself and runs the layers as trained; it does not print it"
    elif stock:
        message = f"early builds ignore layer_types of the drafter, and this one does not say: {lever}"
    else:
        message = f"this build does not say whether it reads layer_types of the drafter: {lever}"
    return with_verdict(row, Verdict.NOTE, DriftKind.WINDOW_NOT_READ, message)


def _version(witnesses: Witnesses) -> tuple[int, ...]:
    text = witnesses.server.version if witnesses.server is not None else ""
    return tuple(number for part in text.split(".")[:3] if (number := whole(part)) is not None)


def _remarks(row: TruthRow, witnesses: Witnesses, knob: Knob) -> TruthRow:
    """All is in order; there may still be something to know."""
    trained, now = row.readings[Source.TRAINED], row.now
    if knob.name == "algorithm" and (finding := _acceptance(witnesses)) is not None:
        return with_verdict(row, Verdict.NOTE, DriftKind.ACCEPTANCE, finding.words)
    if (
        knob.name == "block_size"
        and trained.value is not None
        and now.value is not None
        and not same_value(trained.value, now.value)
    ):
        message = f"runs with {shown(now)}, trained with {trained.text}: a drafter on another block is a different drafter"
        return with_verdict(row, Verdict.NOTE, DriftKind.UNLIKE_TRAINING, message)
    if (
        knob.name == "draft_window"
        and isinstance(trained.value, int)
        and isinstance(now.value, int)
        and now.value < trained.value
    ):
        message = f"below the window that the drafter was trained with ({trained.text}): it sees less than it learned from"
        return with_verdict(row, Verdict.NOTE, DriftKind.UNLIKE_TRAINING, message)
    written = flag_value(witnesses.command, knob) if witnesses.command else None
    if written is not None and written.duplicate:
        message = f"given {len(written.overridden) + 1} times in the unit file: the last one, {written.text}, counts"
        return with_verdict(row, Verdict.NOTE, DriftKind.DUPLICATE, message)
    if written is not None and written.spelling in knob.flags[1:] and knob.name == "draft_window":
        message = f"{written.spelling} is the old spelling of {knob.flags[0]}; both are accepted"
        return with_verdict(row, Verdict.NOTE, DriftKind.OLD_SPELLING, message)
    return row


def _acceptance(witnesses: Witnesses) -> AcceptanceFinding | None:
    """What the newest decode lines say of the drafter, while it drafts."""
    drafting = in_effect(witnesses, KNOBS["speculation"]).value is not False
    if witnesses.log is None or not witnesses.running or not drafting:
        return None
    block = in_effect(witnesses, KNOBS["block_size"]).value
    return acceptance_finding(witnesses.log.decode, block if isinstance(block, int) else None)
