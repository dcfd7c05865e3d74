"""Making a plan: the new command, the text that holds it, and everything worth knowing before it is applied."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from ..effective import UNGIVEN, configured, in_effect
from ..evidence.command import CommandError, find_engine, flag_value, no_engine, set_flag
from ..evidence.file_edits import FileEdit
from ..evidence.reading import Known
from ..evidence.secrets import mask_argv
from ..evidence.server import Dialect
from ..evidence.truth import script_variables
from ..knobs import CONFIG, KNOBS, KnobError, Value, find_knob, same_value
from ..proof import expected_value, proof_sources, proof_words, quiet_log
from ..state import HostState
from .case import Case
from .draft_pool import started_command
from .findings import find_all, hot_refusal
from .masking import mask_values, secret_values
from .predict import Wanted, predict, undo_after
from .records import Change, KnobChange, Mode, Plan, PlanError, Survey

Render = Callable[[tuple[str, ...]], tuple[FileEdit, ...]]
"""The edits of files that make a given command the effective one. May raise PlanError."""


def make_plan(state: HostState, change: Change, survey: Survey, *, target: str, render: Render) -> Plan:
    """Plan ``change`` on the service as ``state`` knows it. Changes nothing.

    Args:
        survey: what was asked of the host for this change.
        target: the file that is written when nothing speaks for another.
        render: makes the edits.

    Raises:
        PlanError: the service or its configuration is not known, no engine is named in the command, or a setting is unknown.
    """
    if state.service is None or state.config is None:
        why = state.problems.get("config") or state.problems.get("service") or "it has not been read yet"
        raise PlanError(f"no plan can be made without the configuration: {why}")
    config = state.config.value
    if config.problems:
        raise PlanError(f"no plan can be made, the configuration has to be mended or rolled back first: {config.problems[0]}")
    if find_engine(config.command) is None and change.settings:
        variables = script_variables(config.environment, KNOBS.values())
        raise PlanError(f"{no_engine(config.command)}, so it cannot be edited here{variables}")
    try:
        # One setting may be named in several ways (its name, its flag, its flag's old spelling).
        change = replace(change, settings={find_knob(name).name: value for name, value in change.settings.items()})
    except KnobError as error:
        raise PlanError(str(error)) from None
    mode, refusals = choose_mode(state, change)
    written = change.settings if mode is Mode.RESTART or change.persist else {}
    command = _command(config.command, {name: value for name, value in written.items() if find_knob(name).flags})
    edits = () if command == config.command else render(command)
    changes = _changes(state, change, mode, quiet=quiet_log(command))
    case = Case(state, change, mode, survey, config.command, command, changes, command != config.command, refusals)
    secrets = secret_values((*config.command, *command), config.environment)
    hot = mode is Mode.HOT and not refusals
    predictions = predict(Wanted(state, command, change.settings, mode is Mode.RESTART), survey)
    return Plan(
        host=state.host,
        unit=state.unit,
        mode=mode,
        target=", ".join(edit.path for edit in edits) or target,
        edits=edits,
        diff=mask_values(diff_of(edits), secrets),
        command=command,
        old_command=config.command,
        shown_command=mask_argv(command),
        changes=changes,
        predictions=predictions,
        findings=find_all(case),
        hot_values=_hot_values(change) if hot else {},
        persist=change.persist and mode is Mode.HOT,
        digests=_digests(state, survey),
        invocation_id=state.service.value.invocation_id,
        drafter=survey.drafter,
        undo_after_s=undo_after(survey, predictions) if change.commit_confirm and mode is Mode.RESTART and edits else None,
    )


def choose_mode(state: HostState, change: Change) -> tuple[Mode, dict[str, str]]:
    """How the change can reach the engine, and for a hot change what stands in its way."""
    refusals = {name: why for name, value in change.settings.items() if (why := hot_refusal(find_knob(name), value, state))}
    if change.mode is Mode.AUTO:
        # A setting without a flag can only be changed hot: planning a restart for it would hide the real reason.
        only_hot = all(not find_knob(name).flags for name in change.settings)
        hot = bool(change.settings) and (not refusals or only_hot)
        return (Mode.HOT, refusals) if hot else (Mode.RESTART, {})
    return (Mode.HOT, refusals) if change.mode is Mode.HOT else (Mode.RESTART, {})


def unified_diff(path: str, old: str, new: str) -> str:
    """A unified diff with three lines of context; empty when the texts are equal."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), f"{path} (now)", f"{path} (planned)", lineterm="")
    return "\n".join(lines)


def diff_of(edits: Iterable[FileEdit]) -> str:
    """The diffs of all edits, one after the other. Not masked."""
    return "\n".join(unified_diff(edit.path, edit.old or "", edit.new or "") for edit in edits)


def _command(command: tuple[str, ...], settings: dict[str, Value | None]) -> tuple[str, ...]:
    for name, value in settings.items():
        try:
            command = set_flag(command, find_knob(name), value)
        except (CommandError, KnobError) as error:
            raise PlanError(str(error)) from None
    return command


def _changes(state: HostState, change: Change, mode: Mode, *, quiet: bool) -> tuple[KnobChange, ...]:
    # Before the first start nothing is known of the engine; the embedded host's will be the embedded engine.
    dialect = Dialect.EMBEDDED if state.embedded else Dialect.UNKNOWN
    if state.server is not None:
        dialect = state.server.value.dialect
    found = []
    for name, value in change.settings.items():
        knob = find_knob(name)
        sources = proof_sources(knob, dialect, quiet=quiet)
        how = proof_words(knob, sources)
        if mode is Mode.HOT:
            how = f"its change line in this start's log and {how.rpartition(' and ')[2]}"
        found.append(KnobChange(name, _old_value(state, name), knob.shown(value), sources, how))
    return tuple(found)


def _old_value(state: HostState, name: str) -> Value | None:
    now = in_effect(state, name)
    if now.known is not Known.VALUE:
        now = configured(state, name)
    if now.known is not Known.VALUE:
        return None
    return CONFIG if _as_trained(state, name, now.value) else now.value


def _as_trained(state: HostState, name: str, now: Value | None) -> bool:
    """Whether ``now`` is in effect because the engine was started as trained: its way back is to that, and not to the number."""
    knob, drafter = find_knob(name), state.drafter.value if state.drafter is not None else None
    if UNGIVEN.get(name) != CONFIG or drafter is None:
        return False
    started = flag_value(started_command(state), knob)
    return started.value in (None, CONFIG) and not started.problem and same_value(expected_value(knob, CONFIG, drafter), now)


def _hot_values(change: Change) -> dict[str, float]:
    values = {}
    for name, value in change.settings.items():
        knob = find_knob(name)
        if knob.hot_name is not None and value is not None:
            values[knob.hot_name] = knob.hot_value(value)
    return values


def _digests(state: HostState, survey: Survey) -> dict[str, str]:
    assert state.config is not None
    found = {source.path: source.digest for source in state.config.value.sources}
    if survey.drafter_path and survey.drafter_digest:
        found[survey.drafter_path] = survey.drafter_digest
    return found


def digest_of(data: bytes) -> str:
    """SHA-256 of a file's bytes, as configuration sources have it."""
    return hashlib.sha256(data).hexdigest()
