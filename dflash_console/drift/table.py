"""The truth table: which rows it has, and the rows that follow from others."""

from __future__ import annotations

from ..evidence.drift_flags import other_flags
from ..evidence.reading import Known, Reading, valued
from ..evidence.truth import Witnesses, compact_cache_readings, in_effect, readings
from ..evidence.unit_drop_in import NAME as DROP_IN_FILE
from ..gpu_report import missing_ranks, rank_words
from ..knobs import KNOBS, OFF, PLAIN, TRUTH_KNOBS, Knob, Source
from ..state import ENDED, HostState
from .causes import Older, disagreement, judge, older_words, with_verdict
from .comparing import said, shown, wanted
from .port import port_rows
from .unread import judged_without_unit_file, unit_file_rows, unread_sources, unreadable, with_reasons
from .verdicts import COMPACT_CACHE, DROP_IN, RANKS, RESTART_KEY, SPECULATION_KEY, DriftKind, TruthRow, TruthTable, Verdict


def witnesses_of(state: HostState) -> Witnesses:
    """The parts of a snapshot that bear witness. A stopped service has no process, server or log of its own now."""
    config = state.config.value if state.config is not None else None
    stopped = state.service is not None and state.service.value.state in ENDED
    return Witnesses(
        command=config.command if config is not None and not state.unread_config else None,
        command_problem=state.unread_config,
        command_file=(config.command_path or config.sources[-1].path) if config is not None and config.sources else "unit file",
        loaded=config.loaded if config is not None else None,
        argv=state.process.value.argv if state.process is not None else None,
        server=state.server.value if state.server is not None else None,
        log=state.log.value if state.log is not None else None,
        drafter=state.drafter.value if state.drafter is not None else None,
        report_after=state.report_after,
        environment=config.environment if config is not None else {},
        running=not stopped,
    )


def truth_table(state: HostState) -> TruthTable:
    """Every setting that matters in every column, and every other one that drifts."""
    witnesses = witnesses_of(state)
    older = _started_before_written(state)
    algorithm = _algorithm(witnesses)
    rows: list[TruthRow] = []
    for name in TRUTH_KNOBS:
        row = judge(witnesses, KNOBS[name], algorithm, older)
        rows.append(row)
        if name == "draft_window":
            rows.append(_compact_cache(witnesses, row))
    for knob in KNOBS.values():
        if knob.name in TRUTH_KNOBS:
            continue
        if knob.name == "speculation":
            if algorithm == PLAIN:
                continue  # started without: nothing was switched off, and the algorithm's row says it
            row = _speculation(witnesses, knob)
        else:
            row = judge(witnesses, knob, algorithm, older)
        if row.verdict is Verdict.DRIFT or row.kind is DriftKind.SPECULATION_OFF:
            rows.append(row)
    for flag in other_flags(witnesses.command, witnesses.argv if witnesses.running else None):
        given = {source: Reading(Known.ABSENT, why="not in the catalogue") for source in Source}
        given |= {Source.UNIT: flag.unit, Source.PROCESS: flag.process}
        message = f"{older_words(older)}; {said(flag.unit)} in the unit file, {said(flag.process)} in the process"
        rows.append(TruthRow(flag.name, flag.flag, given, Verdict.DRIFT, message, RESTART_KEY, DriftKind.PROCESS_OLDER))
    unread = unread_sources(state)
    # First, for it is why the rows beneath it cannot be judged.
    rows = unit_file_rows(state) + judged_without_unit_file(with_reasons(rows, unread), state)
    rows += _missing_ranks(state)
    rows += _drop_in(state)
    rows += port_rows(state)
    return TruthTable(tuple(rows), unreadable(rows, unread))


def _compact_cache(witnesses: Witnesses, window: TruthRow) -> TruthRow:
    knob = KNOBS["draft_window"]
    cells = compact_cache_readings(witnesses, window.readings, knob)
    now = cells[Source.SERVER] if cells[Source.SERVER].why == "in effect now" else cells[Source.LOG]
    row = TruthRow(COMPACT_CACHE, "Compact draft cache in use", cells, now=now)
    if window.verdict is Verdict.DRIFT:
        return with_verdict(row, Verdict.DRIFT, DriftKind.FOLLOWS, "follows from the row above", window.key)
    if window.kind is DriftKind.NOT_USED:
        return with_verdict(row, Verdict.OK, DriftKind.NOT_USED, window.message)
    asked = _on(window.now)
    if now.known is not Known.VALUE:
        return with_verdict(row, Verdict.UNKNOWN, DriftKind.NOT_READ, now.why)
    if asked is not None and asked is not now.value:
        message = f"its size in effect is {shown(window.now)}, yet {now.where} says that the compact draft cache is {shown(now)}"
        return with_verdict(row, Verdict.DRIFT, DriftKind.OTHER_VALUE, message)
    return row


def _speculation(witnesses: Witnesses, knob: Knob) -> TruthRow:
    row = TruthRow(knob.name, knob.title, readings(witnesses, knob), now=in_effect(witnesses, knob))
    if (disagreeing := disagreement(row, witnesses, knob)) is not None:
        return disagreeing
    if row.now.value is False:
        message = "speculation was switched off while running: its speed is plain, in place, and a restart switches it on again"
        return with_verdict(row, Verdict.NOTE, DriftKind.SPECULATION_OFF, message, SPECULATION_KEY)
    return row


def _on(window: Reading) -> bool | None:
    return window.value != OFF if window.known is Known.VALUE else None


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


def _missing_ranks(state: HostState) -> list[TruthRow]:
    """Fewer rank processes on the GPUs than the server was started with: whatever it reports, it cannot answer."""
    count = missing_ranks(state)
    if count is None:
        return []
    cells = {source: Reading(Known.ABSENT, why="is no setting") for source in Source}
    cells[Source.PROCESS] = valued(count.words, f"{count.seen} of {count.asked}", "the processes on the GPUs")
    row = TruthRow(RANKS, "Rank processes", cells, now=cells[Source.PROCESS])
    return [with_verdict(row, Verdict.DRIFT, DriftKind.RANKS_MISSING, rank_words(count), RESTART_KEY)]


def _drop_in(state: HostState) -> list[TruthRow]:
    """The console's own drop-in: whether another file overrides it, and whether it hides a change of what it was made from."""
    if state.config is None:
        return []
    config = state.config.value
    absent = {source: Reading(Known.ABSENT, why="is no setting") for source in Source}
    row = TruthRow(DROP_IN, "Console's drop-in", absent)
    ours = next((source.path for source in config.sources if source.path.rpartition("/")[2] == DROP_IN_FILE), None)
    if ours is not None and config.command_path not in ("", ours):
        message = f"another drop-in wins: {config.command_path} sets ExecStart after {ours}, whose settings have no effect"
        return [with_verdict(row, Verdict.DRIFT, DriftKind.OVERRIDDEN, message)]
    if config.shadowed:
        return [with_verdict(row, Verdict.DRIFT, DriftKind.SHADOWED, config.shadowed, "e")]
    return []


def _started_before_written(state: HostState) -> Older | None:
    """How much newer the newest configuration file is than the start, both by the host's clock; ``None`` when it is not."""
    if state.service is None or state.config is None or state.service.value.started_at is None:
        return None
    sources = state.config.value.sources
    times = [(source.mtime, source.path) for source in sources if source.mtime is not None]
    if not times or max(times)[0] <= state.service.value.started_at:
        return None
    newest, path = max(times)
    return Older(newest - state.service.value.started_at, path if path != sources[0].path else "")
