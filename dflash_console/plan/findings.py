"""Preflight: everything that can be found wrong with a plan before anything is changed. Each check answers its findings."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from engine_launch.spec.checks import check_window
from engine_launch.spec.flags import FlagError

from ..effective import in_effect
from ..evidence.command import count_engines, flag_value, hidden_flags
from ..evidence.engine_log import ignored_flag
from ..evidence.gpu_holders import ranks_asked
from ..evidence.reading import Known
from ..evidence.secrets import mask_argv
from ..formats import size
from ..knobs import AUTO, KNOBS, PLAIN, Knob, KnobError, Value, find_knob, same_value, show_value
from ..state import HostState, RunState
from .case import Case
from .draft_pool import DDTREE, POOL_FLAG, DraftPool, pool_of, started_command
from .flag_findings import flag_findings
from .predict import kept_beyond
from .records import Finding, Mode, Severity

GPU_LISTED = 4
"""Processes that one finding names."""


def find_all(case: Case) -> tuple[Finding, ...]:
    """All findings, errors first."""
    checks = (
        _hot,
        _values,
        flag_findings,
        _several,
        _window,
        _block,
        _drafter,
        _survey,
        _nothing,
        _running,
        _pending,
        _evidence,
        _undo,
        _memory,
    )
    found = [finding for check in checks for finding in check(case)]
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def _hot(case: Case) -> Iterator[Finding]:
    for name, why in case.hot_refusals.items():
        yield Finding.error("hot_not_possible", f"{name} cannot be changed while the engine runs: {why}", name)
    if case.restart:
        for name, value in case.change.settings.items():
            if not find_knob(name).flags:
                said = f"{name}={show_value(value)} is not a start setting: change it by itself, while the engine runs"
                yield Finding.error("hot_only", said, name)
            most = beyond_most(find_knob(name), value, case.state)
            if most is not None and case.change.mode is Mode.AUTO and case.state.ready:
                said = f"{name}={show_value(value)} needs this restart: the running engine takes at most {most}"
                yield Finding.info("beyond_most", f"{said} ({find_knob(name).most_flag})", name)


def _values(case: Case) -> Iterator[Finding]:
    """Values that reached the plan without going through the catalogue's parser (steps, profiles of another version)."""
    for name, value in case.change.settings.items():
        if value is None:
            continue
        try:
            find_knob(name).parse(show_value(value))
        except KnobError as error:
            code = "budget_below_1" if name == "tree_budget" else "value_out_of_range"
            yield Finding.error(code, str(error), name)


def _several(case: Case) -> Iterator[Finding]:
    """A line such as ``A || B`` may run an engine that no setting was changed of."""
    if (number := count_engines(case.command)) > 1:
        said = f"the command line starts an engine in {number} places; only the first is read and changed here, the others stay"
        yield Finding.warning("several_engines", said)


def _window(case: Case) -> Iterator[Finding]:
    window, algorithm = case.wanted.value("draft_window"), case.wanted.value("algorithm")
    if not isinstance(window, int) or isinstance(window, bool) or algorithm == PLAIN:
        return
    block = case.wanted.value("block_size")
    drafter = case.survey.drafter
    if not isinstance(block, int) and drafter is not None:
        block = drafter.block_size
    if isinstance(block, int):
        try:
            check_window(window, block)
        except FlagError as error:
            yield Finding.error("window_below_block", str(error), "draft_window")
            return
    if drafter is not None and drafter.sliding_window is not None and drafter.sliding_layers and window > drafter.sliding_window:
        said = (
            f"a compact draft cache of {window} is wider than the {drafter.sliding_window} tokens that "
            f"{drafter.sliding_layers} of {drafter.num_layers} drafter layers were trained with: "
            "only the other layers gain from it"
        )
        yield Finding.info("window_beyond_trained", said, "draft_window")
    log = case.state.log
    remark = ignored_flag(log.value, KNOBS["draft_window"]) if log is not None else None
    if remark is not None and "draft_window" in case.change.settings:
        yield Finding.warning("window_ignored", f"this build ignored the flag at its last start: {remark.text}", "draft_window")


def _block(case: Case) -> Iterator[Finding]:
    """A drafter on another block than its own; what that does was measured both ways (DFlash's block size transfer)."""
    drafter, block = case.survey.drafter, case.wanted.value("block_size")
    if not case.restart or drafter is None or not isinstance(block, int) or case.wanted.value("algorithm") in (None, PLAIN):
        return
    if block == drafter.block_size or not {"block_size", "drafter", "algorithm"} & set(case.change.settings):
        return
    if block < drafter.block_size:
        outcome = f"a verify then brings at most {block} tokens"
    else:
        outcome = "it never learned the positions beyond, so they cost drafting and verifying and bring little"
    said = f"the block size of {block} is not the {drafter.block_size} that the drafter was trained with: {outcome}"
    yield Finding.warning("block_unlike_trained", said, "block_size")


def _drafter(case: Case) -> Iterator[Finding]:
    if not case.restart or case.wanted.value("algorithm") in (None, PLAIN) or not case.survey.drafter_problem:
        return
    named = "drafter" in case.change.settings or flag_value(case.command, KNOBS["drafter"]).given
    said = f"the drafter cannot be used: {case.survey.drafter_problem}"
    yield (Finding.error if named else Finding.warning)("drafter_broken", said, "drafter")


def _survey(case: Case) -> Iterator[Finding]:
    if not case.restart:
        return
    for problem in case.survey.unit_problems:
        yield Finding.error("unit_broken", problem)
    for remark in case.survey.unit_remarks:
        yield Finding.warning("unit_remark", f"the service manager says of the unit as it is: {remark}")
    yield from _transient(case)
    for remark in case.state.config.value.remarks if case.state.config is not None else ():
        yield Finding.warning("unit_misread", f"the unit does not mean what it seems to: {remark}")
    if case.survey.port_taken:
        holder = f"held by {case.survey.port_holder}" if case.survey.port_holder else "in use by another program"
        if _may_move(case) and not case.writes:
            said = f"the port is {holder}: the engine gets the next one that is free, and its file will say so"
            yield Finding.info("port_moves", said)
        else:
            # A change's files have to stay as they were written, or it could not be rolled back.
            first = ", or start it before the change, which takes the next port that is free" if _may_move(case) else ""
            said = f"the port is {holder}: the engine could not listen; end that, or choose another --port{first}"
            yield Finding.error("port_busy", said)
    yield from _gpus(case)
    if strangers := case.survey.gpu_strangers:
        more = f"; and {len(strangers) - GPU_LISTED} more" if len(strangers) > GPU_LISTED else ""
        named = "; ".join(strangers[:GPU_LISTED])
        yield Finding.warning("gpu_memory_held", f"GPU memory is held by processes that are not this unit's: {named}{more}")


def _transient(case: Case) -> Iterator[Finding]:
    """A unit that a start which ends takes along, so that a roll-back finds nothing to go back to."""
    sources = case.state.config.value.sources if case.state.config is not None else ()
    if sources and "/systemd/transient/" in sources[0].path:
        said = (
            f"the unit was made by systemd-run, and systemd removes {sources[0].path} once it stops: a start that fails may "
            "leave nothing to go back to; make a unit file of it first (systemctl cat shows what belongs in it)"
        )
        yield Finding.warning("transient_unit", said)


def _may_move(case: Case) -> bool:
    """Whether a start by itself takes another port: the console chose this one, and nothing runs that is to stay where it is."""
    config = case.state.config.value if case.state.config is not None else None
    ended = case.state.service is not None and case.state.service.value.state in (RunState.STOPPED, RunState.FAILED)
    return ended and config is not None and config.chosen_port is not None


def _gpus(case: Case) -> Iterator[Finding]:
    """Ranks that would have no GPU, which the engine says minutes later."""
    rows = case.state.gpus.value if case.state.gpus is not None and not case.state.embedded else ()
    asked = ranks_asked({}, case.command)
    usable = sum(not row.lost and not row.needs_reset for row in rows)
    if rows and asked is not None and asked > usable:
        others = f" ({len(rows) - usable} more cannot be used: status names them)" if usable < len(rows) else ""
        said = f"the command asks for {asked} GPUs on this host, and {usable} can be used{others}"
        yield Finding.warning("gpus_missing", said, "tp_size")


def _nothing(case: Case) -> Iterator[Finding]:
    if not case.change.settings:
        return
    if case.restart:
        hidden = hidden_flags(case.command)
        unseen = [name for name in case.change.settings if hidden and not flag_value(case.command, find_knob(name)).given]
        if unseen:
            said = f"{', '.join(unseen)}: no word of the command gives it, but {hidden} may, and is not changed here"
            yield Finding.warning("hidden_flags", said)
        elif not case.writes:
            yield Finding.warning("nothing_to_change", "the configuration says so already: this would only restart the engine")
    elif not (case.change.persist and case.writes) and all(same_value(change.old, change.new) for change in case.changes):
        yield Finding.warning("nothing_to_change", "these values are in effect already")


def _running(case: Case) -> Iterator[Finding]:
    running = case.state.rates.running or (case.state.loads.value.running if case.state.loads is not None else None)
    if case.restart and running:
        plural = "request runs" if running == 1 else "requests run"
        yield Finding.warning("cuts_requests", f"{running} {plural} and would be cut off; drain first to let them end")


def _pending(case: Case) -> Iterator[Finding]:
    """What a restart brings or loses beside the change itself."""
    if not case.restart:
        return
    config = case.state.config.value if case.state.config is not None else None
    if config is not None and config.loaded is not None and config.loaded != config.command and case.state.process is not None:
        words = _difference(config.loaded, config.command)
        yield Finding.warning(
            "other_changes_pending", f"the file was changed since the engine was started; a restart also brings: {words}"
        )
    if case.state.log is None or case.state.server is None:
        return
    lost = []
    # Only what this engine takes while it runs was changed while it ran: one that decodes plainly has no tree to lose.
    taken = case.state.server.value.hot_knobs() - set(case.change.settings)
    for name, knob in KNOBS.items():
        if name not in taken:
            continue
        now, at_start = in_effect(case.state, name), flag_value(case.command, knob)
        if not knob.flags and now.value is False:
            lost.append(f"{name} {show_value(now.value)} (back to on)")
        if now.known is Known.VALUE and at_start.value not in (None, AUTO) and not same_value(now.value, at_start.value):
            lost.append(f"{name} {show_value(now.value)} (back to {show_value(at_start.value)})")
    if lost:
        said = f"changed while running and not written down, so a restart loses it: {', '.join(lost)}"
        yield Finding.warning("hot_changes_lost", said)


def _evidence(case: Case) -> Iterator[Finding]:
    for change in case.changes:
        if not change.confirmable:
            said = f"{change.knob} can be applied but not confirmed: this engine gives no evidence of it"
            yield Finding.warning("not_confirmable", said, change.knob)


def _undo(case: Case) -> Iterator[Finding]:
    """What commit-confirm means for this very change."""
    if not case.change.commit_confirm:
        return
    if not case.restart:
        yield Finding.info("no_timer", "a change while the engine runs needs no timer on the host: a restart takes it back")
    elif case.survey.undo_problem:
        yield Finding.error("no_commit_confirm", case.survey.undo_problem)
    else:
        for change in case.changes:
            if not change.confirmable:
                said = f"{change.knob} is not confirmable on this engine, so the host would put it back: leave out commit-confirm"
                yield Finding.error("never_confirmed", said, change.knob)


def _memory(case: Case) -> Iterator[Finding]:
    """A compact draft cache on SGLang's own pool, which has a row for every token whatever the cache's size is."""
    if case.state.server is None or "draft_window" not in case.change.settings or "draft_window" in case.hot_refusals:
        return
    window, algorithm = case.wanted.value("draft_window"), case.wanted.value("algorithm")
    # A change while it runs leaves the pool of its start.
    command = case.command if case.restart else started_command(case.state)
    if not isinstance(window, int) or pool_of(case.state, command, algorithm) is not DraftPool.STOCK:
        return
    said = "SGLang's pool: the compact draft cache bounds the drafter's attention, its memory is not freed"
    if (kept := kept_beyond(case.wanted, case.survey, window)) is not None:
        beyond, context = kept
        if beyond == 0:
            return
        said += f": {size(beyond)} for a request of {context:,} tokens stay allocated"
    if algorithm == DDTREE:
        said += f". A start with {POOL_FLAG} ring has room for that cache alone"
    yield Finding.info("memory_not_freed", said, "draft_window")


def _difference(old: Sequence[str], new: Sequence[str]) -> str:
    """The words that differ, masked: ``-8 +16; +--draft-window 512``."""
    before, after = mask_argv(old), mask_argv(new)
    parts = []
    for tag, start, end, other_start, other_end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            gone, come = " ".join(before[start:end]), " ".join(after[other_start:other_end])
            parts.append(" ".join(([f"-{gone}"] if gone else []) + ([f"+{come}"] if come else [])))
    return "; ".join(parts)


def hot_refusal(knob: Knob, value: Value | None, state: HostState) -> str:
    """Why the running engine will not take this value now; empty when it will."""
    info = state.server.value if state.server is not None else None
    if state.stranger is not None:
        return "another program answers on its port"
    if not state.ready or info is None:
        return _not_ready(state)
    if knob.hot_name is None:
        return "engines read it at start only; use a restart"
    if knob.name not in info.hot_knobs():
        return f"{info.engine_name} takes it at start only; use a restart"
    if value is None:
        return "taking a flag away needs a restart"
    try:
        knob.hot_value(value)
    except KnobError as error:
        return str(error)
    if (most := beyond_most(knob, value, state)) is not None:
        return f"this start takes at most {most} ({knob.most_flag}); use a restart"
    return ""


def beyond_most(knob: Knob, value: Value | None, state: HostState) -> int | None:
    """The most that the running engine takes, where ``value`` is more than that."""
    most = state.server.value.most(knob) if state.server is not None else None
    return most if most is not None and isinstance(value, int) and not isinstance(value, bool) and value > most else None


def _not_ready(state: HostState) -> str:
    """What the engine is doing that is not ready for a change. One that is being stopped or started is not said to fail."""
    service = state.service.value if state.service is not None else None
    if service is None or service.state is RunState.UNKNOWN:
        return "it is not known whether the engine runs"
    if service.state is RunState.RUNNING:
        if state.said_ready:
            return "the engine does not answer" if state.silent else "the engine has not answered yet"
        return "the engine is not ready yet: it is still loading"
    if service.state in (RunState.STARTING, RunState.STOPPING):
        return f"the engine is just {service.state.value}: try again in a moment"
    return "the engine does not run" + (f" ({service.detail})" if service.detail else "")
