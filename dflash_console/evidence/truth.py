"""One setting as every source gives it: the row of readings under the truth table's verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine_launch.spec.drafter_config import DrafterConfig

from ..knobs import AUTO, CONFIG, OFF, PLAIN, Knob, Source, Value, same_value
from .command import command_reading, find_engine, no_engine
from .drafter import trained_reading
from .engine_log import ChangePoint, StartLog, compact_cache_reading, log_reading
from .reading import Known, Reading, absent, unknown, valued
from .secrets import mask_text
from .server import ServerInfo, compact_cache_in_effect, in_effect_reading, server_reading

NOT_RUNNING = "the engine is not running"


@dataclass(frozen=True)
class Witnesses:
    """Everything that was read of one service, as far as it was read (``None`` = not)."""

    command: Sequence[str] | None = None
    """The command that the configuration files ask for."""
    command_file: str = "unit file"
    command_problem: str = ""
    """Why ``command`` is not known, where somebody looked."""
    loaded: Sequence[str] | None = None
    argv: Sequence[str] | None = None
    """The main process's command line."""
    server: ServerInfo | None = None
    log: StartLog | None = None
    drafter: DrafterConfig | None = None
    report_after: int = 0
    """Lines of the log that had been read when ``server`` was asked."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables that the configuration gives the process."""
    running: bool = True
    """False: the service is stopped, so that nothing is in effect."""


def readings(witnesses: Witnesses, knob: Knob) -> dict[Source, Reading]:
    """``knob`` in every column."""
    return {
        Source.TRAINED: trained_reading(witnesses.drafter, knob),
        Source.UNIT: unit_reading(witnesses, knob),
        Source.LOADED: command_reading(witnesses.loaded, knob, "loaded command"),
        Source.PROCESS: process_reading(witnesses, knob),
        Source.SERVER: report_reading(witnesses, knob),
        Source.LOG: log_reading(witnesses.log, knob) if witnesses.running else unknown(NOT_RUNNING),
    }


def unit_reading(witnesses: Witnesses, knob: Knob) -> Reading:
    """What the configuration files ask for; *unknown* with the reason where they cannot be read."""
    if witnesses.command is None and witnesses.command_problem:
        return unknown(witnesses.command_problem)
    found = command_reading(witnesses.command, knob, witnesses.command_file)
    if found.known is Known.UNKNOWN and witnesses.command and find_engine(witnesses.command) is None:
        return replace(found, why=found.why + script_variables(witnesses.environment, (knob,)))
    return found


def script_variables(environment: Mapping[str, str], knobs: Iterable[Knob]) -> str:
    """Where a script that starts the engine may take settings from, behind the reason why its flags are not known; empty where no
    variable is named like one. A script may do anything with a variable, so none is edited here."""
    wanted = tuple(knobs)
    named = [
        mask_text(f"{name}={value}")
        for name, value in environment.items()
        if value and any(knob.may_be_in(name) for knob in wanted)
    ]
    several = len(wanted) > 1
    what, which = ("them", "those") if several else ("it", "that")
    return f"; the script may take {what} from the unit's {', '.join(named)} (systemctl edit changes {which})" if named else ""


def process_reading(witnesses: Witnesses, knob: Knob) -> Reading:
    """The process's own command line; *unknown* where the main process is a wrapper or a container's client."""
    if not witnesses.running:
        return unknown(NOT_RUNNING)
    if witnesses.argv is None:
        return unknown("the process has not been read")
    found = find_engine(witnesses.argv)
    if found is None:
        return unknown(f"cannot see the engine's command line: {no_engine(witnesses.argv)}")
    if found.container:
        return unknown("the main process is a container's client: its words are not the engine's process")
    return command_reading(witnesses.argv, knob, "process")


def report_reading(witnesses: Witnesses, knob: Knob) -> Reading:
    """What the server reports: in effect now where it says so, else what it was asked at start."""
    if not witnesses.running:
        return unknown(NOT_RUNNING)
    now = in_effect_reading(witnesses.server, knob)
    if now.known is not Known.UNKNOWN or now.text:
        return now
    return server_reading(witnesses.server, knob)


def in_effect(witnesses: Witnesses, knob: Knob) -> Reading:
    """The value in effect now, from the strongest evidence there is: the engine's own report, else this start's log.

    A report that is older than a hot change in the log (it still says the value from before the change) gives way to it.
    """
    if not witnesses.running:
        return unknown(NOT_RUNNING)
    logged = log_reading(witnesses.log, knob)
    reported = in_effect_reading(witnesses.server, knob)
    if reported.known is not Known.VALUE:
        return logged
    return logged if _overtaken(witnesses, knob, reported) else reported


def contradiction(witnesses: Witnesses, knob: Knob) -> tuple[Reading, Reading] | None:
    """What the log and the engine's report say, where both were read and cannot both be true; ``None`` otherwise.

    Compared are the last hot change with the value in effect, and where there was none, both accounts of the start. A report
    that was asked for before a change's line was read may still say the value from before that change.
    """
    logged, reported = log_reading(witnesses.log, knob), in_effect_reading(witnesses.server, knob)
    if not _changes(witnesses, knob):
        # A change whose line was not seen shows in the value in effect only, so each side is taken at its word about the start.
        if witnesses.server is None or not witnesses.server.startup:
            return _plain_server(witnesses, knob, logged)
        reported = server_reading(witnesses.server, knob)
        if not reported.where.startswith("/server_info startup_settings"):
            return None
    if logged.known is not Known.VALUE or reported.known is not Known.VALUE:
        return None
    # "auto" and "config" stand for a value that the other side may have written out.
    if same_value(logged.value, reported.value) or {logged.value, reported.value} & {AUTO, CONFIG}:
        return None
    return None if _overtaken(witnesses, knob, reported) else (logged, reported)


def _plain_server(witnesses: Witnesses, knob: Knob, logged: Reading) -> tuple[Reading, Reading] | None:
    """An engine without a drafter that answers where one with a drafter has printed its lines: a wrapper of the unit that goes
    on without when the one with it has died, all in one start."""
    if knob.name != "algorithm" or witnesses.log is None or logged.value in (None, PLAIN):
        return None
    reported, line = server_reading(witnesses.server, knob), witnesses.log.values.get("algorithm")
    # A report that was asked for before the line was read is the earlier engine's.
    asked_before = line is not None and line.number > witnesses.report_after
    return (logged, reported) if reported.value == PLAIN and not asked_before else None


def _changes(witnesses: Witnesses, knob: Knob) -> tuple[ChangePoint, ...]:
    """The hot changes of ``knob`` that the engine took, oldest first."""
    points = witnesses.log.hot_changes if witnesses.log is not None and knob.hot_name is not None else ()
    return tuple(point for point in points if point.change.accepted and point.change.name == knob.hot_name)


def _overtaken(witnesses: Witnesses, knob: Knob, reported: Reading) -> bool:
    """Whether the report says the value from before a change that the log told of only after the report was asked for."""
    newer = [point.change.old for point in _changes(witnesses, knob) if point.number > witnesses.report_after]
    return any(_same_text(old, reported) for old in newer)


def changed_while_running(witnesses: Witnesses, knob: Knob) -> bool:
    """Whether ``knob`` now differs from what the engine started with because somebody changed it hot."""
    server = witnesses.server
    if _changes(witnesses, knob):
        return True
    if server is None or not server.startup:
        return False
    now, then = in_effect_reading(server, knob), server_reading(server, knob)
    return now.known is Known.VALUE and then.known is Known.VALUE and now.value != then.value


def compact_cache_readings(witnesses: Witnesses, window: Mapping[Source, Reading], knob: Knob) -> dict[Source, Reading]:
    """Whether the compact draft cache is in use, in every column; where a source does not say, it follows from its size there."""
    server = compact_cache_in_effect(witnesses.server) if witnesses.running else unknown(NOT_RUNNING)
    return {
        Source.TRAINED: absent("not fixed by training"),
        **{source: _follows(window[source]) for source in (Source.UNIT, Source.LOADED, Source.PROCESS)},
        Source.SERVER: server if server.known is Known.VALUE else _follows(window[Source.SERVER]),
        Source.LOG: compact_cache_reading(witnesses.log, knob) if witnesses.running else unknown(NOT_RUNNING),
    }


def _follows(window: Reading) -> Reading:
    if window.known is Known.UNKNOWN:
        return window
    on: Value = window.known is Known.VALUE and window.value != OFF
    return valued(on, "", window.where, "follows from the row above")


def _same_text(text: str, reading: Reading) -> bool:
    if text in ("0", "None") and reading.value == OFF:
        return True
    if isinstance(reading.value, bool):
        return text == str(int(reading.value))
    return text == reading.text
