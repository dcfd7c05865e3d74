"""Configuration drift: what was trained, written, loaded, started, reported and printed, and one verdict a setting.

Pure. A verdict is a statement about readings that are there: a source that could not be read is *unknown* and never a
mismatch. The order of the questions is that of causes: is the process older than the file, was the engine changed while it
ran, did it ignore what it was asked, can what it was asked be confirmed at all.
"""

from __future__ import annotations

from .evidence.acceptance import AcceptanceFinding, acceptance_finding
from .evidence.command import flag_value
from .evidence.drift_flags import other_flags
from .evidence.engine_log import ignored_flag
from .evidence.reading import Known, Reading
from .evidence.server import DISAGREE, Dialect, in_effect_reading, server_reading
from .evidence.truth import Witnesses, changed_while_running, compact_cache_readings, in_effect, readings
from .knobs import AUTO, CONFIG, KNOBS, OFF, PLAIN, TRUTH_KNOBS, Knob, KnobError, Source, Value, same_value, show_value
from .state import HostState, RunState
from .verdicts import APPLY_KEY, COMPACT_CACHE, RESTART_KEY, SPECULATION_KEY
from .verdicts import DriftKind as DriftKind
from .verdicts import Severity as Severity
from .verdicts import TruthRow as TruthRow
from .verdicts import TruthTable as TruthTable
from .verdicts import Verdict as Verdict
from .verdicts import drift_items as drift_items


def witnesses_of(state: HostState) -> Witnesses:
    """The parts of a snapshot that bear witness. A stopped service has no process, server or log of its own now."""
    config = state.config.value if state.config is not None else None
    stopped = state.service is not None and state.service.value.state in (RunState.STOPPED, RunState.FAILED, RunState.MISSING)
    return Witnesses(
        command=config.command if config is not None else None,
        command_file=config.sources[-1].path if config is not None and config.sources else "unit file",
        loaded=config.loaded if config is not None else None,
        argv=state.process.value.argv if state.process is not None else None,
        server=state.server.value if state.server is not None else None,
        log=state.log.value if state.log is not None else None,
        drafter=state.drafter.value if state.drafter is not None else None,
        running=not stopped,
    )


def truth_table(state: HostState) -> TruthTable:
    """Every setting that matters in every column, and every other one that drifts."""
    witnesses = witnesses_of(state)
    older = _started_before_written(state)
    algorithm = _algorithm(witnesses)
    rows: list[TruthRow] = []
    for name in TRUTH_KNOBS:
        row = _judge(witnesses, KNOBS[name], algorithm, older)
        rows.append(row)
        if name == "draft_window":
            rows.append(_compact_cache(witnesses, row))
    for knob in KNOBS.values():
        if knob.name in TRUTH_KNOBS:
            continue
        row = _speculation(witnesses, knob) if knob.name == "speculation" else _judge(witnesses, knob, algorithm, older)
        if row.verdict is Verdict.DRIFT or row.kind is DriftKind.SPECULATION_OFF:
            rows.append(row)
    for flag in other_flags(witnesses.command, witnesses.argv if witnesses.running else None):
        given = {source: Reading(Known.ABSENT, why="not in the catalogue") for source in Source}
        given |= {Source.UNIT: flag.unit, Source.PROCESS: flag.process}
        message = f"{_older_words(older)}: {_said(flag.unit)} in the unit file, {_said(flag.process)} in the process"
        rows.append(TruthRow(flag.name, flag.flag, given, Verdict.DRIFT, message, RESTART_KEY, DriftKind.PROCESS_OLDER))
    return TruthTable(tuple(rows))


def _judge(witnesses: Witnesses, knob: Knob, algorithm: str | None, older: float | None) -> TruthRow:
    """The verdict on one setting: the first cause that applies."""
    row = TruthRow(knob.name, knob.title, readings(witnesses, knob), now=in_effect(witnesses, knob))
    return (
        _ranks(row, witnesses, knob)
        or _hot(row, witnesses, knob)
        or _older(row, knob, older)
        or _ignored(row, witnesses, knob)
        or _unused(row, knob, algorithm)
        or _other_value(row, witnesses, knob)
        or _unconfirmed(row, witnesses, knob)
        or _remarks(row, witnesses, knob)
    )


def _verdict(row: TruthRow, verdict: Verdict, kind: DriftKind, message: str, key: str = "") -> TruthRow:
    return TruthRow(row.knob, row.title, row.readings, verdict, message, key, kind, row.now)


def _ranks(row: TruthRow, witnesses: Witnesses, knob: Knob) -> TruthRow | None:
    reported = in_effect_reading(witnesses.server, knob)
    if witnesses.running and reported.why.startswith(DISAGREE):
        return _verdict(row, Verdict.DRIFT, DriftKind.RANKS_DISAGREE, reported.why, RESTART_KEY)
    return None


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
        f"hot change not written down: {_shown(row.now)} now, {show_value(goes_back_to)} {place}; a restart goes back to that"
    )
    return _verdict(row, Verdict.DRIFT, DriftKind.HOT_NOT_WRITTEN, message, APPLY_KEY)


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


def _older(row: TruthRow, knob: Knob, older: float | None) -> TruthRow | None:
    unit, loaded, process = (row.readings[source] for source in (Source.UNIT, Source.LOADED, Source.PROCESS))
    if _differ(unit, process, knob):
        unloaded = " (the manager has not loaded it yet)" if _differ(unit, loaded, knob) else ""
        message = f"{_older_words(older)}{unloaded}: {_said(unit)} in the unit file, {_said(process)} in the process"
        return _verdict(row, Verdict.DRIFT, DriftKind.PROCESS_OLDER, message, RESTART_KEY)
    if process.known is Known.UNKNOWN and _differ(unit, loaded, knob):
        message = f"the unit file says {_said(unit)}, the manager has loaded {_said(loaded)}"
        return _verdict(row, Verdict.DRIFT, DriftKind.NOT_LOADED, message, RESTART_KEY)
    return None


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
    return _verdict(row, Verdict.DRIFT, DriftKind.IGNORED, message)


def _unused(row: TruthRow, knob: Knob, algorithm: str | None) -> TruthRow | None:
    """Settings of a drafter or a tree where there is none."""
    drafting = ("draft_window", "layers_window", "block_size", "drafter")
    tree = ("tree_budget", "tree_topk")
    if algorithm == PLAIN and knob.name in (*drafting, *tree):
        return _verdict(row, Verdict.OK, DriftKind.NOT_USED, "not used: plain decoding")
    if algorithm == "DFLASH" and knob.name in tree and row.now.value is None:
        return _verdict(row, Verdict.OK, DriftKind.NOT_USED, "not used: DFLASH verifies a chain")
    return None


def _other_value(row: TruthRow, witnesses: Witnesses, knob: Knob) -> TruthRow | None:
    """What the engine does is not what its command line, or else the unit file, asked for."""
    asked = row.readings[Source.PROCESS]
    if asked.known is Known.UNKNOWN:
        asked = row.readings[Source.UNIT]
    expected = _expected(asked, row.readings[Source.TRAINED], knob)
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
    message = f"another value in effect: {_said(asked)} was asked for, {found.where or 'the engine'} says {_shown(found)}"
    return _verdict(row, Verdict.DRIFT, DriftKind.OTHER_VALUE, message, RESTART_KEY)


def _tree_by_another_flag(witnesses: Witnesses) -> bool:
    """Forks that verify a tree under the name DFLASH, by a switch of their own."""
    words = witnesses.argv or witnesses.command or ()
    return any(word.startswith(("--speculative-dflash-enable-ddtree", "--speculative-dflash-tree-")) for word in words)


def _unconfirmed(row: TruthRow, witnesses: Witnesses, knob: Knob) -> TruthRow | None:
    if row.now.known is Known.VALUE:
        return None
    if not witnesses.running:
        return _verdict(row, Verdict.UNKNOWN, DriftKind.NOT_READ, "the engine is not running")
    asked = row.readings[Source.PROCESS]
    proven_by_command = Source.PROCESS in knob.evidence and asked.known is not Known.UNKNOWN
    if proven_by_command:
        return None
    if knob.name == "layers_window":
        return _layers_window(row, witnesses)
    log = witnesses.log
    if log is None or (not log.ready and log.confirmation is None):
        return _verdict(row, Verdict.UNKNOWN, DriftKind.NOT_READ, row.now.why or "not known yet")
    if asked.known is Known.UNKNOWN and row.readings[Source.UNIT].known is Known.UNKNOWN:
        return _verdict(row, Verdict.UNKNOWN, DriftKind.NOT_READ, asked.why)
    given = any(row.readings[source].known is Known.VALUE for source in (Source.PROCESS, Source.UNIT))
    if not given:
        return None
    why = f"{row.readings[Source.LOG].why}, and the server only repeats its flags"
    return _verdict(row, Verdict.UNCONFIRMED, DriftKind.NOT_CONFIRMABLE, f"applied, not confirmable: {why}")


def _layers_window(row: TruthRow, witnesses: Witnesses) -> TruthRow:
    """Builds that do not print the layers' window: say what is known of them and of the lever that is left."""
    trained = row.readings[Source.TRAINED]
    if trained.known is not Known.VALUE or trained.value == OFF:
        return _verdict(row, Verdict.OK if trained.value == OFF else Verdict.UNKNOWN, DriftKind.NOT_READ, trained.why)
    lever = "the compact draft cache is the only lever that is certain"
    stock = witnesses.server is not None and witnesses.server.dialect is Dialect.STOCK
    if stock and _version(witnesses) >= (0, 5, 17):
        message = "this build reads layer_types of the drafter itself and runs the layers as trained; it does not print it"
    elif stock:
        message = f"early builds ignore layer_types of the drafter, and this one does not say: {lever}"
    else:
        message = f"this build does not say whether it reads layer_types of the drafter: {lever}"
    return _verdict(row, Verdict.NOTE, DriftKind.WINDOW_NOT_READ, message)


def _version(witnesses: Witnesses) -> tuple[int, ...]:
    text = witnesses.server.version if witnesses.server is not None else ""
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())


def _remarks(row: TruthRow, witnesses: Witnesses, knob: Knob) -> TruthRow:
    """All is in order; there may still be something to know."""
    trained, now = row.readings[Source.TRAINED], row.now
    if knob.name == "algorithm" and (finding := acceptance_of(witnesses)) is not None:
        return _verdict(row, Verdict.NOTE, DriftKind.ACCEPTANCE, finding.words)
    if (
        knob.name == "block_size"
        and trained.value is not None
        and now.value is not None
        and not same_value(trained.value, now.value)
    ):
        message = f"runs with {_shown(now)}, trained with {trained.text}: a drafter on another block is a different drafter"
        return _verdict(row, Verdict.NOTE, DriftKind.UNLIKE_TRAINING, message)
    if (
        knob.name == "draft_window"
        and isinstance(trained.value, int)
        and isinstance(now.value, int)
        and now.value < trained.value
    ):
        message = f"below the window that the drafter was trained with ({trained.text}): it sees less than it learned from"
        return _verdict(row, Verdict.NOTE, DriftKind.UNLIKE_TRAINING, message)
    written = flag_value(witnesses.command, knob) if witnesses.command else None
    if written is not None and written.duplicate:
        message = f"given {len(written.overridden) + 1} times in the unit file: the last one, {written.text}, counts"
        return _verdict(row, Verdict.NOTE, DriftKind.DUPLICATE, message)
    if written is not None and written.spelling in knob.flags[1:] and knob.name == "draft_window":
        message = f"{written.spelling} is the old spelling of {knob.flags[0]}; both are accepted"
        return _verdict(row, Verdict.NOTE, DriftKind.OLD_SPELLING, message)
    return row


def acceptance_of(witnesses: Witnesses) -> AcceptanceFinding | None:
    """What the newest decode lines say of the drafter, while it drafts."""
    drafting = in_effect(witnesses, KNOBS["speculation"]).value is not False
    if witnesses.log is None or not witnesses.running or not drafting:
        return None
    block = in_effect(witnesses, KNOBS["block_size"]).value
    return acceptance_finding(witnesses.log.decode, block if isinstance(block, int) else None)


def _compact_cache(witnesses: Witnesses, window: TruthRow) -> TruthRow:
    knob = KNOBS["draft_window"]
    cells = compact_cache_readings(witnesses, window.readings, knob)
    now = cells[Source.SERVER] if cells[Source.SERVER].why == "in effect now" else cells[Source.LOG]
    row = TruthRow(COMPACT_CACHE, "Compact cache in use", cells, now=now)
    if window.verdict is Verdict.DRIFT:
        return _verdict(row, Verdict.DRIFT, DriftKind.FOLLOWS, "follows from the row above", window.key)
    if window.kind is DriftKind.NOT_USED:
        return _verdict(row, Verdict.OK, DriftKind.NOT_USED, window.message)
    asked = _on(window.now)
    if now.known is not Known.VALUE:
        return _verdict(row, Verdict.UNKNOWN, DriftKind.NOT_READ, now.why)
    if asked is not None and asked is not now.value:
        message = f"the window in effect is {_shown(window.now)}, yet {now.where} says that the compact cache is {_shown(now)}"
        return _verdict(row, Verdict.DRIFT, DriftKind.OTHER_VALUE, message)
    return row


def _speculation(witnesses: Witnesses, knob: Knob) -> TruthRow:
    row = TruthRow(knob.name, knob.title, readings(witnesses, knob), now=in_effect(witnesses, knob))
    if row.now.value is False:
        message = "speculation was switched off while running: its speed is plain, in place, and a restart switches it on again"
        return _verdict(row, Verdict.NOTE, DriftKind.SPECULATION_OFF, message, SPECULATION_KEY)
    return row


def _on(window: Reading) -> bool | None:
    return window.value != OFF if window.known is Known.VALUE else None


def wanted(reading: Reading, knob: Knob) -> Value | None:
    """The value that a command line asks for; without the flag, what the engine does then (``None`` = its own choice)."""
    if reading.known is Known.VALUE:
        return reading.value
    return knob.default if reading.known is Known.ABSENT else None


def _expected(asked: Reading, trained: Reading, knob: Knob) -> Value | None:
    """What should be in effect: as asked, and "as trained" in tokens."""
    value = wanted(asked, knob)
    if value == CONFIG:
        return trained.value if trained.known is Known.VALUE else None
    return value


def _differ(left: Reading, right: Reading, knob: Knob) -> bool:
    """Whether two command lines ask for different things. What was not read differs from nothing."""
    if Known.UNKNOWN in (left.known, right.known):
        return False
    one, other = wanted(left, knob), wanted(right, knob)
    if one is None or other is None:
        return left.known is not right.known
    return not same_value(one, other)


def _shown(reading: Reading) -> str:
    return show_value(reading.value)


def _said(reading: Reading) -> str:
    if reading.known is Known.VALUE:
        return reading.text
    return "no flag" if reading.known is Known.ABSENT else "unknown"


def _algorithm(witnesses: Witnesses) -> str | None:
    """The algorithm in effect, else the one asked for."""
    knob = KNOBS["algorithm"]
    now = in_effect(witnesses, knob)
    if now.value is not None:
        return str(now.value)
    row = readings(witnesses, knob)
    for source in (Source.PROCESS, Source.SERVER, Source.UNIT):
        value = wanted(row[source], knob) if source is not Source.SERVER else row[source].value
        if value is not None:
            return str(value)
    return None


def _started_before_written(state: HostState) -> float | None:
    """Seconds between the start and the newest configuration file, both by the host's clock, when the file is newer."""
    if state.service is None or state.config is None or state.service.value.started_at is None:
        return None
    times = [source.mtime for source in state.config.value.sources if source.mtime is not None]
    if not times or max(times) <= state.service.value.started_at:
        return None
    return max(times) - state.service.value.started_at


def _older_words(older: float | None) -> str:
    if older is None:
        return "the process is not what the unit file asks for"
    return f"the process is older than the unit file, by {_duration(older)}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
