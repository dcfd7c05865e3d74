"""What a configuration will cost: arithmetic on the drafter's shape, times from this host's own history."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from engine_launch.spec.drafter_config import DrafterConfig

from ..effective import UNGIVEN, configured, in_effect
from ..evidence.command import command_reading, flag_value
from ..evidence.reading import Known
from ..evidence.server import server_reading
from ..knobs import KNOBS, OFF, PLAIN, Value
from ..state import HostState
from .draft_pool import DraftPool, DraftSettings, beyond_window, draft_bytes, pool_of, started_command
from .records import Predictions, Survey

RESTART_STAGES = ("restart", "process up", "weights", "draft runner", "KV pool", "graphs", "ready", "prompt")
"""Stages whose times make up the time of a restart."""
UNDO_SPARE_S = 60.0


@dataclass(frozen=True)
class Wanted:
    """The settings after the change, as far as they are known."""

    state: HostState
    command: tuple[str, ...]
    settings: Mapping[str, Value | None]
    restart: bool

    def value(self, name: str) -> Value | None:
        """The wanted value, else what goes on: the one in effect, or through a restart the one on the planned command line."""
        if name in self.settings:
            return self.settings[name]
        now = in_effect(self.state, name)
        written = command_reading(self.command, KNOBS[name])
        if not self.restart:
            return now.value if now.known is Known.VALUE else written.value
        if written.known is Known.VALUE or name == "speculation":
            return written.value
        # What an engine that decodes plainly says of its drafter or tree tells nothing of one that has them.
        plain = in_effect(self.state, "algorithm").value == PLAIN
        return UNGIVEN.get(name, now.value if now.known is Known.VALUE and not plain else None)


def predict(wanted: Wanted, survey: Survey) -> Predictions:
    """Figures for the configuration after the change."""
    state, drafter = wanted.state, survey.drafter
    times = {name: survey.stage_seconds[name] for name in RESTART_STAGES if name in survey.stage_seconds}
    times = times if wanted.restart else {}
    context, requests = _limit(state, "context_length", wanted), _limit(state, "max_running_requests", wanted)
    per_request = now = None
    if drafter is not None and context is not None and wanted.value("algorithm") not in (None, PLAIN):
        element = _element_bytes(state)
        per_request = draft_bytes(drafter, context, _settings_after(wanted, drafter), element)
        if _now(state, "algorithm") != PLAIN:
            now = draft_bytes(drafter, context, _settings_now(wanted, drafter), element)
    total = per_request * requests if per_request is not None and requests is not None else None
    verify_width = _verify_width(wanted, drafter)
    return Predictions(
        verify_width=verify_width,
        verify_ms=_verify_ms(state, verify_width),
        draft_kv_bytes_per_request=per_request,
        draft_kv_bytes_total=total,
        draft_kv_bytes_now=now,
        context=context,
        requests=requests,
        restart_s=sum(times.values()) if times else None,
        stage_seconds=times,
    )


def kept_beyond(wanted: Wanted, survey: Survey, window: int) -> tuple[int, int] | None:
    """Bytes of one request's draft keys and values before the compact draft cache, which SGLang's own pool keeps, and the tokens
    of that request. ``None`` = too little is known."""
    context = _limit(wanted.state, "context_length", wanted)
    if survey.drafter is None or context is None:
        return None
    return beyond_window(survey.drafter, context, window, _element_bytes(wanted.state)), context


def undo_after(survey: Survey, predictions: Predictions) -> int:
    """Seconds after which a change that is not confirmed is put back: well beyond what a start takes on this host, since a timer
    that fires during a good start would undo it; without an earlier start to go by, as long as a start is waited for."""
    longest = predictions.restart_s * 2 if predictions.restart_s is not None else survey.longest_start_s
    return math.ceil(longest + UNDO_SPARE_S)


def _verify_width(wanted: Wanted, drafter: DrafterConfig | None) -> int | None:
    algorithm, budget = wanted.value("algorithm"), wanted.value("tree_budget")
    if algorithm == PLAIN or wanted.value("speculation") is False:
        return 1
    if algorithm == "DDTREE":
        return budget + 1 if isinstance(budget, int) else None
    block = wanted.value("block_size")
    if algorithm == "DFLASH":
        return block if isinstance(block, int) else drafter.block_size if drafter is not None else None
    return None


def _verify_ms(state: HostState, rows: int | None) -> float | None:
    """By straight lines between the measured widths; beyond them nothing is known."""
    curve = state.server.value.verify_curve if state.server is not None else ()
    for (left, low), (right, high) in pairwise(curve):
        if rows is not None and left <= rows <= right and left < right:
            return low + (high - low) * (rows - left) / (right - left)
    return None


def _settings_after(wanted: Wanted, drafter: DrafterConfig) -> DraftSettings:
    """What will decide about a request's draft memory. A change of the running engine leaves the pool of its start as it is."""
    if not wanted.restart:
        now = _settings_now(wanted, drafter)
        if now.pool is not DraftPool.WINDOWS:
            return now
    pool = pool_of(wanted.state, wanted.command, wanted.value("algorithm"))
    return DraftSettings(
        pool, wanted.value("layers_window"), wanted.value("draft_window"), _block(wanted.value("block_size"), drafter)
    )


def _settings_now(wanted: Wanted, drafter: DrafterConfig) -> DraftSettings:
    """The same of the engine that runs, by the command that it was started with."""
    state = wanted.state
    started = started_command(state)
    pool = pool_of(state, started, _now(state, "algorithm"))
    window = flag_value(started, KNOBS["draft_window"]).value if pool is DraftPool.RING else _now(state, "draft_window")
    return DraftSettings(pool, _now(state, "layers_window"), window, _block(_now(state, "block_size"), drafter))


def _block(value: Value | None, drafter: DrafterConfig) -> int:
    return value if isinstance(value, int) else drafter.block_size


def _now(state: HostState, name: str) -> Value | None:
    reading = in_effect(state, name)
    if reading.known is not Known.VALUE:
        reading = configured(state, name)
    return reading.value if reading.known is Known.VALUE else OFF if name == "draft_window" else None


def _limit(state: HostState, name: str, wanted: Wanted) -> int | None:
    value = wanted.value(name)
    if value is None and state.server is not None:
        # A limit is no drift: what the server was started with is what it still has.
        value = server_reading(state.server.value, KNOBS[name]).value
    return value if isinstance(value, int) else None


def _element_bytes(state: HostState) -> int:
    """Bytes of one key or value element, from the KV pool's own line or the server's dtype; fp32 when neither says."""
    said = ""
    if state.log is not None and state.log.value.draft_kv is not None:
        said = state.log.value.draft_kv.dtype
    elif state.server is not None:
        said = str(state.server.value.fields.get("dtype", ""))
    return 2 if "16" in said or "half" in said else 1 if "fp8" in said or "float8" in said else 4
